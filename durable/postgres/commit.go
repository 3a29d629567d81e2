// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

// Commit applies all task batches in one transaction and all note batches in another. If a lock blocks a transaction,
// Commit commits its batches in smaller groups. See engine.Engine.
func (e *Engine) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	if err := valid.Batches(batches); err != nil {
		return nil, err
	}
	results := make([]engine.Result, len(batches))
	var tasks, notes []int
	for i, batch := range batches {
		if len(batch) > 0 && batch[0].Note {
			notes = append(notes, i)
		} else {
			tasks = append(tasks, i)
		}
	}
	g := group{e: e, by: by, batches: batches, results: results, called: time.Now()}
	err := g.commit(ctx, tasks)
	if err == nil {
		err = g.commit(ctx, notes)
	}
	if len(batches) == 1 && results[0].Busy {
		err = g.wait(ctx)
	}
	e.signalSoon(batches, results)
	switch {
	case err == nil:
		return results, nil
	case !g.some && notDone(err):
		return nil, fmt.Errorf("%w: %w", engine.ErrNotDone, explain("commit", err))
	}
	return nil, explain("commit", err)
}

// A group holds the batches of one call to Commit. Its methods refer to batches by index. The batches of one method
// call are either all task batches or all note batches.
type group struct {
	e       *Engine
	by      engine.MemberID
	batches []engine.Batch
	results []engine.Result

	called   time.Time
	some     bool // at least one transaction was committed
	canceled int  // how many canceled transactions were repeated
}

// latest returns the latest time at which the server may execute the batches: engine.MaxStale after the earliest Now of
// their writes. The time since the call is added, by the clock that stands still while the machine is suspended.
func (g *group) latest(these []int) int64 {
	latest := int64(math.MaxInt64)
	for _, i := range these {
		for _, w := range g.batches[i] {
			if w.Now != 0 {
				latest = min(latest, w.Now+int64(engine.MaxStale+time.Since(g.called)))
			}
		}
	}
	return latest
}

// commit commits the batches together. If a lock blocks them, commit splits them in half and commits each half
// separately, until it has isolated each blocked batch.
func (g *group) commit(ctx context.Context, these []int) error {
	for len(these) > 0 {
		again, err := g.try(ctx, these)
		switch {
		case err == nil:
			these = again
		case g.canceled < maxCanceled && isCanceled(ctx, err):
			g.canceled++
		case !isLock(err):
			return err
		case len(these) == 1:
			g.results[these[0]] = engine.Result{Busy: true}
			return nil
		default:
			half := len(these) / 2
			if err := g.commit(ctx, these[:half]); err != nil {
				return err
			}
			these = these[half:]
		}
	}
	return nil
}

// isLock reports whether a statement failed because of a lock timeout or a deadlock.
func isLock(err error) bool { return is(err, "55P03", "40P01") }

// maxCanceled is how often one call of Commit, Get or another read is repeated because of isCanceled. The limit is for
// a statement that exceeds a statement_timeout, which has the same error code.
const maxCanceled = 3

// isCanceled reports whether the server has canceled a statement that the caller still wants. Nothing of it was done.
// A server may act late on the request to cancel a statement, when its pooler has given the session to another client.
func isCanceled(ctx context.Context, err error) bool { return is(err, "57014") && ctx.Err() == nil }

// wait commits the group's only batch once no lock blocks it. While it waits, it rarely uses a connection, and all
// waiting commits share a few connections.
func (g *group) wait(ctx context.Context) error {
	for pause := lockTimeout; g.results[0].Busy; pause = min(2*pause, 20*lockTimeout) {
		if clock.PauseFor(ctx, pause) != nil {
			return locked(ctx, g.batches[0])
		}
		select {
		case g.e.waiting <- struct{}{}:
		case <-ctx.Done():
			return locked(ctx, g.batches[0])
		}
		err := g.commit(ctx, []int{0})
		<-g.e.waiting
		if err != nil {
			return err
		}
	}
	return nil
}

func locked(ctx context.Context, batch engine.Batch) error {
	return fmt.Errorf("%w: another transaction has locked key %q, or one of the %d keys: %w", engine.ErrNotDone,
		batch[0].Key, len(batch), ctx.Err())
}

// try commits the batches together and sets their results. It returns the batches that must be committed again.
func (g *group) try(ctx context.Context, these []int) (again []int, err error) {
	statement, args, single := g.arguments(these)
	if single {
		conn, err := g.e.verbs.Acquire(ctx)
		if err != nil {
			return nil, errEarly{err}
		}
		defer conn.Release()
		writes, late, err := g.write(ctx, conn, statement, args)
		if err != nil {
			return nil, err
		}
		if late != 0 {
			g.refuse(these, late)
			return nil, nil
		}
		g.some = true
		again, _ = g.settle(these, writes)
		return again, nil
	}
	again, err = g.tryWhole(ctx, these, statement, args)
	g.some = g.some || err == nil
	return again, err
}

// refuse sets the results of batches that came too late.
func (g *group) refuse(these []int, now int64) {
	for _, i := range these {
		g.results[i] = engine.Result{Late: now}
	}
}

