// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The tests in this file run two goroutines against each other. In a plain run the goroutines seldom interleave at the
// step that matters; `make interleave` forces them to.

// deadEntry returns an entry that needs no work from the loop. The entries spread over the inboxes.
func deadEntry(i int) *entry {
	e := new(entry)
	e.due.Store(uint64(i))
	e.state.Store(done)
	return e
}

// pause lets other goroutines run, for a random time at each call.
func pause(r *rand.Rand, n int) {
	for range r.IntN(n) {
		runtime.Gosched()
	}
}

// The loop sees each post no later than at the next poll, whether it is at rest, busy, or about to rest. Only the last
// post matters, because it may cause earlier posts to be seen.
func TestPost_whileTheLoopFallsAsleep_isSeen(t *testing.T) {
	plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		r := random(1)
		for round := range 1000 {
			w.loop.post(deadEntry(round), moved, noHurry)
			pause(r, 150)
			w.loop.post(deadEntry(r.Int()), moved, noHurry)
			w.advance(poll)
			if n := w.posted(); n != 0 {
				t.Fatalf("round %d: %d posts wait for longer than a poll", round, n)
			}
			if round%2 == 0 {
				w.advance(poll) // the loop rests
			}
		}
	})
}

func TestPost_whileTheLoopStarts_isSeen(t *testing.T) {
	for seed := range uint64(500) {
		plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
			var poster sync.WaitGroup
			poster.Go(func() {
				pause(random(seed), 100)
				w.once("k", time.Minute)
			})
			w.Start()
			poster.Wait()
			w.advance(poll)
			if n := w.posted(); n != 0 {
				t.Errorf("%d posts wait for longer than a poll", n)
			}
			w.advance(time.Minute)
			w.wantRuns("k")
		})
	}
}

func TestPost_whileTheLoopEnds_isSeen(t *testing.T) {
	for range 200 {
		w := &rig{T: t, TimeWheel: NewTimeWheel(time.Millisecond, 60)}
		w.Start()
		var posters sync.WaitGroup
		var enough atomic.Bool
		for p := range 2 {
			mustAdd(t, w.TimeWheel, fmt.Sprint(p), time.Hour)
			e := w.entry(fmt.Sprint(p))
			posters.Go(func() {
				for i := 0; !enough.Load(); i++ { // due sooner each time, so the loop must be called
					w.move(e, later(w.loop.now(), time.Hour-time.Duration(i%3000)*time.Second))
				}
			})
		}
		w.TimeWheel.Stop()
		enough.Store(true)
		posters.Wait()
		if n := w.posted(); n != 0 {
			t.Fatalf("%d posts were left behind", n)
		}
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// Callers can see that the loop is running before its first look. Otherwise a caller could post after that look and
// wait for the lock until the loop is running and asleep.
func TestLoop_firstLook_isMadeByARunningLoop(t *testing.T) {
	for range 100 {
		plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
			first := func() {
				if !w.loop.running.Load() {
					t.Error("the loop looks before it is known to be running")
				}
			}
			w.hand.onNow.Store(&first)
			w.Start()
			synctest.Wait()
		})
	}
}

// A caller finds that the loop is not running and waits for the lock. When it acquires the lock, the loop is running,
// so the caller must leave the layout alone.
func TestPost_loopStartsWhileItWaitsForTheLock_doesNotLook(t *testing.T) {
	w := &rig{T: t, TimeWheel: NewTimeWheel(time.Millisecond, 60)}
	defer w.TimeWheel.Stop()
	w.loop.mu.Lock()
	var poster sync.WaitGroup
	poster.Go(func() { w.loop.post(deadEntry(1), moved, noHurry) })
	for w.posted() == 0 {
		runtime.Gosched()
	}
	for range 1000 { // until the caller waits for the lock
		runtime.Gosched()
	}
	w.loop.running.Store(true)
	w.loop.mu.Unlock()
	poster.Wait()
	if n := w.posted(); n != 1 {
		t.Errorf("%d posts are left for the loop, want 1", n)
	}
	w.loop.running.Store(false)
}

// The holder of the lock owns the layout.
func TestDo_beforeStart_waitsForTheLock(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	var caller sync.WaitGroup
	var called atomic.Bool
	tw.loop.mu.Lock()
	caller.Go(func() { tw.loop.do(func() { called.Store(true) }) })
	for range 1000 {
		runtime.Gosched()
	}
	if called.Load() {
		t.Error("two are owners of the layout at the same time")
	}
	tw.loop.mu.Unlock()
	if caller.Wait(); !called.Load() {
		t.Error("what was asked for was not done")
	}
}

