// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

var errGoexit = errors.New("handler called runtime.Goexit")

// job is what the wheel runs at the due time.
func (l *live) job(*timewheel.Task) {
	l.begun.Store(true)
	k := l.k
	kind := k.kinds.get(l.rec.kind)
	if kind == nil {
		k.acknowledge(l, nil, errNoHandler)
		return
	}
	k.count.started.Add(1)
	err := errGoexit // unless the handler returns
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("handler panicked: %v", value)
			k.cfg.log.WithField("task", l.rec.key).WithField("stack", string(debug.Stack())).
				Errorf("durable: %v", err)
		}
		k.acknowledge(l, kind, err)
	}()
	err = kind.handler(k.ctx, l.rec.toRun())
}

func (r *record) toRun() Run {
	times := int(r.times)
	if times != Forever {
		times--
	}
	return Run{
		Token:   Token{r.key, r.generation, r.run},
		Kind:    r.kind,
		Payload: r.payload,
		Due:     time.Unix(0, r.grid),
		Times:   times,
		Attempt: int(r.attempts) + 1,
		Missed:  r.missed,
	}
}

// acknowledge tells the keeper what came of a run. Nobody waits for it: until it is durable the task counts as
// running, and has no other run.
func (k *keeper) acknowledge(l *live, of *kind, failure error) {
	now := time.Now().UnixNano()
	k.post(op{do: func(g *group) error {
		if k.live[l.rec.key] != l || g.touched[l.rec.key] != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		switch {
		case failure == nil:
			g.tally.succeeded++
			g.put(l.rec.key, l.rec, l.rec.succeeded(of.missed, now))
		case of == nil || l.rec.attempts+1 >= of.attempts:
			k.park(g, l.rec, of, failure)
		default:
			g.tally.failed++
			next := l.rec.failed(failure)
			next.due = later(now, of.wait(next.attempts))
			g.put(l.rec.key, l.rec, next)
		}
		return nil
	}})
}

// succeeded returns what is left of the task after a run, or nil.
func (r *record) succeeded(policy Missed, now int64) *record {
	if !r.repeats() {
		return nil
	}
	next := *r
	if next.times != Forever {
		next.times--
	}
	next.run++
	next.attempts, next.failure = 0, ""
	next.grid = r.after(r.grid)
	if policy != All && next.grid <= now {
		next.grid = r.after(now)
		next.missed += uint64((next.grid-r.grid)/int64(r.interval)) - 1
	}
	next.due = next.grid
	return &next
}

// failed returns the task after an attempt that failed.
func (r *record) failed(failure error) *record {
	next := *r
	next.attempts++
	next.failure = failure.Error()
	if len(next.failure) > maxFailure {
		next.failure = next.failure[:maxFailure]
	}
	return &next
}

// park keeps the task from running by itself.
func (k *keeper) park(g *group, rec *record, of *kind, failure error) {
	next := rec.failed(failure)
	if of == nil {
		next.attempts = rec.attempts // nobody has tried
	} else {
		g.tally.failed++
	}
	next.due = Never
	g.tally.parked++
	k.cfg.log.WithField("task", rec.key).WithField("kind", rec.kind).WithError(failure).
		Warn("durable: task parked")
	g.put(rec.key, rec, next)
}
