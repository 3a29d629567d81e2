// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/crew"
	"github.com/seed581295f1/timewheel/internal/testkit"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

// An executorFunc is an Executor.
type executorFunc func(func()) error

func (f executorFunc) Submit(work func()) error { return f(work) }

// with returns a plan for a wheel that uses the executor.
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

func TestDispatch_moreDueThanAChunk_allRun(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		for _, n := range []int{1, crew.BlockSize - 1, crew.BlockSize, crew.BlockSize + 1, 3*crew.BlockSize + 1} {
			keys := w.numbered(n, time.Second)
			w.advance(time.Second)
			w.wantTicks(keys)
		}
	})
}

// A watchedCrew records the number of waiting runs each time a worker is called. The dispatcher's lock protects it.
type watchedCrew struct {
	callers
	waiting []int
}

func (c *watchedCrew) Call(waiting int) {
	c.waiting = append(c.waiting, waiting)
	c.callers.Call(waiting)
}

// The loop queues due runs in chunks, so that no worker waits long for the dispatcher's lock.
func TestDispatch_veryManyDue_areQueuedInChunks(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		c := &watchedCrew{callers: w.dispatch.callers}
		w.dispatch.callers = c
		w.Start()
		release := make(chan struct{})
		w.AfterFunc(0, func() { <-release }) // takes the only worker
		w.advance(10 * time.Millisecond)
		w.numbered(10*crew.BlockSize+1, time.Second)
		w.advance(time.Second)
		w.dispatch.mu.Lock()
		before := 0
		for _, n := range c.waiting {
			if n > before+crew.BlockSize {
				t.Errorf("%d runs were queued under one lock", n-before)
			}
			before = n
		}
		w.dispatch.mu.Unlock()
		if before != 10*crew.BlockSize+1 {
			t.Errorf("%d runs wait", before)
		}
		close(release)
	})
}

// A worker that has ended a run waits for the lock, and the other workers rely on it to take the next run. It may end
// its goroutine instead.
func TestDispatch_jobsEndTheirGoroutines_noneIsLeftWaiting(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 64, WithPoolSize(4), WithLogger(testkit.Quiet()))
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
	runs.Wait() // waits forever if a run is left
}

// However many tasks are due, few workers are about to start, and each worker that begins calls the next.
func TestDispatch_workers_areCalledByTheHandful(t *testing.T) {
	plan{opts: []Option{WithPoolSize(15)}}.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		release := make(chan struct{})
		for i := range 20 {
			w.add(&Task{Key: fmt.Sprint(i), Delay: time.Second, Job: func(*Task) { <-release }})
		}
		synctest.Wait()
		w.advance(time.Second)
		if s := w.Stats(); s.Running != 15 || s.Waiting != 5 || s.Workers != 15 {
			t.Errorf("with 15 workers for 20 jobs that block %+v", s)
		}
		if n := w.dispatch.callers.(*crew.Crew).Starting(); n != 0 {
			t.Errorf("at rest %d workers are about to start", n)
		}
		close(release)
		synctest.Wait()
		if s := w.Stats(); s.Finished != 20 || s.Running != 0 {
			t.Errorf("in the end %+v", s)
		}
	})
}

// One Submit results in one run. The function runs the task that has waited longest, but never a removed task.
func TestExecutor_oneSubmit_isOneRun(t *testing.T) {
	var works []func()
	p := with(func(work func()) error {
		works = append(works, work)
		return nil
	})
	p.in(t, func(t *testing.T, w *rig) {
		works = nil
		w.Start()
		for i := range 5 {
			w.once(fmt.Sprint(i), time.Duration(i+1)*10*time.Millisecond)
		}
		w.once("later", time.Second)
		synctest.Wait()
		for range 5 {
			w.advance(10 * time.Millisecond)
		}
		if len(works) != 5 {
			t.Fatalf("with 5 due %d functions were submitted", len(works))
		}
		if err := w.RemoveTask("1"); err != nil {
			t.Fatal(err)
		}
		for i, want := range [][]string{{"0"}, {"2"}, {"3"}, {"4"}, nil} {
			works[i]()
			synctest.Wait()
			w.wantRuns(want...)
		}
		works[0]() // a second time
		synctest.Wait()
		if s := w.Stats(); s.Waiting != 0 || s.Running != 0 || s.Withdrawn != 1 || s.Workers != 0 {
			t.Errorf("after all functions were called %+v", s)
		}
		w.advance(time.Second)
		if len(works) != 6 {
			t.Fatalf("for one more %d functions were submitted", len(works)-5)
		}
		works[5]()
		w.wantRuns("later")
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
			w.wantTicks(keys)
		}
		if n := w.dispatch.callers.(*submitter).submitted; n != 0 {
			t.Errorf("at rest %d functions are to be called", n)
		}
	})
}

