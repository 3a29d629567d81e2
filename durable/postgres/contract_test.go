// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// TestContract_ofEveryScheduler runs in bubbles of virtual time on a real server. The time of a bubble stands still
// while it waits for the server, and the engine takes its time from the bubble: each use of a connection sets the
// server's clock to it.
func TestContract_ofEveryScheduler(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	url := server(t)
	all := []int{1}
	if os.Getenv("CHAOS") != "" {
		all = []int{1, 3}
	}
	for _, nodes := range all {
		t.Run(strconv.Itoa(nodes), func(t *testing.T) {
			suite.Test(t, nodes, func(t *testing.T) engine.Engine {
				cfg, err := pgxpool.ParseConfig(url)
				check(t, err)
				cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) (err error) {
					now := strconv.FormatInt(time.Now().UnixNano(), 10)
					if data := conn.PgConn().CustomData(); data["now"] != now {
						data["now"] = now
						_, err = conn.Exec(ctx, "SELECT set_config('timewheel.now', $1, false)", now)
					}
					return err
				}
				cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
					err := cfg.AfterConnect(ctx, conn)
					return err == nil, err
				}
				pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
				check(t, err)
				t.Cleanup(pool.Close)
				e, err := postgres.OpenPool(context.Background(), pool, schema(), postgres.WithoutSignals(), // whose reader stops the bubble
					postgres.WithNow("current_setting('timewheel.now')::bigint"))
				check(t, err)
				t.Cleanup(e.Close)
				return e
			})
		})
	}
}
