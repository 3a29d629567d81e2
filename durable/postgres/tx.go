// SPDX-License-Identifier: MIT

package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable"
)

// A Tx is one of the program's own transactions, in the database that contains the engine's schema. A pgx.Tx is a Tx.
// [SQL] returns a Tx for a transaction of package database/sql.
//
// The methods of an Engine that take a Tx lock their keys until the transaction ends. Transactions that lock the same
// keys should do so in the same order, as with any rows. If a method fails with a server error, the transaction can no
// longer be used, as after any failed statement.
type Tx interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// SQL returns a Tx for a transaction of package database/sql. It works with any PostgreSQL driver.
func SQL(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	rows, err := t.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &sqlRows{rows: rows}, nil
}

// sqlRows implements the methods of pgx.Rows that this package calls.
type sqlRows struct {
	pgx.Rows // always nil
	rows     *sql.Rows
	err      error
}

func (r *sqlRows) Next() bool             { return r.rows.Next() }
func (r *sqlRows) Scan(dest ...any) error { return r.rows.Scan(dest...) }
func (r *sqlRows) Err() error             { return errors.Join(r.rows.Err(), r.err) }
func (r *sqlRows) Close()                 { r.err = errors.Join(r.err, r.rows.Close()) }

// AddTaskTx adds all of the tasks or none of them in the transaction, as [durable.Scheduler.AddTask] does. Delays count
// from the call. The kinds need no handler in this process. If the error wraps durable.ErrInvalidTask or
// durable.ErrDuplicateTaskKey, the transaction is unchanged. An error that wraps durable.ErrDuplicateTaskKey is a
// [*durable.DuplicateKeysError]. If another open transaction has added or removed one of the keys, AddTaskTx waits for
// that transaction.
func (e *Engine) AddTaskTx(ctx context.Context, tx Tx, tasks ...durable.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	for {
		if again, err := e.addTaskTx(ctx, tx, tasks); !again || err != nil {
			return err
		}
		e.seen.Store(nil)
	}
}

// addTaskTx performs one try of AddTaskTx. It reports whether it has to be called again, because the time from which the
// delays counted was wrong: the machine was suspended since it was read. The transaction is then unchanged.
func (e *Engine) addTaskTx(ctx context.Context, tx Tx, tasks []durable.Task) (again bool, err error) {
	now, err := e.time(ctx, tx)
	if err != nil {
		return false, explain("add task", err)
	}
	called := time.Now()
	writes := make([]engine.Write, len(tasks))
	seen := make(map[string]bool, len(tasks))
	var taken []string
	for i, task := range tasks {
		w, err := author.Add(task, now)
		if err != nil {
			return false, err
		}
		if writes[i] = w; seen[w.Key] {
			taken = append(taken, w.Key)
		}
		seen[w.Key] = true
	}
	if taken != nil {
		return false, &durable.DuplicateKeysError{Keys: taken}
	}
	slices.SortFunc(writes, func(a, b engine.Write) int { return strings.Compare(a.Key, b.Key) })
	revisions := make([]int64, len(writes)) // 0 if the key was in use
	for i, w := range writes {
		args := []any{[]byte(w.Key), w.Due, []byte(w.Kind), w.Data, []byte(w.Group)}
		var at int64
		added, err := one(ctx, tx, e.sql.insertTx, args, &revisions[i], &at)
		if err != nil {
			return false, explain("add task", err)
		}
		if !added {
			taken = append(taken, w.Key)
		}
		// time.Since does not contain the suspension, but it contains any wait for a lock.
		if again = again || added && at-now > int64(engine.MaxStale+time.Since(called)); again {
			break
		}
	}
	if taken == nil && !again {
		first := slices.MinFunc(writes, func(a, b engine.Write) int { return cmp.Compare(a.Due, b.Due) })
		return false, explain("add task", e.signalTx(ctx, tx, first.Due, now))
	}
	for i, w := range writes {
		if revisions[i] == 0 {
			continue
		}
		if _, err := one(ctx, tx, e.sql.deleteAtTx, []any{[]byte(w.Key), revisions[i]}, new(int64)); err != nil {
			return false, explain("add task", err)
		}
	}
	if again {
		return true, nil
	}
	return false, &durable.DuplicateKeysError{Keys: taken}
}

// RemoveTaskTx removes the task with the given key in the transaction, as [durable.Scheduler.RemoveTask] does. The
// error wraps durable.ErrTaskKeyNotFound if there is no such task. No run of the task begins after the call unless the
// transaction is rolled back. If a start was confirmed just before, RemoveTaskTx waits as RemoveTask does, and longer than
// necessary if that run has begun.
func (e *Engine) RemoveTaskTx(ctx context.Context, tx Tx, key string) error {
	var wait time.Duration
	removed, err := one(ctx, tx, e.sql.deleteTx, []any{[]byte(key)}, &wait)
	switch {
	case err != nil:
		return explain("remove task", err)
	case !removed:
		return notFound(key)
	}
	return clock.PauseFor(ctx, wait)
}