func TestDo_afterAPost_seesWhatWasPosted(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.busy() // and so does not look unless it is called
		w.once("k", time.Hour)
		e, placed := w.entry("k"), false
		if w.loop.do(func() { placed = e.placed() }); !placed {
			t.Error("the loop has not seen what was posted before")
		}
	})
}

// When Stop returns, every post made before the call has been seen.
func TestStop_returns_afterTheLastLook(t *testing.T) {
	for range 500 {
		w := &rig{T: t, TimeWheel: NewTimeWheel(time.Millisecond, 60)}
		w.Start()
		for i := range 32 {
			w.loop.post(deadEntry(i), moved, noHurry)
		}
		w.TimeWheel.Stop()
		if n := w.posted(); n != 0 {
			t.Fatalf("%d posts were left behind", n)
		}
	}
}

// Two goroutines move an entry while the loop handles it. Once all is quiet, the entry must not be placed after its due
// time. Each round makes only a few moves, because a later move would hide the damage done by an earlier one.
func TestMove_byTwoWhileTheLoopMeetsTheEntry_losesNothing(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	mustAdd(t, tw, "k", time.Hour)
	e, l := tw.index.get("k"), tw.loop
	for seed := range uint64(2000) {
		var movers sync.WaitGroup
		for m := range uint64(2) {
			r := random(seed<<1 | m)
			movers.Go(func() {
				for range 2 {
					if !tw.move(e, l.now()+uint64(time.Minute)*(1+r.Uint64N(60))) {
						t.Error("a live entry was not moved")
					}
				}
			})
		}
		for range 6 {
			l.mu.Lock()
			l.lookLoop(l.now())
			if e.placed() {
				l.unlinkLoop(e)
				l.fireLoop([]*entry{e}, l.now(), l.now())
			}
			l.mu.Unlock()
			runtime.Gosched()
		}
		movers.Wait()
		if err := tw.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// The loop fires a task that is being moved. The Reschedule succeeds. Whether it came first or withdrew the run, the
// task waits for its new due time.
func TestMove_whileTheLoopFires_wins(t *testing.T) {
	for _, times := range []int{1, 3} {
		for range 300 {
			tw := NewTimeWheel(time.Millisecond, 60, WithExecutor(executorFunc(func(func()) error { return nil })))
			if err := tw.AddTask(&Task{Key: "k", Delay: 1, Interval: time.Minute, Times: times, Job: ignore}); err != nil {
				t.Fatal(err)
			}
			e, l := tw.index.get("k"), tw.loop
			var mover sync.WaitGroup
			mover.Go(func() {
				if err := tw.Reschedule("k", time.Hour); err != nil {
					t.Error(err)
				}
			})
			runtime.Gosched()
			l.mu.Lock()
			if e.placed() {
				l.unlinkLoop(e)
				now := l.now()
				l.fireLoop([]*entry{e}, now, now)
			}
			l.mu.Unlock()
			mover.Wait()
			err := tw.Check()
			if s := tw.Stats(); e.load() != scheduled || s.Waiting != 0 || s.Due != s.Withdrawn || err != nil {
				t.Fatalf("the task is in state %d, %+v, %v", e.load(), s, err)
			}
			if info, ok := tw.Get("k"); !ok || info.Times != times || time.Until(info.Next) < time.Minute {
				t.Fatalf("there is a task: %v, %+v", ok, info)
			}
			tw.Stop()
		}
	}
}

// A removal is final, whatever a concurrent Reschedule does.
func TestRemove_whileItIsMoved_isFinal(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	for i := range 500 {
		key := fmt.Sprint(i)
		mustAdd(t, tw, key, time.Hour)
		e := tw.index.get(key)
		var both sync.WaitGroup
		both.Go(func() {
			for d := time.Hour; tw.Reschedule(key, d) == nil; d -= time.Second {
			}
		})
		both.Go(func() {
			if err := tw.RemoveTask(key); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if s := e.load(); s != removed {
			t.Fatalf("a task that was removed is in state %d", s)
		}
	}
	if err := tw.Check(); err != nil {
		t.Error(err)
	}
}

// A Reschedule that coincides with a Pause or a Resume finds that the entry has been replaced. The new due time must
// not be lost with the old entry.
func TestPause_whileItIsMoved_losesNothing(t *testing.T) {
	plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
		r := random(1)
		for trial := range 3000 {
			if err := w.SetTask(&Task{Key: "k", Delay: time.Hour, Job: ignore}); err != nil {
				t.Fatal(err)
			}
			var both sync.WaitGroup
			both.Go(func() {
				if err := w.Reschedule("k", 10*time.Hour); err != nil {
					t.Error(err)
				}
			})
			pause(r, 4)
			if err := errors.Join(w.Pause("k"), w.Resume("k")); err != nil {
				t.Error(err)
			}
			both.Wait()
			if info, ok := w.Get("k"); !ok || info.Next.Sub(w.at(0)) != 10*time.Hour {
				t.Fatalf("trial %d: it is due after %v, %v", trial, info.Next.Sub(w.at(0)), ok)
			}
		}
	})
}

// If an entry ends while it is being moved, the end wins and the move reports failure. Otherwise a Reschedule that
// coincides with a Pause would be lost with the replaced entry.
func TestMove_ofAnEntryThatEndsMeanwhile_saysSo(t *testing.T) {
	const enough, most = 100, 1_000_000 // meetings required, and attempts allowed
	tw := NewTimeWheel(time.Millisecond, 8)
	defer tw.Stop()
	var at atomic.Pointer[entry]
	var met atomic.Int64
	var over atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for !over.Load() {
			if e := at.Load(); e != nil && e.state.CompareAndSwap(moving, removed) {
				met.Add(1)
			}
		}
	})
	for trial := 0; trial < most && met.Load() < enough; trial++ {
		e := newEntry("k", ignore, 0, 1, 1)
		at.Store(e)
		if moved := tw.move(e, 2); moved != (e.load() == scheduled) {
			t.Errorf("trial %d: the move reports %v, and the entry is in state %d", trial, moved, e.load())
			break
		}
	}
	over.Store(true)
	other.Wait()
	t.Logf("they met %d times", met.Load())
}

