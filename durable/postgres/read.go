// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable"
)

// scan reads a task. further is read of what follows it in the row.
func scan(row pgx.CollectableRow, further ...any) (s durable.Stored, err error) {
	var key, kind []byte
	err = row.Scan(append([]any{&key, &s.Due, &s.Data, &kind, &s.Revision, &s.Owner, &s.Starts}, further...)...)
	s.Key, s.Kind = string(key), string(kind)
	return s, err
}

func scanOne(row pgx.CollectableRow) (durable.Stored, error) { return scan(row) }

// Get reads the task of the key. See durable.Engine.
func (e *Engine) Get(ctx context.Context, key string) (s durable.Stored, ok bool, err error) {
	rows, err := e.verbs.Query(ctx, e.sql.get, []byte(key))
	if err != nil {
		return s, false, explain("get", err)
	}
	s, err = pgx.CollectExactlyOneRow(rows, scanOne)
	if errors.Is(err, pgx.ErrNoRows) {
		return durable.Stored{}, false, nil
	}
	return s, err == nil, explain("get", err)
}

// A walk reads pages of about pageBytes, and of pageRows at most.
const (
	firstRows = 64 // of which each may have more than a MiB
	pageRows  = 1024
	pageBytes = 4 << 20
)

// Due reads a page of tasks at a time. It uses no connection while the caller has the tasks. See
// durable.Engine.
func (e *Engine) Due(ctx context.Context, after durable.Position, until int64,
) iter.Seq2[durable.Stored, error] {
	return func(yield func(durable.Stored, error) bool) {
		for limit := firstRows; ; {
			var page []durable.Stored
			b := e.batch()
			b.Queue(e.sql.setOrdered)
			b.Queue(e.sql.due, after.Due, []byte(after.Key), until, limit).Query(func(rows pgx.Rows) (err error) {
				page, err = pgx.CollectRows(rows, scanOne)
				return err
			})
			if err := e.verbs.SendBatch(ctx, b).Close(); err != nil {
				yield(durable.Stored{}, explain("read due tasks", err))
				return
			}
			size := 1
			for _, s := range page {
				size += len(s.Key) + len(s.Data)
				if !yield(s, nil) {
					return
				}
			}
			if len(page) < limit {
				return
			}
			after = page[len(page)-1].Position()
			limit = min(max(pageBytes*len(page)/size, 1), pageRows)
		}
	}
}

// Len counts the tasks: the server reads all of them for it. See durable.Engine.
func (e *Engine) Len(ctx context.Context) (n int, err error) {
	err = e.verbs.QueryRow(ctx, e.sql.count).Scan(&n)
	return n, explain("count tasks", err)
}

// Health returns what may slow the engine down. The age of other roles' transactions is left out, unless the role of
// the engine is a member of pg_read_all_stats.
func (e *Engine) Health(ctx context.Context) (h durable.EngineHealth, err error) {
	var age int64
	err = e.verbs.QueryRow(ctx, e.sql.health).Scan(&age, &h.DeadRows, &h.Size)
	h.OldestTransaction = max(time.Duration(age)*time.Microsecond, 0)
	return h, explain("read health", err)
}

// text returns s as PostgreSQL can keep it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
