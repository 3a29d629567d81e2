// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
)

// scan reads a task. further is read of what follows it in the row.
func scan(row pgx.CollectableRow, further ...any) (s engine.Stored, err error) {
	var key, kind, group []byte
	err = row.Scan(append([]any{&key, &s.Due, &s.Data, &kind, &s.Revision, &s.Owner, &s.Starts, &group, &s.Started},
		further...)...)
	s.Key, s.Kind, s.Group = string(key), string(kind), string(group)
	return s, err
}

func scanOne(row pgx.CollectableRow) (engine.Stored, error) { return scan(row) }

// Get reads the task of the key. See engine.Engine.
func (e *Engine) Get(ctx context.Context, key string) (s engine.Stored, ok bool, err error) {
	rows, err := e.verbs.Query(ctx, e.sql.get, []byte(key))
	if err != nil {
		return s, false, explain("get", err)
	}
	s, err = pgx.CollectExactlyOneRow(rows, scanOne)
	if errors.Is(err, pgx.ErrNoRows) {
		return engine.Stored{}, false, nil
	}
	return s, err == nil, explain("get", err)
}

// GetMany reads the tasks of the keys with one statement. See engine.Engine.
func (e *Engine) GetMany(ctx context.Context, keys []string) (found []engine.Stored, err error) {
	b := e.batch()
	b.Queue(e.sql.getMany, names(keys)).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, scanOne)
		return err
	})
	err = e.verbs.SendBatch(ctx, b).Close()
	return found, explain("get", err)
}

// A walk reads pages of about pageBytes, and of pageRows at most.
const (
	firstRows = 64 // of which each may have more than a MiB
	pageRows  = 1024
	pageBytes = 4 << 20
)

// Due reads a page of tasks at a time. It uses no connection while the caller has the tasks. See
// engine.Engine.
func (e *Engine) Due(ctx context.Context, after engine.Position, until int64,
) iter.Seq2[engine.Stored, error] {
	return e.walk(ctx, e.sql.due, []any{after.Due, []byte(after.Key), until}, func(last engine.Stored) []any {
		return []any{last.Due, []byte(last.Key), until}
	})
}

// ByKey reads as Due does. See engine.Engine.
func (e *Engine) ByKey(ctx context.Context, from string) iter.Seq2[engine.Stored, error] {
	return e.walk(ctx, e.sql.byKey, []any{[]byte(from)}, keyAfter)
}

// Failing reads as Due does. See engine.Engine.
func (e *Engine) Failing(ctx context.Context, from string) iter.Seq2[engine.Stored, error] {
	return e.walk(ctx, e.sql.failing, []any{[]byte(from)}, keyAfter)
}

func keyAfter(last engine.Stored) []any { return []any{[]byte(last.Key + "\x00")} }

// walk reads page after page. The statement has the arguments of a page, and then how many tasks it is to read
// at most. next returns the arguments after the last task of a page.
func (e *Engine) walk(ctx context.Context, statement string, page []any, next func(last engine.Stored) []any,
) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		args := page
		for limit := firstRows; ; {
			var tasks []engine.Stored
			b := e.batch()
			b.Queue(e.sql.setOrdered)
			b.Queue(statement, append(slices.Clone(args), limit)...).Query(func(rows pgx.Rows) (err error) {
				tasks, err = pgx.CollectRows(rows, scanOne)
				return err
			})
			if err := e.verbs.SendBatch(ctx, b).Close(); err != nil {
				yield(engine.Stored{}, explain("read tasks", err))
				return
			}
			size := 1
			for _, s := range tasks {
				size += len(s.Key) + len(s.Data)
				if !yield(s, nil) {
					return
				}
			}
			if len(tasks) < limit {
				return
			}
			args = next(tasks[len(tasks)-1])
			limit = min(max(pageBytes*len(tasks)/size, 1), pageRows)
		}
	}
}

// Census counts the tasks: the server reads all of them for it. See engine.Engine.
func (e *Engine) Census(ctx context.Context) ([]engine.KindCount, error) {
	rows, err := e.verbs.Query(ctx, e.sql.census)
	if err != nil {
		return nil, explain("count tasks", err)
	}
	kinds, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k engine.KindCount, err error) {
		var kind []byte
		err = row.Scan(&kind, &k.Tasks, &k.Failing, &k.Parked, &k.Paused)
		k.Kind = string(kind)
		return k, err
	})
	return kinds, explain("count tasks", err)
}

// Health returns what may slow the engine down. The age of other roles' transactions is left out, unless the role of
// the engine is a member of pg_read_all_stats.
func (e *Engine) Health(ctx context.Context) (h engine.Health, err error) {
	var age int64
	err = e.verbs.QueryRow(ctx, e.sql.health).Scan(&age, &h.DeadRows, &h.Size)
	h.OldestTransaction = max(time.Duration(age)*time.Microsecond, 0)
	return h, explain("read health", err)
}

// text returns s as PostgreSQL can keep it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