// The same holds when the entry is paused, and a Resume reads the remaining delay before the Reschedule writes it.
func TestSetLeft_ofAnEntryThatHasEnded_saysSo(t *testing.T) {
	e := newEntry("k", ignore, 0, 1, 1)
	for state, left := range map[uint32]bool{paused: true, removed: false} {
		e.state.Store(state)
		if e.setLeft(time.Hour) != left {
			t.Errorf("in state %d: %v, want %v", state, !left, left)
		}
	}
}

// Pausing and resuming a task repeatedly replaces its entry each time. Throughout, the task is live, all its times are
// valid, and Drain finds it.
func TestPause_allTheTime_isLiveAllTheTime(t *testing.T) {
	plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
		w.once("k", time.Hour)
		var other sync.WaitGroup
		var enough atomic.Bool
		other.Go(func() {
			for !enough.Load() {
				err := errors.Join(w.Pause("k"), w.Resume("k"))
				if err != nil && !errors.Is(err, ErrTaskKeyNotFound) {
					t.Error(err)
				}
			}
		})
		for range 3000 {
			info, ok := w.Get("k")
			left := info.Next.Sub(w.at(0))
			if !ok || left != time.Hour || info.Times != 1 || w.GetTaskTimes("k") != 1 || !w.Exist("k") {
				t.Fatalf("%+v, %v, due after %v", info, ok, left)
			}
		}
		n, err := w.Drain(func(task *Task) {
			if task.Delay != time.Hour || task.Times != 1 {
				t.Errorf("drained %+v", task)
			}
		})
		if n != 1 && w.Exist("k") { // an entry in no slot may be replaced before Drain reaches it
			n, err = w.Drain(ignore)
		}
		if enough.Store(true); n != 1 || err != nil {
			t.Errorf("drained %d tasks, %v", n, err)
		}
		other.Wait()
	})
}

