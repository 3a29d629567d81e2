// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"

	"github.com/jackc/pgx/v5"
)

// scan reads a task from a row.
func scan(row pgx.CollectableRow) (s engine.Stored, err error) {
	var key, kind, group []byte
	err = row.Scan(&key, &s.Due, &s.Data, &kind, &s.Revision, &s.Owner, &s.Starts, &group, &s.Started)
	s.Key, s.Kind, s.Group = string(key), string(kind), string(group)
	return s, err
}

// unlocked calls the function read until no lock blocks it. Reads share the connections for commits, which wait for a
// lock no longer than lockTimeout.
func unlocked(ctx context.Context, read func() error) error {
	for canceled := 0; ; {
		err := read()
		if canceled < maxCanceled && isCanceled(ctx, err) {
			canceled++
			continue
		}
		if !isLock(err) {
			return err
		}
		if done := clock.PauseFor(ctx, lockTimeout); done != nil {
			return errors.Join(done, err)
		}
	}
}

// Get reads the tasks with the given keys in one statement. See engine.Engine.
func (e *Engine) Get(ctx context.Context, keys ...string) (found []engine.Stored, err error) {
	err = unlocked(ctx, func() error {
		b := &pgx.Batch{}
		if len(keys) > 1 { // a single key has the same plan without the settings
			b = e.batch()
		}
		b.Queue(e.sql.get, names(keys)).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, scan)
			return err
		})
		return e.verbs.SendBatch(ctx, b).Close()
	})
	return found, explain("get", err)
}

// A walk reads pages of at most pageRows rows. A page of tasks ends with the task that reaches pageBytes bytes. Notes are
// small, and their pages have about pageBytes bytes.
const (
	firstRows = 64 // rows in the first page
	pageRows  = 1024
	pageBytes = 4 << 20
)

// Walk reads one page at a time, and uses no connection while the caller processes that page. The tasks held by a
// member form a single page. See engine.Engine.
func (e *Engine) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	from := []any{[]byte(over.From)}
	switch over.Order {
	case engine.ByDue:
		first := []any{over.After.Due, []byte(over.After.Key), over.Until}
		return e.walk(ctx, e.verbs, e.sql.due, first, func(last engine.Stored) []any {
			return []any{last.Due, []byte(last.Key), over.Until}
		})
	case engine.ByKey:
		return e.walk(ctx, e.verbs, e.sql.byKey, from, keyAfter)
	case engine.Failing:
		return e.walk(ctx, e.verbs, e.sql.failing, from, keyAfter)
	case engine.Notes:
		return e.walkNotes(ctx, over)
	case engine.Held:
		return e.walkHeld(ctx, over.By)
	}
	return func(yield func(engine.Stored, error) bool) {
		yield(engine.Stored{}, fmt.Errorf("postgres: walk in the unknown order %d", over.Order))
	}
}

func (e *Engine) walkHeld(ctx context.Context, by engine.MemberID) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		var held []engine.Stored
		b := e.batch()
		var st status
		b.Queue(e.sql.held, int64(by)).Query(func(rows pgx.Rows) (err error) {
			held, err = pgx.CollectRows(rows, scan)
			return err
		})
		e.queueStatus(b, by, &st)
		if _, err := e.as(ctx, by, "read claims", b, &st); err != nil {
			yield(engine.Stored{}, err)
			return
		}
		for _, s := range held {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func keyAfter(last engine.Stored) []any { return []any{[]byte(last.Key + "\x00")} }

// walk reads one page after another. The arguments of the statement are those of the page, followed by the maximum
// number of tasks. Given the last task of a page, next returns the arguments of the page that follows.
func (e *Engine) walk(ctx context.Context, on sender, statement string, page []any,
	next func(last engine.Stored) []any,
) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		args := page
		for limit := firstRows; ; {
			var tasks []engine.Stored
			err := unlocked(ctx, func() error {
				b := e.batch()
				b.Queue(statement, append(slices.Clone(args), limit)...).Query(func(rows pgx.Rows) (err error) {
					tasks, err = pgx.CollectRows(rows, scan)
					return err
				})
				return on.SendBatch(ctx, b).Close()
			})
			if err != nil {
				yield(engine.Stored{}, explain("walk", err))
				return
			}
			size, bytes := 1, 0
			for _, s := range tasks {
				size += len(s.Key) + len(s.Data)
				bytes += len(s.Data)
				if !yield(s, nil) {
					return
				}
			}
			if len(tasks) < limit && bytes < pageBytes {
				return
			}
			args = next(tasks[len(tasks)-1])
			limit = min(max(pageBytes*len(tasks)/size, 1), pageRows)
		}
	}
}

// Count counts the tasks of each kind. The server reads the whole table, which takes about 0.3 s per million tasks. See
// engine.Counter.
func (e *Engine) Count(ctx context.Context) (kinds []engine.KindCount, err error) {
	err = unlocked(ctx, func() error {
		rows, err := e.verbs.Query(ctx, e.sql.count)
		if err != nil {
			return err
		}
		kinds, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (k engine.KindCount, err error) {
			var kind []byte
			err = row.Scan(&kind, &k.Tasks, &k.Failing, &k.Parked, &k.Paused)
			k.Kind = string(kind)
			return k, err
		})
		return err
	})
	return kinds, explain("count tasks", err)
}

// Health reports conditions that may slow the engine down, and the failures that an acknowledged task survives under
// the settings of the engine's role and database. If a table of the schema is UNLOGGED, Unflushed is true and Replicated
// is false, because a crash empties the table.
//
// With synchronous_commit = remote_write, Replicated is true. The standby then has the task in memory, and the task is
// lost only if both machines are lost. Without a connected standby, Replicated is false. If the role is not a member of
// pg_read_all_stats, Health omits Standbys and the transactions of other roles, and any standby counts towards
// Replicated.
func (e *Engine) Health(ctx context.Context) (h engine.Health, err error) {
	var age int64
	err = unlocked(ctx, func() error {
		return e.verbs.QueryRow(ctx, e.sql.health).Scan(&age, &h.DeadRows, &h.NoVacuum, &h.Size, &h.Unflushed, &h.Replicated,
			&h.Standbys)
	})
	h.Refused = e.primary.refusals()
	if err := e.unheard.Load(); err != nil {
		h.Unheard = (*err).Error()
	}
	h.OldestTransaction = max(time.Duration(age)*time.Microsecond, 0)
	return h, explain("read health", err)
}

// text returns s in a form that PostgreSQL can store.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