func notFound(key string) error { return fmt.Errorf("%w: %q", durable.ErrTaskKeyNotFound, key) }

// RescheduleTx is like [durable.Scheduler.Reschedule], but within the transaction: it makes the task's next run due d
// after the call. The run is due at once if d is not positive. The error wraps durable.ErrTaskKeyNotFound if there is
// no task with the key. RescheduleTx waits as RemoveTaskTx does.
func (e *Engine) RescheduleTx(ctx context.Context, tx Tx, key string, d time.Duration) error {
	var stored engine.Stored
	var found, kind, group []byte
	var owner, now int64
	var wait time.Duration
	ok, err := one(ctx, tx, e.sql.getTx, []any{[]byte(key)},
		&found, &stored.Due, &stored.Data, &kind, &stored.Revision, &owner, &stored.Starts, &group,
		&stored.Started, &now, &wait)
	switch {
	case err != nil:
		return explain("reschedule", err)
	case !ok:
		return notFound(key)
	}
	if err := clock.PauseFor(ctx, wait); err != nil {
		return err
	}
	stored.Key, stored.Kind = string(found), string(kind)
	w, err := author.Reschedule(stored, d, now)
	if err != nil {
		return err
	}
	ok, err = e.writeTx(ctx, tx, w)
	if err == nil && !ok {
		return notFound(key) // a rule or trigger of the schema's owner prevented the write
	}
	if err == nil {
		err = e.signalTx(ctx, tx, w.Due, now)
	}
	return explain("reschedule", err)
}

// CompleteTx completes the run in the transaction, as if its handler had returned nil. The handler must return nil
// after the commit. If the transaction is not committed and the handler returns an error, the run fails as it would
// without the call.
//
// The error wraps durable.ErrFenced if the node no longer holds the run, because the task was removed, moved or
// completed, or because another node has taken it over. The transaction must then be rolled back.
func (e *Engine) CompleteTx(ctx context.Context, tx Tx, run durable.Run) error {
	now, err := e.time(ctx, tx)
	if err != nil {
		return explain("complete run", err)
	}
	done, err := e.writeTx(ctx, tx, run.Completion(now))
	if err == nil && !done {
		return fmt.Errorf("%w: run %d of %q", durable.ErrFenced, run.Seq, run.Key)
	}
	return explain("complete run", err)
}

// writeTx performs the write if the task is unchanged, and reports whether it did.
func (e *Engine) writeTx(ctx context.Context, tx Tx, w engine.Write) (done bool, err error) {
	if w.Data == nil {
		return one(ctx, tx, e.sql.deleteAtTx, []any{[]byte(w.Key), w.Revision}, new(int64))
	}
	failing := int64(0)
	if w.Failing {
		failing = 1
	}
	return one(ctx, tx, e.sql.updateTx, []any{[]byte(w.Key), w.Revision, w.Due, w.Data, failing}, new(int64))
}

// one runs a statement and reads the first row of its result. It reports whether there was a row.
func one(ctx context.Context, tx Tx, statement string, args []any, dest ...any) (found bool, err error) {
	rows, err := tx.Query(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	if rows.Next() {
		found = true
		err = rows.Scan(dest...)
	}
	rows.Close()
	return found, errors.Join(err, rows.Err())
}

// txSQL are the statements that run in the user's transaction. Their arguments are only bytes, int64 values and strings,
// which every driver supports.
type txSQL struct {
	notifyTx, now, insertTx, deleteAtTx, deleteTx, getTx, updateTx string
}

func (c config) txSQL() txSQL {
	sql := c.statement
	return txSQL{
		notifyTx: "SELECT " + c.signal("''") + "::text",

		now: sql(`SELECT $now`),
		insertTx: sql(`
INSERT INTO $schema.task (key, due, revision, kind, data, grp)
VALUES ($1, $2, $next, $3, $4, CASE WHEN pg_catalog.octet_length($5::bytea) OPERATOR(pg_catalog.>) 0 THEN $5::bytea END)
ON CONFLICT (key) DO NOTHING RETURNING revision, $now`),
		deleteAtTx: sql(`DELETE FROM $schema.task WHERE key $= $1 AND revision $= $2 RETURNING revision`),
		deleteTx:   sql(`DELETE FROM $schema.task t WHERE t.key $= $1 RETURNING $wait`),
		getTx:      sql(`SELECT $row, $now, $wait FROM $schema.task t WHERE t.key $= $1 FOR NO KEY UPDATE`),
		updateTx: sql(`
UPDATE $schema.task SET due = $3::bigint, data = $4, starts = 0, owner = NULL, revision = $next, failing = CASE WHEN $5::bigint $= 1 THEN $3::bigint END,
	until = NULL
WHERE key $= $1 AND revision $= $2 RETURNING revision`),
	}
}