// A run may fall due after the submitter has found no waiting run, and before it waits for a call.
func TestSubmitter_calledBeforeItWaits_keepsTheCall(t *testing.T) {
	s := newSubmitter(nil, nil)
	s.Call(1)
	select {
	case <-s.wake:
	default:
		t.Error("the call is lost")
	}
}

func TestSubmitter_executorThatRefuses_isAskedAgainAndLosesNothing(t *testing.T) {
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
						w.advance(poll - 1)
						w.wantRuns()
						if asked != n {
							t.Fatalf("it was asked %d times, want %d", asked, n)
						}
						w.advance(1)
					}
					w.wantTicks([]string{"0", "1"})
					entries := hook.AllEntries()
					if len(entries) != round || !strings.Contains(fmt.Sprint(entries[0].Data), "no room") {
						t.Errorf("after %d times of refusal the log has %d entries", round, len(entries))
					}
				}
			})
		})
	}
}

func TestSubmitter_stopWhileTheExecutorRefuses_endsIt(t *testing.T) {
	logger, _ := logtest.NewNullLogger()
	p := with(func(func()) error { return errors.New("no room") }, WithLogger(logger))
	p.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.numbered(2, time.Second)
		w.advance(time.Second)
		w.Stop() // the bubble fails if a goroutine remains
		if s := w.Stats(); s.Waiting != 2 || s.Pending != 2 {
			t.Errorf("after the stop %+v, want 2 waiting", s)
		}
	})
}

// An executor may run functions before Submit returns; a job that ends its goroutine then ends the submitter's
// goroutine.
func TestSubmitter_jobEndsItsGoroutine_anotherSubmits(t *testing.T) {
	logger, hook := logtest.NewNullLogger()
	p := with(func(work func()) error {
		work()
		return nil
	}, WithLogger(logger))
	p.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		const tasks = 5
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

func TestSubmitter_executorThatBlocks_doesNotHoldUpTheLoop(t *testing.T) {
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
		w.wantTicks([]string{"0", "2"}, []string{"3"}, []string{"4"}, []string{"5"}, []string{"6"}, []string{"7"},
			[]string{"8"}, []string{"9"}, []string{"10"}, []string{"11"}, []string{"12"})
	})
}

// set puts the task into a state that otherwise occurs only between two steps of another goroutine.
func (w *rig) set(key string, state uint32) *entry {
	w.Helper()
	synctest.Wait()
	e := w.entry(key)
	e.state.Store(state)
	return e
}

// A Reschedule may be suspended between its two steps for any length of time. The loop looks at the entry again at
// every tick.
func TestFire_whileAReschedule_looksAgain(t *testing.T) {
	for _, times := range []int{1, 2, Forever} {
		plan{}.in(t, func(t *testing.T, w *rig) {
			w.Start()
			w.add(&Task{Key: "k", Interval: time.Second, Times: times})
			e := w.set("k", moving)
			for range 10 {
				w.advance(time.Second)
				w.wantRuns()
				if s := e.load(); s != moving || e.at != w.loop.layout.now+1 {
					t.Fatalf("the loop left the entry in state %d, at tick %d of %d", s, e.at, w.loop.layout.now)
				}
				if s := w.Stats(); s.Due != 0 || s.Waiting != 0 || s.Pending != 1 {
					t.Errorf("while it is being moved %+v", s)
				}
			}
			e.due.Store(later(w.loop.now(), time.Minute))
			e.state.Store(scheduled)
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
		w.loop.post(e, moved, 0) // an earlier move to a sooner time
		synctest.Wait()
		if e.at != w.loop.ticks.up(e.due.Load()) {
			t.Errorf("the entry is placed at tick %d", e.at)
		}
		e.state.Store(scheduled)
		w.advance(time.Second)
		w.wantRuns("k")
	})
}

func TestMove_whileAnother_waitsForIt(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	mustAdd(t, tw, "k", time.Hour)
	e := tw.index.get("k")
	e.state.Store(moving)
	hasMoved := make(chan bool)
	const due = 12345678
	go func() { hasMoved <- tw.move(e, due) }()
	for range 1000 {
		runtime.Gosched()
	}
	select {
	case <-hasMoved:
		t.Fatal("an entry was moved by two at a time")
	default:
	}
	e.state.Store(scheduled)
	if !<-hasMoved || e.due.Load() != due || e.load() != scheduled {
		t.Errorf("in the end the entry is in state %d and due at %d", e.load(), e.due.Load())
	}
	if err := tw.Check(); err != nil {
		t.Error(err)
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
			if w.end(e) || e.state.Load() != state {
				t.Errorf("an entry in state %d was removed", state)
			}
		}
	})
}

