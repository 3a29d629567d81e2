// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	record "github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// A transaction is a user's transaction, with any driver.
type transaction struct {
	postgres.Tx
	commit, rollback func() error
	exec             func(sql string) error
}

// drivers calls the test with every sort of transaction.
func drivers(t *testing.T, test func(t *testing.T, begin func() transaction)) {
	url := server(t)
	ctx := context.Background()
	t.Run("pgx", func(t *testing.T) {
		test(t, func() transaction {
			tx, err := connect(t, url).Begin(ctx)
			check(t, err)
			return transaction{tx, func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) },
				func(sql string) error { _, err := tx.Exec(ctx, sql); return err }}
		})
	})
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run("database/sql, "+mode, func(t *testing.T) {
			db, err := sql.Open("pgx", url+"&default_query_exec_mode="+mode)
			check(t, err)
			t.Cleanup(func() { _ = db.Close() })
			test(t, func() transaction {
				tx, err := db.BeginTx(ctx, nil)
				check(t, err)
				return transaction{postgres.SQL(tx), tx.Commit, tx.Rollback,
					func(sql string) error { _, err := tx.Exec(sql); return err }}
			})
		})
	}
}

func task(key string, delay time.Duration) durable.Task {
	return durable.Task{Key: key, Kind: "kind", Payload: []byte{0, 255, '\''}, Delay: delay}
}

// get returns the task of the key, or nil.
func get(t testing.TB, e engine.Engine, key string) *engine.Stored {
	t.Helper()
	got, err := e.Get(t.Context(), key)
	check(t, err)
	if len(got) == 0 {
		return nil
	}
	return &got[0]
}

// RemoveTaskTx and RescheduleTx return when no run of the task can begin, even if its start was confirmed just before.
func TestTx_waitsForARunThatMayBegin(t *testing.T) {
	const within = 200 * time.Millisecond
	drivers(t, func(t *testing.T, begin func() transaction) {
		e, ctx := open(t), t.Context()
		id, now, err := e.Join(ctx, "node", time.Hour)
		check(t, err)
		for name, verb := range map[string]func(tx postgres.Tx, key string) error{
			"remove": func(tx postgres.Tx, key string) error { return e.RemoveTaskTx(ctx, tx, key) },
			"move":   func(tx postgres.Tx, key string) error { return e.RescheduleTx(ctx, tx, key, time.Hour) },
		} {
			w, err := author.Add(task(name, 0), now)
			check(t, err)
			commit(t, e, 0, w)
			held, err := e.Claim(ctx, engine.ClaimRequest{By: id, Kinds: []string{"kind"}, After: -1, Until: now, Most: 1, Readable: 255})
			check(t, err)
			asked := time.Now()
			confirmed, _, err := e.Confirm(ctx, id, []engine.Claim{{Key: name, Revision: held.Tasks[0].Revision}}, within)
			if check(t, err); !confirmed[0] {
				t.Fatal("the start is not confirmed")
			}
			tx := begin()
			check(t, verb(tx, name))
			if took := time.Since(asked); took < within {
				t.Errorf("%s returns %v after the start was confirmed", name, took)
			}
			check(t, tx.commit())
		}
	})
}

func TestTx_isDoneAtCommit_andNotIfRolledBack(t *testing.T) {
	drivers(t, func(t *testing.T, begin func() transaction) {
		e := open(t)
		ctx := t.Context()
		id, before, err := e.Join(ctx, "node", time.Hour)
		check(t, err)
		for _, end := range []string{"rollback", "commit"} {
			commit(t, e, id, put("removed", 1, engine.Always))
			w, err := author.Add(task("moved", time.Hour), before)
			check(t, err)
			w.If, w.Hold = engine.Always, true
			held := commit(t, e, id, w)[0]
			if !held.Held {
				t.Fatal("the member does not hold what it added")
			}
			tx := begin()
			check(t, e.AddTaskTx(ctx, tx, task("new", time.Minute), task("also\x00new\xff", time.Minute)))
			check(t, e.RemoveTaskTx(ctx, tx, "removed"))
			check(t, e.RescheduleTx(ctx, tx, "moved", 2*time.Hour))
			if get(t, e, "new") != nil || get(t, e, "removed") == nil || get(t, e, "moved").Revision != held.Revision {
				t.Error("what is not committed is seen")
			}
			if end == "rollback" {
				check(t, tx.rollback())
				if get(t, e, "new") != nil || get(t, e, "removed") == nil || get(t, e, "moved").Revision != held.Revision {
					t.Error("what was rolled back is seen")
				}
				continue
			}
			check(t, tx.commit())
			added, also, moved := get(t, e, "new"), get(t, e, "also\x00new\xff"), get(t, e, "moved")
			if added == nil || also == nil || get(t, e, "removed") != nil {
				t.Fatal("what was committed is not seen")
			}
			info, err := durable.InfoOf(added.Record)
			if err != nil || string(info.Payload) != "\x00\xff'" || info.Kind != "kind" || added.Kind != "kind" {
				t.Errorf("added is %+v, %v", info, err)
			}
			if wait := time.Duration(added.Due - before); wait < time.Minute || wait > 3*time.Minute {
				t.Errorf("the new task is due after %v", wait)
			}
			if wait := time.Duration(moved.Due - before); wait < 2*time.Hour || wait > 2*time.Hour+2*time.Minute ||
				moved.Owner != 0 || moved.Revision <= held.Revision {
				t.Errorf("the moved task is due after %v: %+v", wait, moved)
			}
		}
	})
}

