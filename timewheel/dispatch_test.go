// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

// An executorFunc is an Executor.
type executorFunc func(func()) error

func (f executorFunc) Submit(work func()) error { return f(work) }

// with is a plan for a wheel that uses the executor.
func with(f executorFunc, opts ...Option) plan {
	return plan{opts: append(opts, WithExecutor(f))}
}

// numbered adds n tasks that are due once, and returns their keys.
func (w *rig) numbered(n int, d time.Duration) (keys []string) {
	w.Helper()
	for i := range n {
		keys = append(keys, fmt.Sprint(i))
		w.once(keys[i], d)
	}
	synctest.Wait()
	return keys
}

func TestDispatch_moreDueThanAChunk_runInOrder(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		for _, n := range []int{1, chunk - 1, chunk, chunk + 1, 3*chunk + 1} {
			keys := w.numbered(n, time.Second)
			w.advance(time.Second)
			w.wantRuns(keys...)
		}
	})
}

// A worker that has ended a run waits for the lock, and others rely on it to take the next one. It may end
// its goroutine instead.
func TestDispatch_jobsEndTheirGoroutines_noneIsLeftWaiting(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 64, WithPoolSize(4), WithLogger(quietLogger()))
	defer tw.Stop()
	tw.Start()
	const tasks = 20_000
	var runs sync.WaitGroup
	runs.Add(tasks)
	for i := range tasks {
		err := tw.AddTask(&Task{Key: fmt.Sprint(i), Interval: 50 * time.Millisecond, Job: func(*Task) {
			runs.Done()
			if i%3 == 0 {
				runtime.Goexit()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	runs.Wait() // for ever, if one is left
}

// However many are due, few functions are with the executor, and each that begins asks for the next.
func TestDispatch_workers_areAskedForByTheHandful(t *testing.T) {
	var works []func()
	p := with(func(work func()) error {
		works = append(works, work)
		return nil
	})
	p.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		release := make(chan struct{})
		for i := range 20 {
			w.add(&Task{
				Key: fmt.Sprint(i), Interval: time.Duration(i+1) * 10 * time.Millisecond,
				Job: func(*Task) { <-release },
			})
		}
		synctest.Wait()
		for range 20 {
			w.advance(10 * time.Millisecond)
		}
		if len(works) != starters {
			t.Errorf("with 20 due %d workers were asked for, want %d", len(works), starters)
		}
		for begun := 1; begun <= 20; begun++ {
			go works[begun-1]()
			synctest.Wait()
			if want := min(begun+starters, 20); len(works) != want {
				t.Fatalf("when %d runs go on %d workers were asked for, want %d", begun, len(works), want)
			}
			if s := w.Stats(); s.Running != begun || s.Waiting != 20-begun {
				t.Fatalf("%d workers began: %+v", begun, s)
			}
		}
		close(release)
		synctest.Wait()
		if s := w.Stats(); s.Finished != 20 || s.Running != 0 {
			t.Errorf("in the end %+v", s)
		}
	})
}

func TestDispatch_functionCalledTwice_runsEachTaskOnce(t *testing.T) {
	p := with(func(work func()) error {
		go work()
		go work()
		return nil
	})
	p.in(t, func(t *testing.T, w *rig) {
		w.Start()
		for range 3 {
			keys := w.numbered(100, time.Second)
			w.advance(time.Second)
			slices.Sort(w.ran)
			slices.Sort(keys)
			w.wantRuns(keys...)
		}
		if n := w.dispatch.asked; n != 0 {
			t.Errorf("at rest %d workers are asked for", n)
		}
	})
}

// Submit may block. One that calls a function twice besides must not hold up the loop either.
func TestDispatch_functionCalledTwice_doesNotHoldUpTheLoop(t *testing.T) {
	var release chan struct{}
	var work func()
	p := with(func(f func()) error {
		work = f
		<-release
		return nil
	})
	p.in(t, func(t *testing.T, w *rig) {
		release = make(chan struct{})
		defer close(release)
		w.Start()
		w.numbered(1, 10*time.Millisecond)
		w.advance(10 * time.Millisecond)
		work()
		w.wantRuns("0")
		for range starters { // each asks for a worker, and none comes
			w.once(fmt.Sprint(w.Len()), 10*time.Millisecond)
			synctest.Wait()
			w.advance(10 * time.Millisecond)
		}
		work()
		var keys []string
		for i := range starters {
			keys = append(keys, fmt.Sprint(i))
		}
		w.wantRuns(keys...)
		w.numbered(starters, 10*time.Millisecond)
		w.advance(10 * time.Millisecond)
		heard := false
		go w.loop.do(func() { heard = true })
		synctest.Wait()
		if !heard {
			t.Error("the loop waits for the executor")
			<-w.asker.asks // lets it go, so that the test ends
		}
		work()
	})
}

func TestAsker_executorThatRefuses_isAskedAgainAndLosesNothing(t *testing.T) {
	for name, refuse := range map[string]func() error{
		"with an error": func() error { return errors.New("no room") },
		"with a panic":  func() error { panic("no room") },
	} {
		t.Run(name, func(t *testing.T) {
			logger, hook := logtest.NewNullLogger()
			asked, refusals := 0, 3
			p := with(func(work func()) error {
				asked++
				if asked <= refusals {
					return refuse()
				}
				go work()
				return nil
			}, WithLogger(logger))
			p.tick = time.Millisecond
			p.with(Hashed, t, func(t *testing.T, w *rig) {
				w.Start()
				for round := 1; round <= 2; round++ {
					asked = 0
					w.numbered(2, time.Second)
					w.advance(time.Second)
					for n := 1; n <= refusals; n++ {
						w.advance(retry - 1)
						w.wantRuns()
						if asked != n {
							t.Fatalf("it was asked %d times, want %d", asked, n)
						}
						w.advance(1)
					}
					w.wantRuns("0", "1")
					entries := hook.AllEntries()
					if len(entries) != round || !strings.Contains(fmt.Sprint(entries[0].Data), "no room") {
						t.Errorf("after %d times of refusal the log has %d entries", round, len(entries))
					}
				}
			})
		})
	}
}

func TestAsker_stopWhileTheExecutorRefuses_endsIt(t *testing.T) {
	logger, _ := logtest.NewNullLogger()
	p := with(func(func()) error { return errors.New("no room") }, WithLogger(logger))
	p.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.numbered(2, time.Second)
		w.advance(time.Second)
		w.Stop() // the bubble fails when a goroutine stays
		if s := w.Stats(); s.Waiting != 2 || s.Pending != 2 {
			t.Errorf("after the stop %+v, want 2 waiting", s)
		}
	})
}