func TestRemove_whileAReschedule_wins(t *testing.T) {
	for how, remove := range map[string]func(w *rig) error{
		"RemoveTask": func(w *rig) error { return w.RemoveTask("k") },
		"Drain":      (*rig).drain,
	} {
		t.Run(how, func(t *testing.T) {
			plan{}.in(t, func(t *testing.T, w *rig) {
				w.Start()
				w.once("k", time.Second)
				e := w.set("k", moving)
				if err := remove(w); err != nil {
					t.Fatal(err)
				}
				w.advance(poll) // a busy loop looks without being called
				if e.load() != removed || e.placed() || w.Exist("k") {
					t.Errorf("the entry is in state %d, in a slot: %v", e.load(), e.placed())
				}
				w.loop.post(e, moved, 0) // the Reschedule may still post it
				w.advance(time.Hour)
				w.wantRuns()
				if s := w.Stats(); s.Removed != 1 || s.Pending != 0 {
					t.Errorf("in the end %+v", s)
				}
			})
		})
	}
}

// drain drains the wheel, which has one task.
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

// One goroutine moves an entry as fast as it can, while the loop handles the entry as fast as it can. Whatever the
// interleaving, the entry must be in its slot at the end.
func TestMove_whileTheLoopMeetsTheEntry_losesNothing(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	mustAdd(t, tw, "k", time.Hour)
	e, l := tw.index.get("k"), tw.loop
	var mover sync.WaitGroup
	var enough atomic.Bool
	due := e.due.Load()
	mover.Go(func() {
		for i := uint64(0); !enough.Load(); i++ {
			if !tw.move(e, due+i%100) { // mostly to a later time, for which the loop is not called
				t.Error("a live entry was not moved")
			}
		}
	})
	const want, limit = 100, 200_000 // on a single processor they may never meet
	for met, turns := 0, 0; met < want && turns < limit; turns++ {
		l.mu.Lock()
		l.lookLoop(l.now())
		if e.placed() {
			l.unlinkLoop(e)
			if e.load() == moving {
				met++
			}
			l.fireLoop([]*entry{e}, l.now(), l.now())
		}
		l.mu.Unlock()
	}
	enough.Store(true)
	mover.Wait()
	if err := tw.Check(); err != nil {
		t.Error(err)
	}
	if s := e.load(); s != scheduled || !e.placed() {
		t.Errorf("the entry is in state %d, in a slot: %v", s, e.placed())
	}
	if n, err := tw.Drain(ignore); n != 1 || err != nil {
		t.Errorf("drained %d tasks and %v, want 1", n, err)
	}
}

// take assigns the run that has waited longest to a worker, as the dispatcher does, but does not begin it.
func (w *rig) take() *worker {
	w.Helper()
	wk := &worker{place: len(w.dispatch.workers)}
	w.dispatch.workers = append(w.dispatch.workers, wk)
	if !w.dispatch.take(wk) {
		w.Fatal("no run waits")
	}
	return wk
}

