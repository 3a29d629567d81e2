// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"
)

// runTask does the run of the task, unless it was removed, replaced or moved in the last moment.
func (k *keeper) runTask(l *live) {
	if !l.state.CompareAndSwap(waits, begun) {
		return
	}
	kind := k.kinds.get(l.rec.kind)
	if kind == nil {
		k.leave(l)
		return
	}
	k.running.add(l)
	k.count.start(l.rec)
	if l.overdue {
		k.caughtUp.note()
	}
	kind.attempt(k.ctx, l.rec.toRun(kind, 0), &k.cfg, func(failure string) *record {
		next := l.rec.after(failure, kind, time.Now().UnixNano(), rand.Float64())
		k.acknowledge(l, failure, next)
		return next
	})
}

// attempt calls the handler, and then end with why the run has failed, or nothing. end returns what becomes of
// the task. It is called whatever the handler does, and before the observers and the logger, which may do as
// they like, too.
func (k *kind) attempt(ctx context.Context, run Run, cfg *config, end func(failure string) *record) {
	began := time.Now()
	why := "handler called runtime.Goexit" // unless it returns
	k.started.Add(1)
	defer func() {
		value := recover()
		ended := time.Now()
		k.took(ended.Sub(began))
		if value != nil {
			why = explain(func() string { return fmt.Sprint("handler panicked: ", value) })
		}
		parked := k.note(why, end(why))
		if len(cfg.observers) > 0 {
			a := Attempt{
				Token: run.Token, Kind: run.Kind, Attempt: run.Attempt, Due: run.rec.attemptDue(),
				Started: began, Ended: ended, Failure: why, Parked: parked,
			}
			for _, observe := range cfg.observers {
				observe(a)
			}
		}
		if value != nil {
			cfg.log.WithField("task", run.Key).WithField("stack", string(debug.Stack())).Error("durable: " + why)
		}
	}()
	if err := k.handler(ctx, run); err != nil {
		why = explain(err.Error)
	} else {
		why = ""
	}
}

// note counts an attempt, and reports whether the task is parked after it.
func (k *kind) note(failure string, next *record) (parked bool) {
	if failure == "" {
		k.succeeded.Add(1)
		return false
	}
	k.failed.Add(1)
	if parked = next.due == never; parked {
		k.parked.Add(1)
	}
	return parked
}

// attemptDue returns when the attempt was due: the run, or after a failure the attempt.
func (r *record) attemptDue() time.Time {
	if r.failing() {
		return time.Unix(0, r.due)
	}
	return time.Unix(0, r.grid)
}

// explain returns what the user's error or value says about itself, as much as is kept. It is called on the
// worker, for it may do as it likes.
func explain(say func() string) (said string) {
	defer func() {
		if recover() != nil {
			said = "it failed, and panicked when it was asked why"
		}
	}()
	said = strings.ToValidUTF8(say(), "\uFFFD")
	for n := min(len(said), maxFailure); ; n-- {
		if n == len(said) || utf8.RuneStart(said[n]) {
			said = said[:n]
			break
		}
	}
	if said == "" {
		return "it failed, and does not say why"
	}
	return said
}

func (r *record) toRun(of *kind, fence int64) Run {
	times := int(r.times)
	if times != Forever {
		times--
	}
	return Run{
		Token:   r.token(),
		Kind:    r.kind,
		Payload: r.payload,
		Due:     time.Unix(0, r.grid),
		Times:   times,
		Attempt: int(r.attempts) + 1,
		Missed:  r.missed,
		Trace:   r.trace,
		Fence:   fence,
		rec:     r,
		of:      of,
	}
}

// leave has the keeper set the task aside because its kind has no handler, or run it if it has one by then.
func (k *keeper) leave(l *live) {
	_ = k.post(op{do: func(g *group) error {
		key := l.rec.key
		if k.live[key] != l || g.touched(key) != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		if k.kinds.get(l.rec.kind) != nil {
			k.place(key, l.rec)
			return nil
		}
		delete(k.live, key)
		if k.passed(l.rec.position()) { // or the overdue feed will read it again
			k.setAside(l.rec)
		}
		return nil
	}})
}

// acknowledge sends the keeper the result of a run: why it failed, or nothing, and what becomes of the task.
// Nothing waits for it: until it is durable the task counts as running, and has no other run.
func (k *keeper) acknowledge(l *live, failure string, next *record) {
	_ = k.post(op{size: l.rec.size(), do: func(g *group) error {
		if k.live[l.rec.key] != l || g.touched(l.rec.key) != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		t := attempted(failure, next)
		g.tally.add(t)
		if t.parked > 0 {
			g.parked = next
		}
		g.put(l.rec.key, l.rec, next)
		return nil
	}})
}
