// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/clock"

	"github.com/jackc/pgx/v5"
)

const (
	// signalEvery bounds the signals of a process. Each of them wakes every backend of the database that listens.
	signalEvery = 50 * time.Millisecond

	// signalTimeout is how long a signal may take. Close waits for the last one.
	signalTimeout = time.Second

	// A connection that has brought no signal for checkEvery is checked, which may take checkTimeout. After a failure it is
	// replaced, listenAgain later.
	checkEvery   = 30 * time.Second
	checkTimeout = 5 * time.Second
	listenAgain  = time.Second
)

var (
	errSilent = errors.New("postgres: WithoutSignals is set")
	errPooled = errors.New("postgres: a pooler is between the node and the server")
)

// Listen implements engine.Listener with LISTEN, on a connection that does not count for [WithConnections]. A pooler may not
// support it, so it is used on direct connections only.
func (e *Engine) Listen(ctx context.Context, wake func(freed bool), heard func(error)) {
	tell := func(err error) {
		if heard(err); err == nil {
			e.unheard.Store(nil)
		} else if ctx.Err() == nil {
			e.unheard.Store(&err)
		}
	}
	switch {
	case !e.signalling:
		tell(errSilent)
		return
	case e.pooled:
		tell(errPooled)
		return
	}
	for ctx.Err() == nil {
		tell(e.listen(ctx, wake, tell))
		_ = clock.PauseFor(ctx, listenAgain)
	}
}

// listen listens until the connection fails.
func (e *Engine) listen(ctx context.Context, wake func(freed bool), heard func(error)) error {
	c, err := e.control.Acquire(ctx)
	if err != nil {
		return explain("listen", err)
	}
	conn := c.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, e.sql.listen); err != nil {
		return explain("listen", err)
	}
	heard(nil)
	wake(true) // there may be earlier commits
	for {
		quiet, cancel := context.WithTimeout(ctx, checkEvery)
		signal, err := conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil:
			wake(signal.Payload == freedSignal)
			continue
		case ctx.Err() == nil && !conn.IsClosed():
			err = e.check(ctx, conn)
		}
		if err != nil {
			return explain("listen", err)
		}
	}
}

// lookNotes is the number of notes that Look reads with the rest. There are few: one for the settings, and one for each
// question that nodes have for each other.
const lookNotes = 100

// Look implements engine.Listener. It is one request with two transactions, because the members are read when the renewal
// has been committed.
func (e *Engine) Look(ctx context.Context, by engine.MemberID, report []byte, r engine.LookRequest) (l engine.Looked, err error) {
	due := func(row pgx.Row) error { return row.Scan(nil, nil, &l.Due) }
	l.Members, l.Now, err = e.renewAnd(ctx, by, report, func(b *pgx.Batch) {
		if !e.direct {
			b.Queue(e.sql.set)
		}
		if len(r.Kinds) > fewKinds {
			b.Queue(e.sql.probe, int64(by), engine.None, r.Until).QueryRow(due)
		} else {
			b.Queue(e.sql.look, int64(by), names(r.Kinds), engine.None, r.Until).QueryRow(due)
		}
		b.Queue(e.sql.notes, []byte(r.Notes), afterNames, false, lookNotes).Query(func(rows pgx.Rows) (err error) {
			l.Notes, err = pgx.CollectRows(rows, scan)
			return err
		})
	})
	if err != nil || len(l.Notes) < lookNotes {
		return l, err
	}
	for note, err := range e.walkNotes(ctx, engine.Range{From: l.Notes[lookNotes-1].Key + "\x00"}) {
		if err != nil {
			return l, err
		}
		l.Notes = append(l.Notes, note)
	}
	return l, nil
}

// check returns an error unless the server answers on the connection, and the engine may still use it.
func (e *Engine) check(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return e.primary.validate(ctx, conn.PgConn())
}

// freedSignal is the payload of a signal about tasks that a member has held.
const freedSignal = "freed"

// signal makes the nodes that listen look for tasks, soon. freed is as in engine.Listener.
func (e *Engine) signal(freed bool) {
	if freed {
		e.freed.Store(true)
	}
	select {
	case e.signals <- struct{}{}:
	default:
	}
}

// signalSoon calls signal once if committed tasks are due soon, and the member does not hold them.
func (e *Engine) signalSoon(batches []engine.Batch, results []engine.Result) {
	if !e.signalling {
		return
	}
	until := time.Now().UnixNano() + int64(engine.SignalAhead)
	for i, r := range results {
		for j, written := range r.Written {
			w := batches[i][j]
			if !w.Note && w.Data != nil && !written.Held && w.Due <= max(until, w.Now+int64(engine.SignalAhead)) {
				e.signal(false)
				return
			}
		}
	}
}

// signalTx sends the signal in a user's transaction, if the task is due soon.
func (e *Engine) signalTx(ctx context.Context, tx Tx, due, now int64) error {
	if !e.signalling || due > now+int64(engine.SignalAhead) {
		return nil
	}
	var none string
	_, err := one(ctx, tx, e.sql.notifyTx, nil, &none)
	return err
}

// keepSignalling sends signals until ctx is done, and then the last one. A signal that is lost costs the nodes a second.
func (e *Engine) keepSignalling(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-e.signals:
			e.notify()
			_ = clock.PauseFor(ctx, signalEvery)
		case <-ctx.Done():
		}
	}
	select {
	case <-e.signals:
		e.notify()
	default:
	}
}

// notify sends a signal.
func (e *Engine) notify() {
	payload := ""
	if e.freed.Swap(false) {
		payload = freedSignal
	}
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	_, _ = e.control.Exec(ctx, e.sql.notify, payload)
}