// A worker has taken a run and is suspended before beginning it. The task can still be removed, and then the run does
// not begin. It can no longer be moved.
func TestTake_beforeTheRunBegins_theTaskCanBeRemoved(t *testing.T) {
	for _, times := range []int{1, 2} {
		for how, c := range map[string]struct {
			end      func(w *rig) error
			replaced int
		}{
			"RemoveTask": {func(w *rig) error { return w.RemoveTask("k") }, 0},
			"SetTask":    {func(w *rig) error { return w.SetTask(&Task{Key: "k", Delay: time.Hour, Job: w.job}) }, 1},
			"Drain": {func(w *rig) error {
				n, err := w.Drain(func(task *Task) {
					if task.Times != times {
						w.Errorf("%d runs are left of %d", task.Times, times)
					}
				})
				if n != 1 {
					w.Errorf("%d tasks were drained", n)
				}
				return err
			}, 0},
		} {
			t.Run(fmt.Sprint(how, " ", times), func(t *testing.T) {
				with(func(func()) error { return nil }).in(t, func(t *testing.T, w *rig) {
					w.Start()
					w.add(&Task{Key: "k", Interval: time.Second, Times: times})
					w.advance(time.Second)
					wk := w.take()
					if n := w.GetTaskTimes("k"); n != times {
						t.Errorf("before the run begins %d runs are left, want %d", n, times)
					}
					if err := c.end(w); err != nil {
						t.Fatal(err)
					}
					if wk.run.begin() {
						t.Error("a run of a task that was removed begins")
					}
					w.dispatch.giveBack(wk)
					w.dispatch.leave(wk)
					s := w.Stats()
					if s.Due != 1 || s.Withdrawn != 1 || s.Started != 0 || s.Running != 0 || s.Finished != 0 ||
						s.Removed != 1 || s.Pending != c.replaced {
						t.Errorf("in the end %+v", s)
					}
				})
			})
		}
	}
}

// A worker has taken a run of a task that is being paused: the run does not begin, and is not lost.
func TestTake_beforeTheRunBegins_theTaskCanBePaused(t *testing.T) {
	for _, times := range []int{1, 2} {
		with(func(func()) error { return nil }).in(t, func(t *testing.T, w *rig) {
			w.Start()
			w.add(&Task{Key: "k", Interval: time.Second, Times: times})
			w.advance(time.Second)
			wk := w.take()
			if err := w.Pause("k"); err != nil {
				t.Fatal(err)
			}
			if wk.run.begin() {
				t.Error("a run of a task that is paused begins")
			}
			w.dispatch.giveBack(wk)
			w.dispatch.leave(wk)
			if info, ok := w.Get("k"); !ok || !info.Paused || info.Times != times || !info.Next.Equal(w.at(0)) {
				t.Errorf("the paused task is %+v, %v", info, ok)
			}
			s := w.Stats()
			if s.Due != 1 || s.Withdrawn != 1 || s.Started+s.Finished+s.Removed != 0 || s.Pending != 1 {
				t.Errorf("in the end %+v", s)
			}
		})
	}
}

// RemoveWait waits for a worker that has taken a run. Whether the run counts is known only once the worker has begun it
// or has given it back.
func TestRemoveWait_workerHasTakenTheRun_saysWhetherItBegan(t *testing.T) {
	for _, begins := range []bool{false, true} {
		with(func(func()) error { return nil }).in(t, func(t *testing.T, w *rig) {
			w.Start()
			w.once("k", time.Second)
			w.advance(time.Second)
			wk := w.take()
			if begins && !wk.run.begin() {
				t.Fatal("the run does not begin")
			}
			type answer struct {
				running bool
				err     error
			}
			answers := make(chan answer, 2)
			for range cap(answers) {
				go func() {
					running, err := w.RemoveWait(t.Context(), "k")
					answers <- answer{running, err}
				}()
			}
			synctest.Wait()
			if len(answers) > 0 {
				t.Error("RemoveWait did not wait for the worker")
			}
			if !begins {
				if wk.run.begin() {
					t.Error("a run of a task that was removed begins")
				}
				w.dispatch.giveBack(wk)
			}
			w.dispatch.leave(wk)
			found := 0
			for range cap(answers) {
				if a := <-answers; a.running != begins || begins && a.err != nil {
					t.Errorf("RemoveWait is %v, %v", a.running, a.err)
				} else if a.err == nil {
					found++
				}
			}
			if !begins && found != 1 {
				t.Errorf("%d have removed the task", found)
			}
		})
	}
}