// Of two concurrent removals, one succeeds. A concurrent add and removal of the same key both take effect.
func TestRemove_byTwo_oneWins(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60, WithMaxPending(10))
	defer tw.Stop()
	var adds, removals atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 2000 {
				if tw.RemoveTask("k") == nil {
					removals.Add(1)
				}
				runtime.Gosched()
			}
		})
		all.Go(func() {
			for range 2000 {
				switch err := tw.AddTask(&Task{Key: "k", Delay: time.Hour, Job: ignore}); {
				case err == nil:
					adds.Add(1)
				case !errors.Is(err, ErrDuplicateTaskKey):
					t.Error(err)
				}
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	left := int64(0)
	if tw.Exist("k") {
		left = 1
	}
	if a, r := adds.Load(), removals.Load(); a != r+left {
		t.Errorf("%d adds, %d removals, and %d are left", a, r, left)
	}
	if err := tw.Check(); err != nil {
		t.Error(err)
	}
}

func TestRemove_whileAllAreDrained_oneWins(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60, WithMaxPending(10))
	defer tw.Stop()
	r := random(1)
	for range 500 {
		mustAdd(t, tw, "k", time.Hour)
		var drained, removed int
		var drainer sync.WaitGroup
		drainer.Go(func() { drained, _ = tw.Drain(ignore) })
		pause(r, 100)
		if tw.RemoveTask("k") == nil {
			removed = 1
		}
		if drainer.Wait(); drained+removed != 1 {
			t.Fatalf("%d were drained and %d removed", drained, removed)
		}
		if err := tw.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// While no run begins, the number of remaining runs stays the same, however often the task falls due and its run is
// withdrawn.
func TestTimes_whileRunsAreQueuedAndWithdrawn_areExact(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60, WithExecutor(executorFunc(func(func()) error { return nil })))
	defer tw.Stop()
	const times = 5
	if err := tw.AddTask(&Task{Key: "k", Interval: time.Hour, Times: times, Job: ignore}); err != nil {
		t.Fatal(err)
	}
	e, l := tw.index.get("k"), tw.loop
	var enough atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for !enough.Load() {
			l.mu.Lock()
			l.unlinkLoop(e)
			l.fireLoop([]*entry{e}, never, l.now())
			l.mu.Unlock()
			tw.move(e, later(l.now(), time.Hour))
		}
	})
	for tw.Stats().Withdrawn < 3000 && !t.Failed() {
		for range 20 {
			if n := tw.GetTaskTimes("k"); n != times {
				t.Errorf("%d runs have not begun, want %d", n, times)
				break
			}
		}
	}
	enough.Store(true)
	other.Wait()
	if s := tw.Stats(); s.Due != s.Withdrawn {
		t.Errorf("in the end %+v", s)
	}
}

// A worker begins the last run of a task while the task is being removed: exactly one of the two wins.
func TestBegin_whileTheTaskIsRemoved_oneWins(t *testing.T) {
	for range 500 {
		w := &rig{T: t, TimeWheel: NewTimeWheel(time.Millisecond, 60,
			WithExecutor(executorFunc(func(func()) error { return nil })))}
		w.once("k", time.Minute)
		e, l := w.entry("k"), w.loop
		l.mu.Lock()
		l.unlinkLoop(e)
		l.fireLoop([]*entry{e}, never, l.now())
		l.mu.Unlock()
		wk := w.take()
		var begins, removes bool
		var both sync.WaitGroup
		both.Go(func() {
			if begins = wk.run.begin(); !begins {
				w.dispatch.giveBack(wk)
			}
			w.dispatch.leave(wk)
		})
		both.Go(func() { removes = w.RemoveTask("k") == nil })
		if both.Wait(); begins == removes {
			t.Fatalf("the run begins: %v, and the task is removed: %v", begins, removes)
		}
		w.TimeWheel.Stop()
	}
}

// A worker has taken a run, the task is removed, and the wheel is stopped. The run must not begin, and the wheel must
// become idle when the worker gives the run back.
func TestGiveBack_afterStop_endsTheWheel(t *testing.T) {
	with(func(func()) error { return nil }).in(t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("k", time.Second)
		w.advance(time.Second)
		wk := w.take()
		if err := w.RemoveTask("k"); err != nil {
			t.Fatal(err)
		}
		w.TimeWheel.Stop()
		select {
		case <-w.dispatch.idle:
			t.Error("the wheel is idle while a worker has a run")
		default:
		}
		if wk.run.begin() {
			t.Error("a run of a task that was removed begins")
		}
		w.dispatch.giveBack(wk)
		select {
		case <-w.dispatch.idle:
		default:
			t.Error("the wheel is not idle when the last run was given back")
		}
		w.dispatch.leave(wk)
	})
}