// tryWhole is like try, but for batches of several writes. It does not commit the transaction if a batch was done only
// in part.
func (g *group) tryWhole(ctx context.Context, these []int, statement string, args []any,
) (again []int, err error) {
	tx, err := g.e.verbs.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, errEarly{err}
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	writes, late, err := g.write(ctx, tx, statement, args)
	if err != nil {
		return nil, errEarly{err}
	}
	if late != 0 {
		g.refuse(these, late)
		return nil, nil
	}
	again, whole := g.settle(these, writes)
	if !whole {
		return slices.DeleteFunc(slices.Clone(these), func(i int) bool { return g.results[i].Unmet != nil || g.results[i].Wait > 0 }), nil
	}
	return again, tx.Commit(ctx)
}

// errEarly is an error that occurred before the COMMIT of a transaction was sent.
type errEarly struct{ error }

func (e errEarly) Unwrap() error { return e.error }

// notDone reports whether a transaction that failed with the error certainly had no effect. It does not ask pgx whether
// the error is safe to retry, because pgx may say so for a commit whose response was lost.
func notDone(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, new(errEarly)) || errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// arguments returns the statement for the batches and its arguments, and reports whether each batch has at most one
// write.
func (g *group) arguments(these []int) (statement string, args []any, single bool) {
	var (
		keys, kinds, groups, datas [][]byte
		batches, conditions        []int32
		revisions, dues, begun     []int64
		holds, failing             []bool
	)
	single = true
	additions, removals := true, true
	for _, i := range these {
		single = single && len(g.batches[i]) <= 1
		for _, w := range g.batches[i] {
			additions = additions && w.Data != nil && w.If == engine.IfAbsent && !w.Failing
			removals = removals && w.Data == nil && (w.If == engine.IfUnchanged || w.If == engine.IfPresent)
			keys = append(keys, []byte(w.Key))
			batches = append(batches, int32(i))
			conditions = append(conditions, int32(w.If))
			revisions = append(revisions, w.Revision)
			dues = append(dues, w.Due)
			kinds = append(kinds, []byte(w.Kind))
			groups = append(groups, []byte(w.Group))
			datas = append(datas, w.Data)
			holds = append(holds, w.Hold)
			failing = append(failing, w.Failing)
			begun = append(begun, w.Begun)
		}
	}
	if first := g.batches[these[0]]; len(first) > 0 && first[0].Note {
		return g.e.sql.commitNotes, []any{keys, batches, conditions, revisions, datas}, single
	}
	if single && additions {
		return g.e.sql.add, []any{keys, dues, kinds, datas, holds, groups, int64(g.by), g.latest(these)}, true
	}
	if single && removals {
		return g.e.sql.remove, []any{keys, conditions, revisions, begun}, true
	}
	args = []any{keys, batches, conditions, revisions, dues, kinds, datas, holds, int64(g.by), failing, groups, g.latest(these), begun}
	return g.e.sql.commit, args, single
}

// A write is the outcome of one engine.Write: it was done, its condition was unmet, a run of its task may begin, or nothing.
type write struct {
	n           int // the position of the write in the statement, from 1
	unmet, done bool
	wait        time.Duration // as in engine.Result
	engine.Written
}

// write runs the statement and returns the outcomes in the order of its writes. late is the server's time if the writes
// came too late, and otherwise 0.
func (g *group) write(ctx context.Context, on sender, statement string, args []any) (writes []write, late int64, err error) {
	writes = make([]write, len(args[0].([][]byte)))
	b := g.e.batch()
	if !g.e.direct {
		b.Queue(g.e.sql.setLockTimeout)
	}
	b.Queue(statement, args...).Query(func(rows pgx.Rows) error {
		var w write
		into := []any{&w.n, &w.unmet, &w.done, &w.Revision, &w.Held, &w.Replaced, &w.wait}
		_, err := pgx.ForEachRow(rows, into, func() error {
			if w.n == 0 {
				late = w.Revision
			} else if !writes[w.n-1].done {
				writes[w.n-1] = w
			}
			return nil
		})
		return err
	})
	err = on.SendBatch(ctx, b).Close()
	return writes, late, err
}

// A sender is a pool or a transaction. A batch sent to a pool is its own transaction, which has been committed when
// Close returns nil.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// settle sets the results of the batches. It returns the batches that are neither done nor refused, and reports whether every
// batch was done entirely or not at all.
func (g *group) settle(these []int, writes []write) (again []int, whole bool) {
	whole = true
	for _, i := range these {
		own := writes[:len(g.batches[i])]
		writes = writes[len(own):]
		var r engine.Result
		done := 0
		for j, w := range own {
			if w.unmet {
				r.Unmet = append(r.Unmet, g.batches[i][j].Key)
			}
			r.Wait = max(r.Wait, w.wait)
			if w.done {
				done++
			}
			r.Written = append(r.Written, w.Written)
		}
		if done < len(own) {
			r.Written = nil
			whole = whole && done == 0
			if r.Unmet != nil {
				r.Wait = 0
			} else if r.Wait == 0 {
				again = append(again, i)
			}
		}
		g.results[i] = r
	}
	return again, whole
}