// An executor may run functions before Submit returns; a job that ends its goroutine then ends the asker's.
func TestAsker_jobEndsItsGoroutine_theNextAskerGoesOn(t *testing.T) {
	logger, hook := logtest.NewNullLogger()
	p := with(func(work func()) error {
		work()
		return nil
	}, WithLogger(logger))
	p.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		const tasks = 2*starters + 1
		for i := range tasks {
			w.add(&Task{Key: fmt.Sprint(i), Interval: time.Second, Job: func(*Task) { runtime.Goexit() }})
		}
		w.once("after", 2*time.Second)
		synctest.Wait()
		w.advance(time.Second)
		if s := w.Stats(); s.Panicked != tasks || s.Finished != tasks || s.Running != 0 {
			t.Errorf("after %d jobs that ended their goroutine %+v", tasks, s)
		}
		w.advance(time.Second)
		w.wantRuns("after")
		if n := len(hook.AllEntries()); n != tasks {
			t.Errorf("the log has %d entries, want %d", n, tasks)
		}
	})
}

func TestAsker_executorThatBlocks_doesNotHoldUpTheLoop(t *testing.T) {
	var release chan struct{}
	p := with(func(work func()) error {
		<-release
		work()
		return nil
	})
	p.in(t, func(t *testing.T, w *rig) {
		release = make(chan struct{})
		w.Start()
		w.numbered(3, time.Second)
		for range 10 {
			w.once(fmt.Sprint(w.Len()), time.Second)
			w.advance(time.Second)
		}
		if s := w.Stats(); s.Waiting != 13 {
			t.Errorf("%d runs wait, want 13", s.Waiting)
		}
		if err := w.RemoveTask("1"); err != nil {
			t.Error(err)
		}
		close(release)
		synctest.Wait()
		w.wantRuns("0", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12")
	})
}

// set gives the task a state that it has else only between two steps of another goroutine.
func (w *rig) set(key string, state uint32) *entry {
	w.Helper()
	synctest.Wait()
	e := w.entry(key)
	e.state.Store(state)
	return e
}

// reschedule does the second half of a Reschedule for an entry that was set moving.
func (w *rig) reschedule(e *entry, from uint32, d time.Duration) {
	w.Helper()
	due := later(w.loop.now(), d)
	e.due.Store(due)
	if !e.state.CompareAndSwap(from, scheduled) {
		w.Fatalf("the entry is in state %d, want %d", e.state.Load(), from)
	}
	w.post(e, toMove, due)
	synctest.Wait()
}

func TestFire_whileAReschedule_leavesTheEntryToIt(t *testing.T) {
	for _, times := range []int{1, 2, Forever} {
		plan{}.in(t, func(t *testing.T, w *rig) {
			w.Start()
			w.add(&Task{Key: "k", Interval: time.Second, Times: times})
			e := w.set("k", moving)
			w.advance(time.Second)
			w.wantRuns()
			if s := e.state.Load(); s != orphaned || e.linked() {
				t.Fatalf("the loop left the entry in state %d, linked: %v", s, e.linked())
			}
			if s := w.Stats(); s.Due != 0 || s.Waiting != 0 || s.Pending != 1 {
				t.Errorf("while it is being moved %+v", s)
			}
			w.reschedule(e, orphaned, time.Minute)
			w.advance(time.Minute - 1)
			w.wantRuns()
			w.advance(1)
			w.wantRuns("k")
		})
	}
}

func TestSettle_whileAReschedule_placesTheEntry(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("k", time.Hour)
		e := w.set("k", moving)
		e.due.Store(later(w.loop.now(), time.Second))
		w.post(e, toMove, 0) // an earlier move to a nearer time
		synctest.Wait()
		if e.at != w.loop.ticks.up(e.due.Load()) {
			t.Errorf("the entry is placed at tick %d", e.at)
		}
		e.state.Store(scheduled)
		w.advance(time.Second)
		w.wantRuns("k")
	})
}

