// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// pgbouncer starts a PgBouncer in transaction mode in front of the shared server. It reports whether its version knows
// named statements.
func pgbouncer(t *testing.T, settings ...string) (p *pgtest.Pooler, named bool) {
	t.Helper()
	server(t)
	if shared.Server == nil {
		t.Skip("POSTGRES_URL is set")
	}
	p, err := shared.Pooler(settings...)
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	text, err := p.Version()
	check(t, err)
	var minor int
	_, err = fmt.Sscanf(text, "PgBouncer 1.%d.", &minor)
	check(t, err)
	t.Log(text)
	return p, minor >= 21
}

const namedStatements = "&default_query_exec_mode=cache_statement"

// One session of the server serves all connections. Nothing stays in it, and the settings are local to the transaction.
func TestPgBouncer_keepsNothingInTheSession(t *testing.T) {
	p, knows := pgbouncer(t, "default_pool_size=1")
	for _, named := range []bool{false, true} { // the session keeps the named ones
		t.Run(fmt.Sprint("named statements: ", named), func(t *testing.T) {
			mode := ""
			if named {
				mode = namedStatements
			}
			if named && !knows {
				t.Skip("this version does not know them")
			}
			e, err := postgres.Open(t.Context(), p.URL()+mode, schema())
			check(t, err)
			defer e.Close()
			commit(t, e, 0, add("k", 1))
			if get(t, e, "k") == nil {
				t.Error("the task is not there")
			}
			const settings = "concat_ws(' ', current_setting('enable_sort'), current_setting('plan_cache_mode'), " +
				"current_setting('lock_timeout'))"
			var prepared bool
			var session, transaction string
			check(t, postgres.Session(t.Context(), e, "SELECT count(*) > 0, "+settings+
				" FROM pg_prepared_statements WHERE statement LIKE '%unnest%'", &prepared, &session))
			check(t, postgres.Transaction(t.Context(), e, "SELECT "+settings, &transaction))
			if prepared != named || session != "on auto 0" || transaction != "off force_generic_plan 0" {
				t.Errorf("there are named statements: %v; the session has %q, and a transaction %q", prepared, session, transaction)
			}
		})
	}
}

// All connections share a few sessions, and switch between them from transaction to transaction.
func TestPgBouncer_suite(t *testing.T) {
	p, named := pgbouncer(t, "default_pool_size=5")
	modes := []string{""}
	if named && !testing.Short() {
		modes = append(modes, namedStatements)
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			enginetest.Test(t, func(t *testing.T) enginetest.Subject {
				e, err := postgres.Open(t.Context(), p.URL()+mode, schema())
				check(t, err)
				t.Cleanup(e.Close)
				pool, err := pgxpool.New(t.Context(), server(t))
				check(t, err)
				t.Cleanup(pool.Close)
				begin := func(t *testing.T) enginetest.Tx {
					tx, err := pool.Begin(t.Context())
					check(t, err)
					return &userTx{tx, e}
				}
				return enginetest.Subject{Engine: e, Begin: begin}
			})
		})
	}
}