func TestTake_beforeTheRunBegins_aRescheduleWaitsForIt(t *testing.T) {
	with(func(func()) error { return nil }).in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.add(&Task{Key: "k", Interval: time.Second, Times: 2})
		w.advance(time.Second)
		wk, e := w.take(), w.entry("k")
		if _, ok := w.dispatch.withdraw(e, moving); ok {
			t.Error("a run that a worker has was withdrawn for a move")
		}
		if !wk.run.begin() {
			t.Fatal("the run does not begin")
		}
		if err := w.Reschedule("k", time.Hour); err != nil {
			t.Error(err)
		}
		if n := w.GetTaskTimes("k"); n != 1 {
			t.Errorf("%d runs are left, want 1", n)
		}
		w.dispatch.leave(wk)
		if s := w.Stats(); s.Withdrawn != 0 || s.Started != 1 || s.Pending != 1 {
			t.Errorf("in the end %+v", s)
		}
	})
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
		for _, times := range []int{1, 2} { // a repeating task is also in a slot
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

// If the old task left room, an add could slip in, and there would be more tasks than WithMaxPending allows.
func TestReplace_theOldTask_leavesNoRoomForAnother(t *testing.T) {
	plan{opts: []Option{WithMaxPending(1)}}.in(t, func(t *testing.T, w *rig) {
		w.once("k", time.Hour)
		e, err := w.entryOf("AddTask", &Task{Key: "k", Interval: time.Hour, Job: ignore})
		if err != nil {
			t.Fatal(err)
		}
		old, err := w.index.set(e, func(old *entry) bool {
			ok := w.end(old)
			if w.index.admit() {
				t.Error("while a task is replaced another finds room")
			}
			return ok
		})
		if old == nil || err != nil || w.entry("k") != e {
			t.Errorf("replaced %v, %v", old, err)
		}
		w.loop.post(old, ended, noHurry)
		w.loop.post(e, added, e.due.Load())
	})
}

func TestWithdraw_whatDoesNotWait_doesNothing(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.once("k", time.Second)
		e := w.entry("k")
		due, ok := w.dispatch.withdraw(e, removed)
		if due != 0 || ok || e.load() != scheduled {
			t.Errorf("withdrawn: %v, due %d, and in state %d", ok, due, e.load())
		}
		if _, _, ok := w.dispatch.times(e); ok {
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
			if e.at != at || w.posted() != 0 {
				t.Fatal("a task that is pushed back goes to the loop")
			}
		}
		w.advance(time.Second - 1)
		w.wantRuns()
		w.advance(1)
		w.wantRuns("k")
	})
}

// The loop and a worker both need the waiting entry of a repeating task: the loop for its next period, the worker to
// run it.
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
		if _, due, ok := w.dispatch.times(e); !ok || due != later(0, 10*time.Millisecond+time.Second) {
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

// A task counts as finished once a worker has taken its last run. If the task is then removed, Pending must not become
// negative.
func TestTake_beforeTheRunBegins_pendingIsNotNegative(t *testing.T) {
	with(func(func()) error { return nil }).in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("k", time.Second)
		w.advance(time.Second)
		wk := w.take()
		if err := w.RemoveTask("k"); err != nil {
			t.Fatal(err)
		}
		if n := w.Len(); n != 0 {
			t.Errorf("before the worker gives it back %d tasks are live", n)
		}
		w.dispatch.giveBack(wk)
		w.dispatch.leave(wk)
		if s := w.Stats(); s.Pending != 0 || s.Started != 0 || s.Finished != 0 || s.Removed != 1 || s.Withdrawn != 1 {
			t.Errorf("in the end %+v", s)
		}
	})
}

// If a worker has taken a run but has not begun it, Drain returns the task as due now, not as due at its next run.
func TestDrain_runThatAWorkerHas_isDueNow(t *testing.T) {
	with(func(func()) error { return nil }).in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.add(&Task{Key: "k", Delay: time.Second, Interval: time.Hour, Times: 2})
		w.advance(time.Second)
		wk := w.take()
		n, err := w.Drain(func(task *Task) {
			if task.Times != 2 || task.Delay != 1 {
				t.Errorf("it has %d runs left, and the next is in %v", task.Times, task.Delay)
			}
		})
		if n != 1 || err != nil {
			t.Errorf("drained %d tasks, %v", n, err)
		}
		w.dispatch.giveBack(wk)
		w.dispatch.leave(wk)
	})
}
