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

	"github.com/sirupsen/logrus"
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
	k.count.started.Add(1)
	run := l.rec.toRun(kind, 0)
	kind.attempt(k.ctx, run, k.cfg.log, k.cfg.observed(l.rec, run, kind, func(failure string) {
		k.acknowledge(l, kind, failure)
	}))
}

// attempt calls the handler, and then end with why the run has failed, or nothing. end is called whatever the
// handler does, and before the logger, which may do as it likes, too.
func (k *kind) attempt(ctx context.Context, run Run, log logrus.FieldLogger, end func(failure string)) {
	began := time.Now()
	why := "handler called runtime.Goexit" // unless it returns
	defer func() {
		value := recover()
		k.took(time.Since(began))
		if value != nil {
			why = explain(func() string { return fmt.Sprint("handler panicked: ", value) })
		}
		end(why)
		if value != nil {
			log.WithField("task", run.Key).WithField("stack", string(debug.Stack())).Error("durable: " + why)
		}
	}()
	if err := k.handler(ctx, run); err != nil {
		why = explain(err.Error)
	} else {
		why = ""
	}
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
		Token:   Token{r.key, r.generation, r.seq},
		Kind:    r.kind,
		Payload: r.payload,
		Due:     time.Unix(0, r.grid),
		Times:   times,
		Attempt: int(r.attempts) + 1,
		Missed:  r.missed,
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

// acknowledge sends the keeper the result of a run: why it failed, or nothing. Nothing waits for it: until it
// is durable the task counts as running, and has no other run.
func (k *keeper) acknowledge(l *live, of *kind, failure string) {
	now := time.Now().UnixNano()
	_ = k.post(op{size: l.rec.size(), do: func(g *group) error {
		if k.live[l.rec.key] != l || g.touched(l.rec.key) != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		next := l.rec.after(failure, of, now, rand.Float64())
		t := attempted(failure, next)
		g.tally.add(t)
		if t.parked > 0 {
			g.parked = next
		}
		g.put(l.rec.key, l.rec, next)
		return nil
	}})
}
