// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// On a direct connection the statements are prepared once, and the settings belong to the connection. Behind a pooler
// the engine leaves nothing in a session.
func TestOpen_poolerInBetween_keepsNothingInTheSession(t *testing.T) {
	direct := server(t)
	cfg, err := pgxpool.ParseConfig(direct)
	check(t, err)
	pooled := "postgres://" + cfg.ConnConfig.User + "@" + relay(t, shared.Addr()) + "/" + cfg.ConnConfig.Database +
		"?sslmode=disable"
	const named = "&default_query_exec_mode=cache_statement"
	const unnamed = "&default_query_exec_mode=cache_describe"
	type session struct {
		prepared bool
		settings string
	}
	const set, unset = "off force_generic_plan 5ms", "on auto 0"
	for name, c := range map[string]struct {
		url  string
		want session
	}{
		"direct":                                  {direct, session{true, set}},
		"direct, without named statements":        {direct + unnamed, session{false, unset}},
		"direct, without a cache for them":        {direct + "&statement_cache_capacity=0", session{false, unset}},
		"by a pooler":                             {pooled, session{false, unset}},
		"by a pooler that knows named statements": {pooled + named, session{true, unset}},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := postgres.Open(t.Context(), c.url, schema(), postgres.WithConnections(4))
			check(t, err)
			defer e.Close()
			commit(t, e, 0, add("k", 1))
			if get(t, e, "k") == nil {
				t.Error("the task is not there")
			}
			var got session
			check(t, postgres.Session(t.Context(), e, "SELECT count(*) > 0, concat_ws(' ', "+
				"current_setting('enable_sort'), current_setting('plan_cache_mode'), current_setting('lock_timeout')) "+
				"FROM pg_prepared_statements WHERE statement LIKE '%unnest%'", &got.prepared, &got.settings))
			if got != c.want {
				t.Errorf("the session has %+v, want %+v", got, c.want)
			}
		})
	}
}

// relay returns the address of a relay to the server that gives its clients other process numbers, as a pooler does.
func relay(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go func() {
				_ = answers(client, server)
				_ = client.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// answers copies the messages of the server to the client.
func answers(client io.Writer, server io.Reader) error {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return err
		}
		if head[0] == 'K' { // BackendKeyData
			binary.BigEndian.PutUint32(body, binary.BigEndian.Uint32(body)+1)
		}
		if _, err := client.Write(append(head[:5:5], body...)); err != nil {
			return err
		}
	}
}
