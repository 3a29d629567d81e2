// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// A transaction that has written, or has a snapshot, holds back vacuum. One that waits for its user without either
// does not.
func TestHealth_oldestTransaction(t *testing.T) {
	e := open(t)
	user := connect(t, shared.URL())
	for name, c := range map[string]struct {
		begin []string
		holds bool
	}{
		"writes":   {[]string{"BEGIN", "SELECT pg_current_xact_id()"}, true},
		"snapshot": {[]string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"}, true},
		"nothing":  {[]string{"BEGIN", "SELECT 1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			for _, sql := range c.begin {
				exec(t, user, sql)
			}
			begun := time.Now()
			// Its age exceeds that of other transactions, which take milliseconds.
			await(t, func() error {
				if time.Since(begun) < 200*time.Millisecond {
					return errors.New("it is young")
				}
				return nil
			})
			least := time.Since(begun)
			h, err := e.Health(t.Context())
			check(t, err)
			most := time.Since(before)
			if got := h.OldestTransaction; c.holds && (got < least-time.Millisecond || got > most+time.Millisecond) {
				t.Errorf("the oldest transaction is %v old, want %v to %v", got, least, most)
			} else if !c.holds && got >= least {
				t.Errorf("a transaction that holds back nothing counts with %v", got)
			}
			exec(t, user, "ROLLBACK")
			if h, err = e.Health(t.Context()); err != nil || h.OldestTransaction >= least {
				t.Errorf("after its end the health is %+v, %v", h, err)
			}
		})
	}
}

func TestHealth_deadRowsAndSize(t *testing.T) {
	e := open(t)
	empty, err := e.Health(t.Context())
	check(t, err)
	var adds, removes engine.Batch
	for i := range 1000 {
		key := fmt.Sprint(i)
		adds, removes = append(adds, add(key, 1)), append(removes, remove(key))
	}
	commit(t, e, 0, adds...)
	commit(t, e, 0, removes...)
	await(t, func() error {
		h, err := e.Health(t.Context())
		if err == nil && (h.DeadRows < 500 || h.Size <= empty.Size || empty.DeadRows != 0) {
			err = fmt.Errorf("the health is %+v, and before it was %+v", h, empty)
		}
		return err
	})
}

// A role with only the rights that the engine needs can also call Health.
func TestHealth_roleWithRightsOnTheTables(t *testing.T) {
	at := schema()
	owner := open(t, at)
	user := as(t, "asks")
	conn := connect(t, shared.URL())
	exec(t, conn, owner.Text("GRANT USAGE ON SCHEMA $schema TO asks"))
	exec(t, conn, owner.Text("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA $schema TO asks"))
	e, err := postgres.Open(t.Context(), user, at)
	check(t, err)
	defer e.Close()
	if h, err := e.Health(t.Context()); err != nil || h.Size <= 0 {
		t.Errorf("the health is %+v, %v", h, err)
	}
	if _, err := owner.Health(canceled(t)); err == nil {
		t.Error("with a context that is done it returns nil")
	}
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A crash empties a table that is not logged, and no standby has it. That shows through a pooler, too.
func TestHealth_unloggedTables(t *testing.T) {
	direct := server(t)
	pooled := strings.Replace(direct, shared.Addr(), relay(t, shared.Addr()), 1)
	for table, url := range map[string]string{"task": direct, "version": direct, "note": pooled} {
		e, err := postgres.Open(t.Context(), url, schema())
		check(t, err)
		defer e.Close()
		if h, err := e.Health(t.Context()); err != nil || h.Unflushed {
			t.Fatalf("the health is %+v, %v", h, err)
		}
		exec(t, connect(t, shared.URL()), e.Text("ALTER TABLE $schema."+table+" SET UNLOGGED"))
		if h, err := e.Health(t.Context()); err != nil || !h.Unflushed || h.Replicated {
			t.Errorf("with %s unlogged the health is %+v, %v", table, h, err)
		}
	}
}

// Autovacuum may be off for the server or for the table.
func TestHealth_autovacuum(t *testing.T) {
	own, err := pgtest.Start()
	pgtest.Must(t, err)
	defer own.Close()
	conn := connect(t, own.URL())
	e, err := postgres.Open(t.Context(), own.URL())
	check(t, err)
	defer e.Close()
	for _, c := range []struct{ sql, want string }{
		{"SELECT 1", ""},
		{"ALTER TABLE timewheel.task SET (autovacuum_enabled = off)", "for the table of the tasks"},
		{"ALTER TABLE timewheel.task SET (autovacuum_enabled = TRUE)", ""},
		{"ALTER SYSTEM SET track_counts = off", "on this server"},
		{"ALTER SYSTEM RESET track_counts", ""},
		{"ALTER SYSTEM SET autovacuum = off", "on this server"},
		{"ALTER SYSTEM RESET autovacuum", ""},
	} {
		exec(t, conn, c.sql)
		exec(t, conn, "SELECT pg_reload_conf()")
		await(t, func() error {
			h, err := e.Health(t.Context())
			if err == nil && h.NoVacuum != c.want {
				err = fmt.Errorf("after %s it says %q, want %q", c.sql, h.NoVacuum, c.want)
			}
			return err
		})
	}
}