// A task whose last run was given up still counts as failing after it was moved.
func TestTx_rescheduled_isStillFailing(t *testing.T) {
	drivers(t, func(t *testing.T, begin func() transaction) {
		e := open(t)
		ctx := t.Context()
		rec := &record.Record{Token: record.Token{Key: "k", Generation: 1}, Kind: "kind", Times: record.Forever, Interval: time.Hour, Grid: 1, Due: 1, GivenUp: 1}
		commit(t, e, 0, rec.Write(engine.IfAbsent, 0))
		tx := begin()
		check(t, e.RescheduleTx(ctx, tx, "k", 2*time.Hour))
		check(t, tx.commit())
		failing := 0
		for s, err := range e.Walk(ctx, engine.Range{Order: engine.Failing}) {
			if check(t, err); s.Key == "k" {
				failing++
			}
		}
		if counts, err := engine.Count(ctx, e); err != nil || failing != 1 || len(counts) != 1 || counts[0].Failing != 1 {
			t.Errorf("%d tasks are found, and counted are %+v, %v", failing, counts, err)
		}
	})
}

// After a refusal the transaction is unchanged, and can be committed.
func TestTx_refusals_leaveTheTransactionAsItWas(t *testing.T) {
	drivers(t, func(t *testing.T, begin func() transaction) {
		e := open(t)
		ctx := t.Context()
		commit(t, e, 0, add("taken", 1))
		tx := begin()
		var duplicates *durable.DuplicateKeysError
		err := e.AddTaskTx(ctx, tx, task("z", time.Hour), task("taken", time.Hour), task("a", time.Hour))
		if !errors.As(err, &duplicates) || len(duplicates.Keys) != 1 || duplicates.Keys[0] != "taken" {
			t.Errorf("a key that is taken: %v", err)
		}
		err = e.AddTaskTx(ctx, tx, task("twice", 1), task("twice", 1))
		if !errors.Is(err, durable.ErrDuplicateTaskKey) {
			t.Errorf("a key twice: %v", err)
		}
		if err := e.AddTaskTx(ctx, tx, task("a", 1), task("", 1)); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("an invalid task: %v", err)
		}
		if err := e.RemoveTaskTx(ctx, tx, "none"); !errors.Is(err, durable.ErrTaskKeyNotFound) {
			t.Errorf("no task to remove: %v", err)
		}
		if err := e.RescheduleTx(ctx, tx, "none", 1); !errors.Is(err, durable.ErrTaskKeyNotFound) {
			t.Errorf("no task to move: %v", err)
		}
		if err := e.CompleteTx(ctx, tx, durable.Run{}); !errors.Is(err, durable.ErrFenced) {
			t.Errorf("no run to complete: %v", err)
		}
		check(t, e.AddTaskTx(ctx, tx))
		check(t, e.AddTaskTx(ctx, tx, task("b", 1<<63-1)))
		check(t, e.RescheduleTx(ctx, tx, "b", 1<<63-1))
		check(t, e.RescheduleTx(ctx, tx, "b", -1))
		check(t, tx.commit())
		if n := length(t, e); n != 2 {
			t.Errorf("there are %d tasks, want 2", n)
		}
		tx = begin()
		check(t, tx.rollback())
		if err := e.AddTaskTx(ctx, tx, task("c", 1)); err == nil {
			t.Error("a task is added in a transaction that has ended")
		}
	})
}

// A countedTx counts the statements.
type countedTx struct {
	postgres.Tx
	statements int
}

func (c *countedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.statements++
	return c.Tx.Query(ctx, sql, args...)
}

// A task in a transaction costs one statement, although no started scheduler reads the server's time. The time that one
// transaction reads is valid for transactions within the next 200 ms.
func TestTx_addOneTask_isOneStatement(t *testing.T) {
	e := open(t)
	tx, err := connect(t, server(t)).Begin(t.Context())
	check(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	for i := range 100 {
		c := &countedTx{Tx: tx}
		check(t, e.AddTaskTx(t.Context(), c, task(fmt.Sprint(i), time.Hour)))
		if c.statements == 1 {
			return
		}
	}
	t.Error("a task costs more than one statement, a hundred times")
}