// A refused task is never visible.
func TestAdd_thatIsRefused_isNeverSeen(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60, WithMaxPending(1))
	defer tw.Stop()
	mustAdd(t, tw, "full", time.Hour)
	for verb, do := range map[string]func(*Task) error{"AddTask": tw.AddTask, "SetTask": tw.SetTask} {
		var enough atomic.Bool
		var adder sync.WaitGroup
		adder.Go(func() {
			for !enough.Load() {
				if err := do(&Task{Key: "k", Delay: time.Hour, Job: ignore}); !errors.Is(err, ErrFull) {
					t.Errorf("%s: %v", verb, err)
					return
				}
			}
		})
		for range 20_000 {
			if tw.Exist("k") {
				t.Errorf("%s: a task that is refused is there", verb)
				break
			}
		}
		enough.Store(true)
		adder.Wait()
	}
	if err := tw.Check(); err != nil {
		t.Error(err)
	}
}

// Only one of several concurrent adds takes the last place.
func TestAdd_byMany_keepsTheBound(t *testing.T) {
	const bound = 3
	for range 300 {
		tw := NewTimeWheel(time.Millisecond, 60, WithMaxPending(bound))
		var adders sync.WaitGroup
		for i := range 6 {
			adders.Go(func() {
				err := tw.AddTask(&Task{Key: fmt.Sprint(i), Delay: time.Hour, Job: ignore})
				if err != nil && !errors.Is(err, ErrFull) {
					t.Error(err)
				}
			})
		}
		adders.Wait()
		if n := tw.Len(); n > bound {
			t.Fatalf("%d tasks were added, with a bound of %d", n, bound)
		}
		if err := tw.Check(); err != nil {
			t.Fatal(err)
		}
		tw.Stop()
	}
}

// When a fired timer is Reset twice concurrently, one Reset starts it and the other moves it. There is one more call,
// not two.
func TestTimer_twoResets_areOneSetting(t *testing.T) {
	plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		var calls atomic.Int64
		timer := w.AfterFunc(0, func() { calls.Add(1) })
		w.advance(10 * time.Millisecond)
		for i := range int64(500) {
			if n := calls.Load(); n != i+1 {
				t.Fatalf("%d calls after %d settings", n, i+1)
			}
			var active atomic.Int64
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if timer.Reset(time.Second) {
						active.Add(1)
					}
				})
			}
			both.Wait()
			if n := active.Load(); n != 1 {
				t.Fatalf("%d of two Resets found the timer active", n)
			}
			w.advance(time.Second + 10*time.Millisecond)
		}
	})
}

// A Stop after a Reset cancels the new setting; a Stop before the Reset does not.
func TestTimer_resetAndStop_oneComesSecond(t *testing.T) {
	plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		var calls atomic.Int64
		timer := w.AfterFunc(0, func() { calls.Add(1) })
		w.advance(10 * time.Millisecond)
		settings := int64(1)
		for range 500 {
			var both sync.WaitGroup
			both.Go(func() {
				if timer.Reset(time.Second) {
					t.Error("a timer that has fired, or was stopped, was active")
				}
			})
			settings++
			both.Go(func() {
				if timer.Stop() {
					settings--
				}
			})
			both.Wait()
			w.advance(time.Second + 10*time.Millisecond)
			if n := calls.Load(); n != settings {
				t.Fatalf("%d calls, want %d", n, settings)
			}
		}
		synctest.Wait()
	})
}

// A run is submitted even if it falls due when the submitter has found nothing to submit and is about to wait.
func TestSubmitter_calledAsItFallsAsleep_submits(t *testing.T) {
	p := with(func(work func()) error {
		go work()
		return nil
	})
	p.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		r := random(1)
		for range 300 {
			w.once("a", 10*time.Millisecond)
			w.once("b", 20*time.Millisecond)
			synctest.Wait()
			w.hand.Advance(10 * time.Millisecond)
			pause(r, 60)
			w.hand.Advance(10 * time.Millisecond)
			w.advance(10 * time.Millisecond) // a loop that was about to set its timer would sleep too long
			w.advance(10 * time.Millisecond)
			w.wantTicks([]string{"a", "b"}) // each on a separate goroutine
			if t.Failed() {
				return
			}
		}
	})
}

// The counters are not read at the same instant. They are read in an order in which no task counts as gone before it
// counts as added.
func TestStats_whileATaskComesAndGoes_pendingIsNotNegative(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	var enough atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for !enough.Load() {
			if err := tw.AddTask(&Task{Key: "k", Delay: time.Hour, Job: ignore}); err != nil {
				t.Error(err)
			}
			if err := tw.RemoveTask("k"); err != nil {
				t.Error(err)
			}
		}
	})
	for s := tw.Stats(); s.Added < 2000; s = tw.Stats() {
		if s.Pending < 0 {
			t.Errorf("%d tasks are pending", s.Pending)
			break
		}
	}
	enough.Store(true)
	other.Wait()
}

