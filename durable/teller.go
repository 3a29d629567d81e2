// SPDX-License-Identifier: MIT

package durable

import (
	"sync"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A teller counts, logs and records how runs end, and calls the observers. It says that a task was parked, that a run was
// given up or that a run expired only once this has been stored. No worker waits for that, so the worker leaves these
// attempts to the teller. The observers may block, so the teller calls them on a separate goroutine. There is at most one
// such goroutine, and it exists only while there is something to tell.
type teller struct {
	cfg    config
	now    func() int64
	report *node.Reporter

	mu      sync.Mutex // protects the fields below
	waiting []Attempt
	quiet   *sync.Cond // signals that busy is false
	busy    bool       // the goroutine exists
}

func newTeller(cfg config, n *node.Node) *teller {
	t := &teller{cfg: cfg, now: n.Now, report: n.Reporter()}
	t.quiet = sync.NewCond(&t.mu)
	return t
}

// attempted completes an attempt whose outcome does not depend on whether its result is stored.
func (t *teller) attempted(k *kind, a Attempt, rec *task.Record, note string) {
	k.keepAttempt(a, rec, note)
	for _, observe := range t.cfg.observers {
		observe(a)
	}
}

// ended returns the result of an attempt that parks its task, or with which its run is given up. rec is the task before
// the attempt.
func (t *teller) ended(k *kind, a Attempt, rec *task.Record, r node.Result) node.Result {
	r.Settled = func(stored bool) {
		if stored {
			a.Parked, a.GivenUp = r.Tally.Parked > 0, r.Tally.GivenUp > 0
			t.last(k, r)
		}
		k.keepAttempt(a, rec, a.Note)
		t.observe(a)
	}
	return r
}

// Interrupted implements node.Runner.
func (k *kind) Interrupted(rec, next *task.Record, starts int) node.Result {
	r := node.Result{Next: next}
	if r.Tally.End(rec, next); r.Tally.IsLast() {
		r.Also = k.also(next)
	}
	r.Settled = func(stored bool) {
		if stored {
			k.interrupted.Add(uint64(starts))
			if r.Tally.IsLast() {
				k.tell.last(k, r)
			}
			k.keepEnd(rec, task.Past{
				Parked: r.Tally.Parked > 0, GivenUp: r.Tally.GivenUp > 0, Due: rec.Grid,
				Attempt: int(rec.Attempts) + starts, Failure: next.Failure(),
			})
		}
	}
	return r
}

// Expired implements node.Runner.
func (k *kind) Expired(rec *task.Record) node.Result {
	return node.Result{Tally: node.Tally{Expired: 1}, Settled: func(stored bool) {
		if stored {
			k.keepEnd(rec, task.Past{Expired: true, Due: rec.AttemptDue(), Attempt: int(rec.Attempts) + 1})
		}
	}}
}

// last counts and logs a parked task or a run that was given up.
func (t *teller) last(k *kind, r node.Result) {
	t.report.Ended(r.Next)
	switch {
	case r.Tally.Parked > 0:
		k.parked.Add(1)
	case r.Next.GivenUp > 1:
		k.givenUpAgain.Add(1)
		fallthrough
	default:
		k.givenUp.Add(1)
	}
}

// observe calls the observers with an attempt on the teller's goroutine.
func (t *teller) observe(a Attempt) {
	if len(t.cfg.observers) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting = append(t.waiting, a); !t.busy {
		t.busy = true
		go t.tell()
	}
}

// tell calls the observers until no attempt is waiting. An observer may panic or end the goroutine.
func (t *teller) tell() {
	var a Attempt
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		go t.tell()
		defer func() { _ = recover() }() // the logger may panic too
		t.cfg.Log.WithField("task", a.Key).WithField("panic", value).Error("durable: an observer did not return")
	}()
	for {
		t.mu.Lock()
		if len(t.waiting) == 0 {
			t.busy, t.waiting, returned = false, nil, true
			t.quiet.Broadcast()
			t.mu.Unlock()
			return
		}
		a, t.waiting = t.waiting[0], t.waiting[1:]
		t.mu.Unlock()
		for _, observe := range t.cfg.observers {
			observe(a)
		}
	}
}

// wait waits until no attempt is waiting for the observers.
func (t *teller) wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.busy {
		t.quiet.Wait()
	}
}