// A scheduler and a user's transactions work through a PgBouncer, and again after it was killed and restarted. Nothing
// acknowledged is lost.
func TestPgBouncer_isKilled_theSchedulerGoesOn(t *testing.T) {
	p, _ := pgbouncer(t, "default_pool_size=5")
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, p.URL()+"&default_query_exec_mode=cache_describe")
	check(t, err)
	defer pool.Close()
	e, err := postgres.OpenPool(ctx, pool, schema())
	check(t, err)
	defer e.Close()
	s, err := durable.New(ctx, e, durable.WithLogger(testkit.Quiet()), durable.WithLease(time.Minute))
	check(t, err)
	ran := make(chan string, 100)
	check(t, s.Handle("kind", func(ctx context.Context, run durable.Run) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return e.CompleteTx(ctx, tx, run) })
		if err == nil {
			ran <- run.Key
		}
		return err
	}))
	check(t, s.Start())
	// verbs adds tasks by all verbs, removes some, and waits until the due ones have run.
	verbs := func(round string) {
		t.Helper()
		check(t, s.AddTask(ctx, task(round+" due", 0), task(round+" removed", time.Hour), task(round+" moved", time.Hour)))
		check(t, s.RemoveTask(ctx, round+" removed"))
		check(t, s.Reschedule(ctx, round+" moved", 0))
		check(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			err := e.AddTaskTx(ctx, tx, task(round+" by tx", time.Hour), task(round+" removed by tx", time.Hour))
			if err == nil {
				err = e.RemoveTaskTx(ctx, tx, round+" removed by tx")
			}
			if err == nil {
				err = e.RescheduleTx(ctx, tx, round+" by tx", 0)
			}
			return err
		}))
		left := map[string]bool{round + " due": true, round + " moved": true, round + " by tx": true}
		for len(left) > 0 {
			select {
			case key := <-ran:
				if !left[key] {
					t.Errorf("%q has run", key)
				}
				delete(left, key)
			case <-time.After(time.Minute):
				t.Fatalf("after a minute these have not run: %v", left)
			}
		}
	}
	verbs("before")
	check(t, s.AddTask(ctx, task("waits", time.Hour)))
	check(t, p.Kill())
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := s.AddTask(short, task("meanwhile", time.Hour)); err == nil {
		t.Error("a task is added without a server")
	}
	check(t, p.Restart())
	pool.Reset() // of broken connections
	await(t, func() error {
		err := s.AddTask(ctx, task("again", time.Hour))
		if errors.Is(err, durable.ErrDuplicateTaskKey) { // an earlier attempt had an unknown outcome
			return nil
		}
		return err
	})
	verbs("after")
	if get(t, e, "waits") == nil || get(t, e, "again") == nil {
		t.Error("an acknowledged task is lost")
	}
	check(t, s.Shutdown(ctx))
}

// The statements rely on read committed. PgBouncer refuses the setting of a connection that ensures it otherwise.
func TestPgBouncer_databaseOfAnotherIsolation_isRefused(t *testing.T) {
	p, _ := pgbouncer(t)
	conn := connect(t, server(t))
	exec(t, conn, "DROP DATABASE IF EXISTS serial WITH (FORCE)") // of an earlier round
	exec(t, conn, "CREATE DATABASE serial")
	exec(t, conn, "ALTER DATABASE serial SET default_transaction_isolation = 'serializable'")
	url := strings.Replace(p.URL(), "/postgres?", "/serial?", 1)
	if _, err := postgres.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), "ALTER ROLE") {
		t.Errorf("the error does not say what helps: %v", err)
	}
	exec(t, conn, "ALTER ROLE "+pgtest.User+" IN DATABASE serial SET default_transaction_isolation = 'read committed'")
	check(t, p.Kill())
	check(t, p.Restart())
	e, err := postgres.Open(t.Context(), url)
	check(t, err)
	defer e.Close()
	commit(t, e, 0, add("k", 1))
}

// The statements rely on the functions and operators of the server. PgBouncer refuses the setting of a connection that
// ensures it otherwise.
func TestPgBouncer_roleWithItsOwnOperators_isRefused(t *testing.T) {
	p, _ := pgbouncer(t)
	conn := connect(t, server(t))
	exec(t, conn, "DROP DATABASE IF EXISTS shadowed WITH (FORCE)") // of an earlier round
	exec(t, conn, "CREATE DATABASE shadowed")
	exec(t, conn, "ALTER DATABASE shadowed SET search_path = public, pg_catalog")
	url := strings.Replace(p.URL(), "/postgres?", "/shadowed?", 1)
	if _, err := postgres.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), "SET search_path") {
		t.Errorf("the error does not say what helps: %v", err)
	}
	exec(t, conn, "ALTER DATABASE shadowed SET search_path = public")
	check(t, p.Kill())
	check(t, p.Restart())
	e, err := postgres.Open(t.Context(), url)
	check(t, err)
	e.Close()
}