func TestStartAndStop_byTwo_happenOnce(t *testing.T) {
	for range 300 {
		tw := NewTimeWheel(time.Millisecond, 60, WithLogger(testkit.Quiet()))
		for _, do := range []func(){tw.Start, tw.Stop} {
			var both sync.WaitGroup
			for range 2 {
				both.Go(do)
			}
			both.Wait()
		}
	}
}

// A worker stalls between taking a run and beginning it, until the task's next period comes. A Reschedule after the
// start of the run takes effect, whatever the loop does with that period.
func TestReschedule_whileThePeriodAfterTheRunComes_holds(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60, WithExecutor(executorFunc(func(func()) error { return nil })))
	d := tw.dispatch
	const tick, far = uint64(time.Millisecond), uint64(time.Hour)
	for trial := range 3000 {
		e := newEntry("k", ignore, time.Millisecond, 10*tick, Forever)
		w := new(worker)
		d.fire([]*entry{e}, 10*tick, 10*tick, nil)
		d.take(w)
		var ready atomic.Int32
		var both sync.WaitGroup
		meet := func() {
			for ready.Add(1); ready.Load() < 2; {
				runtime.Gosched()
			}
		}
		both.Go(func() {
			meet()
			for range trial % 64 {
				ready.Load()
			}
			w.run.begin()
			tw.move(e, far)
		})
		both.Go(func() {
			meet()
			d.fire([]*entry{e}, 11*tick, 11*tick, nil)
		})
		both.Wait()
		if due := e.due.Load(); due != far {
			t.Fatalf("trial %d: after a Reschedule to %d the task is due at %d", trial, far, due)
		}
		d.mu.Lock()
		d.endLocked(w)
		d.mu.Unlock()
	}
}

// Upcoming includes every task that waits in a slot or for a worker, even while it falls due.
func TestUpcoming_whileATaskFallsDue_hasIt(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60, WithPoolSize(1))
	defer tw.Stop()
	tw.Start()
	release, blocks := make(chan struct{}), make(chan struct{})
	defer close(release)
	tw.AfterFunc(0, func() { close(blocks); <-release })
	<-blocks
	for i := range 50 {
		key := fmt.Sprint(i)
		mustAdd(t, tw, key, 3*time.Millisecond)
		for tw.Stats().Waiting == 0 {
			if len(tw.Upcoming(10)) != 1 {
				t.Fatalf("task %d is live and not in Upcoming", i)
			}
		}
		if err := tw.RemoveTask(key); err != nil {
			t.Fatal(err)
		}
	}
}

// While the index is trimmed without a pause, no task is lost or comes back, and the walk sees each once.
func TestTrim_allTheTime_changesNothing(t *testing.T) {
	const lasting, rounds = 200, 300
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	for i := range lasting {
		mustAdd(t, tw, fmt.Sprint("lasting", i), time.Hour)
	}
	var trimmer, callers sync.WaitGroup
	var enough atomic.Bool
	trimmer.Go(func() {
		for !enough.Load() {
			tw.index.trim()
		}
	})
	for c := range 2 {
		callers.Go(func() {
			for i := range rounds {
				key := fmt.Sprint(c, "of", i%7)
				mustAdd(t, tw, key, time.Hour)
				if !tw.Exist(key) {
					t.Errorf("%q is not found after its add", key)
				}
				if err := errors.Join(tw.Pause(key), tw.Resume(key), tw.RemoveTask(key)); err != nil || tw.Exist(key) {
					t.Errorf("%q after its removal: %v", key, err)
				}
			}
		})
	}
	callers.Go(func() {
		for range rounds {
			seen := make(map[string]int)
			for info := range tw.AllPrefix("lasting") {
				seen[info.Key]++
			}
			if len(seen) != lasting {
				t.Errorf("the walk has seen %d of %d tasks", len(seen), lasting)
			}
			for key, n := range seen {
				if n != 1 || !tw.Exist(key) {
					t.Errorf("%q was seen %d times", key, n)
				}
			}
		}
	})
	callers.Wait()
	enough.Store(true)
	trimmer.Wait()
	if n := tw.Len(); n != lasting {
		t.Errorf("%d tasks are left", n)
	}
	if err := tw.Check(); err != nil {
		t.Error(err)
	}
}