func TestSettle_orphan_isLeftToItsReschedule(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("k", time.Second)
		e := w.set("k", moving)
		w.advance(time.Second)
		e.due.Store(later(w.loop.now(), time.Second))
		w.post(e, toMove, 0) // an earlier move
		synctest.Wait()
		if e.linked() || e.state.Load() != orphaned {
			t.Errorf("the entry is in state %d, linked: %v", e.state.Load(), e.linked())
		}
		w.reschedule(e, orphaned, 0)
		w.wantRuns("k")
	})
}

func TestMove_whileAnother_waitsForIt(t *testing.T) {
	for _, state := range []uint32{moving, orphaned} {
		tw := NewTimeWheel(time.Millisecond, 60)
		defer tw.Stop()
		if err := tw.AddTask(&Task{Key: "k", Interval: time.Hour, Job: ignore}); err != nil {
			t.Fatal(err)
		}
		e := tw.index.get("k")
		e.state.Store(state)
		moved := make(chan bool)
		const due = 12345678
		go func() { moved <- tw.move(e, due) }()
		for range 1000 {
			runtime.Gosched()
		}
		select {
		case <-moved:
			t.Fatalf("an entry in state %d was moved", state)
		default:
		}
		e.state.Store(scheduled)
		if !<-moved || e.due.Load() != due || e.state.Load() != scheduled {
			t.Errorf("after state %d the entry is in state %d and due at %d", state, e.state.Load(), e.due.Load())
		}
		if err := tw.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestMove_deadEntry_isRefused(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		for _, state := range []uint32{removed, done} {
			e := new(entry)
			e.state.Store(state)
			if w.move(e, 1) || e.due.Load() != 0 || e.state.Load() != state {
				t.Errorf("an entry in state %d was moved", state)
			}
			if w.kills(e) || e.state.Load() != state {
				t.Errorf("an entry in state %d was removed", state)
			}
		}
	})
}

