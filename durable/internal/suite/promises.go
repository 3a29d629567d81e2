// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/timewheel"
)

// promises are what a durable scheduler promises in addition to the contract of all schedulers.
var promises = []struct {
	name string
	run  func(t *testing.T, r *rig)
}{
	{"Park parks at once", parks},
	{"RetryAfter sets the wait", retriesAfter},
	{"Complete leaves a note", notes},
	{"an attempt that takes too long has failed", timesOut},
	{"a late attempt ends before the next begins", endsLate},
	{"a late handler decides", decidesLate},
	{"JSON payloads", jsonPayloads},
	{"a burst of JSON payloads is one run", setsJSON},
	{"a payload that is no JSON parks at once", noJSON},
	{"an old payload is upgraded", upgrades},
	{"an upgrade that fails parks at once", failsToUpgrade},
	{"a payload that is newer than its handler waits", newerPayload},
	{"a calendar says when runs are due", byCalendar},
	{"a calendar alone is for ever", calendarWithoutTimes},
	{"a task that does not say when is due at once", dueAtOnce},
	{"an error after Shutdown names the verb", stoppedVerbs},
	{"a moved run returns to the calendar", movedOffCalendar},
	{"a wrong calendar is refused", wrongCalendar},
	{"jitter shifts the grid of an interval", jitterOfInterval},
	{"jitter shifts a calendar", jitterOfCalendar},
	{"SetTask puts a run off, and not for ever", debounces},
	{"a burst of SetTask ends with the start of the run", burstEnds},
	{"one run in each delay", throttles},
	{"a paused task does not run", pauses},
	{"a resumed task does not make up for what it missed", resumesRepeating},
	{"a paused task is moved, replaced and removed", pausedVerbs},
	{"pausing a run in progress", pausesRunning},
	{"Bulk pauses, resumes, and runs what is not paused", bulkPauses},
	{"many at once by the beginning of their keys", manyByPrefix},
	{"removing a task and waiting for its run", removesAndWaits},
	{"removing a task and waiting for runs from before", removesAndWaitsForEarlierRuns},
	{"cancelling a run", cancels},
	{"cancelling no run between two attempts", cancelsNoRetry},
	{"a paused kind does not run", pausesKind},
	{"all kinds are paused", pausesAll},
	{"a paused kind starts nothing", pausedKindStartsNothing},
	{"pausing a kind with runs in progress", pausesKindRunning},
	{"a resumed kind does not make up for what it missed", resumesRepeatingKind},
	{"pausing a kind without a handler", pausesKindWithoutHandler},
	{"pauses at the same time", pausesAtOnce},
	{"a limit of concurrency", limitsConcurrency},
	{"a limit of the rate", limitsRate},
	{"a limit on all nodes", limitsAll},
	{"what waits for a limit is removed, moved, paused and replaced", limitedVerbs},
	{"a run makes room however it ends", limitedRunsEnd},
	{"more tasks than fit a limit in memory", limitsMany},
	{"shutdown while tasks wait for a limit", limitedShutdown},
	{"pausing a kind with a limit", pausesLimitedKind},
	{"pausing a kind with a rate", pausesKindWithRate},
	{"many at once of a kind with a limit", changesManyOfLimitedKind},
	{"a limit while missed runs are made up for", limitsMissedRuns},
	{"pausing a burst of SetTask", pausesBurst},
	{"a task with every option", everyOption},
}

// testPromises runs the promises on the schedulers that open returns, each in a bubble of virtual time.
func testPromises(t *testing.T, open func(t *testing.T) []*durable.Scheduler) {
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{t: t, all: open(t)}
				defer func() {
					for _, s := range r.all {
						if err := s.Shutdown(ctx); err != nil {
							t.Errorf("shutdown: %v", err)
						}
					}
				}()
				for _, s := range r.all {
					if err := s.Start(); err != nil {
						t.Fatal(err)
					}
				}
				p.run(t, r)
			})
		})
	}
}

// A rig is a scheduler, or the nodes of a cluster, and what they have run. A test adds its kinds.
type rig struct {
	t    *testing.T
	all  []*durable.Scheduler
	turn int

	mu    sync.Mutex // protects calls
	calls []call
}

