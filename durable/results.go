// SPDX-License-Identifier: MIT

package durable

import (
	"sync"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A result is the end of a run on its way to the engine.
type result struct {
	next  *task.Record                 // the task after the run; nil if the task ends
	asof  int64                        // the time from which next was computed; 0 if it depends on no time
	again func(now int64) *task.Record // computes next once more, if asof is not 0
	tally tally                        // counts to add once the result is stored

	settled settled
}

// A settled is called once with whether a result was stored. It must not block. A result is not stored if the task was
// removed, moved, replaced, paused or taken over during the run. A nil settled does nothing.
type settled func(stored bool)

func (s settled) call(stored bool) {
	if s != nil {
		s(stored)
	}
}

// A teller counts, logs and records how runs end, and calls the observers. It says that a task was parked, that a run was
// given up or that a run expired only once this has been stored. No worker waits for that, so the worker leaves these
// attempts to the teller. The observers may block, so the teller calls them on a separate goroutine. There is at most one
// such goroutine, and it exists only while there is something to tell.
type teller struct {
	cfg    *config
	now    func() int64
	report *reporter

	mu      sync.Mutex // protects the fields below
	waiting []Attempt
	quiet   *sync.Cond // signals that busy is false
	busy    bool       // the goroutine exists
}

func newTeller(cfg *config, now func() int64, report *reporter) *teller {
	t := &teller{cfg: cfg, now: now, report: report}
	t.quiet = sync.NewCond(&t.mu)
	return t
}

// attempted completes an attempt whose outcome does not depend on whether its result is stored.
func (t *teller) attempted(k *kind, a Attempt, rec *task.Record) {
	k.keepAttempt(a, rec)
	for _, observe := range t.cfg.observers {
		observe(a)
	}
}

// ended returns the result of an attempt that parks its task, or with which its run is given up. rec is the task before
// the attempt.
func (t *teller) ended(k *kind, a Attempt, rec *task.Record, r result) result {
	r.settled = func(stored bool) {
		if stored {
			a.Parked, a.GivenUp = r.tally.parked > 0, r.tally.givenUp > 0
			t.last(k, r)
		}
		k.keepAttempt(a, rec)
		t.observe(a)
	}
	return r
}

// interrupted returns the result for a task some of whose starts have ended in an unknown way. rec is the task before,
// and next after it: see [task.Record.Interrupted].
func (t *teller) interrupted(k *kind, rec, next *task.Record, starts int) result {
	r := result{next: next}
	if r.tally.end(rec, next); !r.tally.isLast() {
		return r
	}
	r.settled = func(stored bool) {
		if stored {
			t.last(k, r)
			k.keepEnd(rec, task.Past{
				Parked: r.tally.parked > 0, GivenUp: r.tally.givenUp > 0, Due: rec.Grid,
				Attempt: int(rec.Attempts) + starts, Failure: next.Failure(),
			})
		}
	}
	return r
}

// expired returns the result for a task whose run has expired.
func (t *teller) expired(k *kind, rec *task.Record) result {
	return result{tally: tally{expired: 1}, settled: func(stored bool) {
		if stored {
			k.keepEnd(rec, task.Past{Expired: true, Due: rec.AttemptDue(), Attempt: int(rec.Attempts) + 1})
		}
	}}
}

// last counts and logs a parked task or a run that was given up.
func (t *teller) last(k *kind, r result) {
	if r.tally.parked > 0 {
		k.parked.Add(1)
		t.report.ended(OutcomeParked, r.next)
		return
	}
	k.givenUp.Add(1)
	if r.next.GivenUp > 1 {
		k.givenUpAgain.Add(1)
	}
	t.report.ended(OutcomeGivenUp, r.next)
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
		t.cfg.log.WithField("task", a.Key).WithField("panic", value).Error("durable: an observer did not return")
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
