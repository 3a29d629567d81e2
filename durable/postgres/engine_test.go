// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

func TestEngine_suite(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) enginetest.Subject {
		pool, err := pgxpool.New(t.Context(), server(t))
		check(t, err)
		t.Cleanup(pool.Close)
		e := open(t)
		begin := func(t *testing.T) enginetest.Tx {
			tx, err := pool.Begin(t.Context())
			check(t, err)
			return &userTx{tx, e}
		}
		restart := func(t *testing.T) {
			check(t, shared.Stop(pgtest.Immediate))
			check(t, shared.Restart())
			await(t, func() error { // until no connection from before the restart is left
				_, err := e.Get(t.Context(), "k")
				_, _, also := e.Renew(t.Context(), 0, nil)
				return errors.Join(err, also)
			})
		}
		if shared.Server == nil { // the server is the one named by POSTGRES_URL
			restart = nil
		}
		return enginetest.Subject{Engine: e, Begin: begin, Restart: restart}
	})
}

// A userTx is a transaction of the engine's user.
type userTx struct {
	tx pgx.Tx
	e  *postgres.Engine
}

func (u *userTx) Write(ctx context.Context, writes ...engine.Write) ([]string, error) {
	return postgres.WriteTx(ctx, u.e, u.tx, writes...)
}

func (u *userTx) Commit() error { return u.tx.Commit(context.Background()) }
func (u *userTx) Rollback()     { _ = u.tx.Rollback(context.Background()) }