func TestRemove_whileAReschedule_wins(t *testing.T) {
	for _, c := range []struct {
		state  uint32
		how    string
		remove func(w *rig) error
	}{
		{moving, "RemoveTask", func(w *rig) error { return w.RemoveTask("k") }},
		{orphaned, "RemoveTask", func(w *rig) error { return w.RemoveTask("k") }},
		{moving, "Drain", (*rig).drain},
		{orphaned, "Drain", (*rig).drain},
	} {
		t.Run(fmt.Sprint(c.how, " in state ", c.state), func(t *testing.T) {
			plan{}.in(t, func(t *testing.T, w *rig) {
				w.Start()
				w.once("k", time.Second)
				e := w.set("k", moving)
				if c.state == orphaned {
					w.advance(time.Second)
				}
				if err := c.remove(w); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if e.state.Load() != removed || e.linked() || w.Exist("k") {
					t.Errorf("the entry is in state %d, linked: %v", e.state.Load(), e.linked())
				}
				w.post(e, toMove, 0) // the Reschedule may yet tell the loop of it
				w.advance(time.Hour)
				w.wantRuns()
				if s := w.Stats(); s.Removed != 1 || s.Pending != 0 {
					t.Errorf("in the end %+v", s)
				}
			})
		})
	}
}

// drain drains the wheel of its one task.
func (w *rig) drain() error {
	n, err := w.Drain(func(task *Task) {
		if task.Key != "k" || task.Times != 1 || task.Delay <= 0 {
			w.Errorf("drained %+v", task)
		}
	})
	if n != 1 {
		w.Errorf("drained %d tasks, want 1", n)
	}
	return err
}

// One goroutine moves an entry as fast as it can, and the loop meets it as fast as it can. The
// interleavings come as they come; whatever they are, the entry must be in its slot in the end.
func TestMove_whileTheLoopMeetsTheEntry_losesNothing(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	if err := tw.AddTask(&Task{Key: "k", Interval: time.Hour, Job: ignore}); err != nil {
		t.Fatal(err)
	}
	e, l := tw.index.get("k"), tw.loop
	var mover sync.WaitGroup
	var enough atomic.Bool
	due := e.due.Load()
	mover.Go(func() {
		for i := uint64(0); !enough.Load(); i++ {
			if !tw.move(e, due+i%100) { // mostly farther, of which the loop is not told
				t.Error("a live entry was not moved")
			}
		}
	})
	const want, limit = 100, 200_000 // with a single processor it may never happen
	for orphans, turns := 0, 0; orphans < want && turns < limit; turns++ {
		l.mu.Lock()
		l.lookLoop(l.now())
		if e.linked() {
			l.unlinkLoop(e)
			l.due.add(e)
			l.fireLoop(l.now(), l.now())
		}
		if e.state.Load() == orphaned {
			orphans++
		}
		l.mu.Unlock()
	}
	enough.Store(true)
	mover.Wait()
	if err := tw.Check(); err != nil {
		t.Error(err)
	}
	if s := e.state.Load(); s != scheduled || !e.linked() {
		t.Errorf("the entry is in state %d, linked: %v", s, e.linked())
	}
	if n, err := tw.Drain(ignore); n != 1 || err != nil {
		t.Errorf("drained %d tasks and %v, want 1", n, err)
	}
}