// A call is one call of a handler.
type call struct {
	durable.Run
	at time.Time
}

// on returns the scheduler whose turn it is.
func (r *rig) on() *durable.Scheduler {
	r.turn++
	return r.all[r.turn%len(r.all)]
}

// note notes a call.
func (r *rig) note(run durable.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call{run, time.Now()})
}

// handle registers a kind everywhere. Its calls are noted.
func (r *rig) handle(kind string, h durable.Handler, opts ...durable.KindOption) {
	r.t.Helper()
	for _, s := range r.all {
		err := s.Handle(kind, func(ctx context.Context, run durable.Run) error {
			r.note(run)
			return h(ctx, run)
		}, opts...)
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) add(tasks ...durable.Task) {
	r.t.Helper()
	r.must(r.on().AddTask(ctx, tasks...))
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// ran returns the calls so far, after that time, and forgets them.
func (r *rig) ran(after time.Duration) []call {
	time.Sleep(after)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// info returns the task of the key.
func (r *rig) info(key string) durable.Info {
	r.t.Helper()
	i, ok, err := r.on().Get(ctx, key)
	if err != nil || !ok {
		r.t.Fatalf("Get(%q): %v, %v", key, ok, err)
	}
	return i
}

// gone fails the test if there is a task of the key.
func (r *rig) gone(key string) {
	r.t.Helper()
	if i, ok, err := r.on().Get(ctx, key); err != nil || ok {
		r.t.Errorf("Get(%q): %+v, %v", key, i, err)
	}
}

// A task that does not say when it is due is due at once, and Jitter puts it off.
func dueAtOnce(t *testing.T, r *rig) {
	r.handle("k", func(context.Context, durable.Run) error { return nil })
	time.Sleep(time.Second)
	now := time.Now()
	r.add(durable.Task{Key: "a", Kind: "k"})
	r.must(r.on().SetTask(ctx, durable.Task{Key: "b", Kind: "k", Payload: []byte("b")}))
	calls := r.ran(2 * time.Second)
	if len(calls) != 2 {
		t.Fatalf("the runs are %v", calls)
	}
	for _, c := range calls {
		if c.Due.Before(now.Add(-time.Second/2)) || c.Due.After(now.Add(time.Second/2)) || c.at.Sub(now) > time.Second {
			t.Errorf("%s was due at %v and ran at %v; it was added at %v", c.Key, c.Due, c.at, now)
		}
	}
	r.gone("a")
	r.gone("b")
	r.add(durable.Task{Key: "c", Kind: "k", Jitter: time.Hour})
	if next := r.info("c").Next; next.Before(now.Add(time.Minute)) || next.After(now.Add(time.Hour+time.Minute)) {
		t.Errorf("with Jitter it is due at %v; it was added at %v", next, now)
	}
}

// After Shutdown an error says what was asked for.
func stoppedVerbs(t *testing.T, r *rig) {
	r.handle("k", ok)
	for _, s := range r.all {
		r.must(s.Shutdown(ctx))
	}
	s := r.on()
	_, _, get := s.Get(ctx, "k")
	_, cancel := s.Cancel(ctx, "k")
	for want, err := range map[string]error{
		`AddTask of "k"`:    s.AddTask(ctx, durable.Task{Key: "k", Kind: "k"}),
		`SetTask of "k"`:    s.SetTask(ctx, durable.Task{Key: "k", Kind: "k"}),
		`RemoveTask of "k"`: s.RemoveTask(ctx, "k"),
		`Reschedule of "k"`: s.Reschedule(ctx, "k", 0),
		`Pause of "k"`:      s.Pause(ctx, "k"),
		`Resume of "k"`:     s.Resume(ctx, "k"),
		`PauseKind of "k"`:  s.PauseKind(ctx, "k"),
		`ResumeKind of "k"`: s.ResumeKind(ctx, "k"),
		`PauseAll`:          s.PauseAll(ctx),
		`ResumeAll`:         s.ResumeAll(ctx),
		`Get of "k"`:        get,
		`Cancel of "k"`:     cancel,
	} {
		if !errors.Is(err, durable.ErrStopped) || !errors.Is(err, timewheel.ErrStopped) || err.Error() != "durable: stopped: "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
