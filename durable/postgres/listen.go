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

	// A connection that has brought no signal for checkEvery is checked, which may take signalTimeout. After a failure it is
	// replaced, listenAgain later.
	checkEvery    = 30 * time.Second
	listenAgain   = time.Second
	signalTimeout = 5 * time.Second
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
			err = check(ctx, conn)
		}
		if err != nil {
			return explain("listen", err)
		}
	}
}

// check reports whether the server answers on the connection.
func check(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	return conn.Ping(ctx)
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

// signalSoon calls signal if one of the committed tasks is due soon, and the member does not hold it.
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

// keepSignalling sends signals until ctx is done. A signal that is lost costs the nodes a second.
func (e *Engine) keepSignalling(ctx context.Context) {
	for {
		select {
		case <-e.signals:
		case <-ctx.Done():
			return
		}
		payload := ""
		if e.freed.Swap(false) {
			payload = freedSignal
		}
		call, cancel := context.WithTimeout(ctx, signalTimeout)
		_, _ = e.control.Exec(call, e.sql.notify, payload)
		cancel()
		if clock.PauseFor(ctx, signalEvery) != nil {
			return
		}
	}
}