func TestWithdraw_whatWaits_letsNoRunBegin(t *testing.T) {
	for _, c := range []struct {
		verb    string
		do      func(w *rig) error
		pending int
	}{
		{"RemoveTask", func(w *rig) error { return w.RemoveTask("k") }, 0},
		{"Reschedule", func(w *rig) error { return w.Reschedule("k", time.Hour) }, 1},
		{"SetTask", func(w *rig) error { return w.SetTask(&Task{Key: "k", Interval: time.Hour, Job: w.job}) }, 1},
		{"Drain", func(w *rig) error { _, err := w.Drain(ignore); return err }, 0},
	} {
		for _, times := range []int{1, 2} { // one that repeats is in a slot besides
			t.Run(fmt.Sprint(c.verb, " ", times), func(t *testing.T) {
				plan{}.in(t, func(t *testing.T, w *rig) {
					w.Start()
					release := make(chan struct{})
					w.add(&Task{Key: "slow", Interval: time.Second, Job: func(*Task) { <-release }})
					w.add(&Task{Key: "k", Interval: time.Second, Times: times})
					synctest.Wait()
					w.advance(time.Second)
					if err := c.do(w); err != nil {
						t.Fatal(err)
					}
					w.verify()
					close(release)
					w.advance(time.Hour - 1)
					w.wantRuns()
					if s := w.Stats(); s.Withdrawn != 1 || s.Waiting != 0 || s.Pending != c.pending {
						t.Errorf("after %s %+v", c.verb, s)
					}
				})
			})
		}
	}
}

// Else an add could slip in between, and there would be more tasks than WithMaxPending allows.
func TestReplace_theOldTask_leavesNoRoomForAnother(t *testing.T) {
	plan{opts: []Option{WithMaxPending(1)}}.in(t, func(t *testing.T, w *rig) {
		w.once("k", time.Hour)
		e, err := w.newEntry(&Task{Key: "k", Interval: time.Hour, Job: ignore})
		if err != nil {
			t.Fatal(err)
		}
		old := w.entry("k")
		replaced := w.index.replace(old, e, func(old *entry) bool {
			ok := w.ends(old)
			if w.admit() {
				t.Error("while a task is replaced another finds room")
			}
			return ok
		})
		if !replaced || w.Len() != 1 || w.entry("k") != e {
			t.Errorf("replaced: %v, and %d are pending", replaced, w.Len())
		}
		w.post(old, toRemove, never-1)
		w.post(e, toAdd, e.due.Load())
	})
}

func TestWithdraw_whatDoesNotWait_doesNothing(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.once("k", time.Second)
		e := w.entry("k")
		due, ok := w.dispatch.withdraw(e, removed, func() { t.Error("it was done all the same") })
		if due != 0 || ok || e.state.Load() != scheduled {
			t.Errorf("withdrawn: %v, due %d, and in state %d", ok, due, e.state.Load())
		}
		if _, ok := w.dispatch.waitingSince(e); ok {
			t.Error("what is not due waits")
		}
	})
}

func TestReschedule_farther_isFoundOutAtTheOldTime(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.add(&Task{Key: "k", Interval: time.Second, Times: Forever})
		synctest.Wait()
		e := w.entry("k")
		at := e.at
		for range 1000 {
			w.advance(500 * time.Microsecond)
			if err := w.Reschedule("k", time.Second); err != nil {
				t.Fatal(err)
			}
			if e.at != at || w.mail() != 0 {
				t.Fatal("a task that is pushed back goes to the loop")
			}
		}
		w.advance(time.Second - 1)
		w.wantRuns()
		w.advance(1)
		w.wantRuns("k")
	})
}

// Both the loop and a worker want an entry that repeats and waits: the one for its next period, the other
// to run it.
func TestFire_repeatingTaskThatWaits_isNotQueuedTwice(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		release := make(chan struct{})
		w.add(&Task{Key: "slow", Interval: time.Second, Job: func(*Task) { <-release }})
		w.add(&Task{Key: "k", Interval: time.Second, Times: 2})
		synctest.Wait()
		for waited := range 5 {
			w.advance(time.Second)
			s := w.Stats()
			if s.Waiting != 1 || s.Missed != uint64(waited) || s.Due != uint64(waited)+2 {
				t.Fatalf("after %d further periods %+v", waited, s)
			}
		}
		e := w.entry("k")
		if due, ok := w.dispatch.waitingSince(e); !ok || due != later(0, 10*time.Millisecond+time.Second) {
			t.Errorf("it waits since %d: %v", due, ok)
		}
		close(release)
		synctest.Wait()
		w.wantRuns("k")
		w.advance(time.Second)
		w.wantRuns("k")
		if s := w.Stats(); s.Missed != 4 || s.Finished != 2 {
			t.Errorf("in the end %+v", s)
		}
	})
}
