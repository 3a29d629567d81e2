// SPDX-License-Identifier: MIT

package test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// The same script is played with a timer of package time and with a timer of the wheel: they must behave exactly the
// same. All times are multiples of the tick. No script stops a timer of 0 at once, because it may have fired or not.
func TestTimer_meansWhatATimeTimerMeans(t *testing.T) {
	type timer interface {
		Stop() bool
		Reset(d time.Duration) bool
	}
	play := func(script string, afterFunc func(d time.Duration, f func()) timer) (log []string) {
		start := time.Now()
		var mu sync.Mutex
		var fires []string // separate from the answers: a timer that is due at once may fire before Reset returns
		say := func(what string, v any) {
			mu.Lock()
			defer mu.Unlock()
			line := fmt.Sprint(time.Since(start), " ", what, " ", v)
			if what == "fires" {
				fires = append(fires, line)
			} else {
				log = append(log, line)
			}
		}
		var tm timer
		for _, step := range script {
			switch step {
			case 'f':
				tm = afterFunc(50*ms, func() { say("fires", "") })
			case 'z':
				tm = afterFunc(0, func() { say("fires", "") })
			case 'n':
				tm = afterFunc(-time.Hour, func() { say("fires", "") })
			case 's':
				say("stop", tm.Stop())
			case 'r':
				say("reset", tm.Reset(30*ms))
			case 'R':
				say("reset", tm.Reset(200*ms))
			case '0':
				say("reset", tm.Reset(0))
			case '-':
				say("reset", tm.Reset(-1))
			case '.':
				testkit.Settle(20 * ms)
			}
		}
		testkit.Settle(time.Second)
		return append(log, fires...)
	}
	for _, script := range []string{
		"f", "z", "n", "z.", "n.", "fs", "fss", "f.s", "f..s", "f...s", "f....s.s", "fr", "f.r", "f..r..",
		"f...r....r...s", "fR", "f.R...r", "fsr", "fs.r", "fsrs", "f0", "f.0.", "f-", "f.-.s", "f...0.r.s", "fsRr",
		"f..R.....r.R..r.s.r", "z.r",
	} {
		inBubble(t, func(t *testing.T) {
			want := play(script, func(d time.Duration, f func()) timer { return time.AfterFunc(d, f) })
			tw := startWheel(t, 10*ms, 16)
			got := play(script, func(d time.Duration, f func()) timer { return tw.AfterFunc(d, f) })
			if !slices.Equal(got, want) {
				t.Errorf("%s:\na timer of the wheel: %v\na time.Timer:         %v", script, got, want)
			}
			if len(want) == 0 {
				t.Errorf("%s does nothing", script)
			}
		})
	}
}

func TestTimer_thatWaitsForAWorker_canBeStoppedAndMoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(1)), newJournal()
		release := occupy(t, tw, 1)
		stopped := tw.AfterFunc(20*ms, func() { j.note("stopped") })
		moved := tw.AfterFunc(20*ms, func() { j.note("moved") })
		left := tw.AfterFunc(20*ms, func() { j.note("left") })
		testkit.Settle(50 * ms)
		wantEqual(t, "Stop", stopped.Stop(), true)
		wantEqual(t, "Reset", moved.Reset(50*ms), true)
		release()
		synctest.Wait()
		wantEqual(t, "Stop of one that has fired", left.Stop(), false)
		testkit.Settle(time.Second)
		j.want(t, "stopped")
		j.want(t, "moved", 100*ms)
		j.want(t, "left", 50*ms)
		if s := balanced(t, tw, 4); s.Withdrawn != 2 {
			t.Errorf("Withdrawn %d, want 2", s.Withdrawn)
		}
	})
}

func TestTimer_resetWhileItRuns_runsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		timer := tw.AfterFunc(20*ms, func() {
			j.note("k")
			time.Sleep(100 * ms)
		})
		testkit.Settle(30 * ms)
		wantEqual(t, "Stop", timer.Stop(), false)
		wantEqual(t, "Reset", timer.Reset(20*ms), false)
		wantEqual(t, "Reset", timer.Reset(30*ms), true)
		testkit.Settle(time.Second)
		j.want(t, "k", 20*ms, 60*ms)
		balanced(t, tw, 2)
	})
}

func TestAddTask_copiesTheTask(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		task := &timewheel.Task{Key: "k", Interval: 20 * ms, Delay: 30 * ms, Times: 3}
		task.Job = func(run *timewheel.Task) {
			j.job(run)
			if run == task || run.Interval != 20*ms || run.Delay != 0 {
				t.Errorf("the run was given %+v", run)
			}
			*run = timewheel.Task{Key: "other"} // belongs to the run
		}
		original := *task
		must(t, tw.AddTask(task))
		testkit.Settle(10 * ms)
		if task.Key != original.Key || task.Delay != original.Delay || task.Times != original.Times {
			t.Errorf("the task was changed: %+v", task)
		}
		*task = timewheel.Task{Key: "k2", Interval: 70 * ms, Job: j.job}
		must(t, tw.AddTask(task)) // the caller may reuse it
		testkit.Settle(time.Second)
		j.want(t, "k", 30*ms, 50*ms, 70*ms)
		j.want(t, "k2", 80*ms)
		wantEqual(t, "times of the caller's task", task.Times, 0)
	})
}

func TestSetTask_addsOrReplaces(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		old := func(*timewheel.Task) { j.note("old") }
		must(t, tw.SetTask(every("k", 20*ms, old))) // adds
		testkit.Settle(50 * ms)
		must(t, tw.SetTask(&timewheel.Task{Key: "k", Interval: 100 * ms, Delay: 30 * ms, Times: 2, Job: j.job}))
		info, ok := tw.Get("k")
		if !ok || info.Interval != 100*ms || info.Times != 2 || time.Until(info.Next) != 30*ms {
			t.Errorf("Get: %+v, %v", info, ok)
		}
		testkit.Settle(time.Second)
		j.want(t, "old", 20*ms, 40*ms)
		j.want(t, "k", 80*ms, 180*ms)
		must(t, tw.SetTask(once("k", 20*ms, j.job))) // its last run has begun: adds again
		testkit.Settle(20 * ms)
		wantEqual(t, "runs of k", j.count("k"), 3)
		if s := balanced(t, tw, 3); s.Removed != 1 || s.Finished != 2 {
			t.Errorf("Removed %d, Finished %d", s.Removed, s.Finished)
		}
	})
}

func TestReschedule_movesTheNextRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		must(t, tw.AddTask(once("pushed back", 100*ms, j.job)))
		must(t, tw.AddTask(once("nearer", time.Hour, j.job)))
		must(t, tw.AddTask(once("at once", time.Hour, j.job)))
		must(t, tw.AddTask(once("away and back", 50*ms, j.job)))
		for range 20 { // a deadline that moves with each sign of life
			testkit.Settle(50 * ms)
			must(t, tw.Reschedule("pushed back", 100*ms))
			if _, ok := tw.Get("away and back"); ok {
				must(t, tw.Reschedule("away and back", time.Hour))
				must(t, tw.Reschedule("away and back", 0*ms))
			}
		}
		must(t, tw.Reschedule("nearer", 30*ms))
		must(t, tw.Reschedule("at once", 0))
		synctest.Wait()
		j.want(t, "at once", time.Second)
		if info, _ := tw.Get("nearer"); time.Until(info.Next) != 30*ms || info.Times != 1 {
			t.Errorf("Get: %+v", info)
		}
		testkit.Settle(time.Hour)
		j.want(t, "nearer", 1030*ms)
		j.want(t, "pushed back", 1100*ms)
		wantEqual(t, "runs of the one that went away and back", j.count("away and back"), 1)
		if err := tw.Reschedule("nearer", ms); !errors.Is(err, timewheel.ErrTaskKeyNotFound) {
			t.Errorf("Reschedule of one that has run: %v", err)
		}
		balanced(t, tw, 4)
	})
}

// Every move from one slot to another, with the hand before, at and after both of them.
func TestReschedule_fromAnySlotToAnyOther_isRight(t *testing.T) {
	const slots = 5
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, time.Second, slots), newJournal()
		want := map[string]time.Duration{}
		for from := 1; from <= 3*slots; from++ {
			for after := range min(from, slots+1) {
				for to := 1; to <= 3*slots; to++ {
					key := name(len(want))
					want[key] = time.Duration(after+to) * time.Second
					must(t, tw.AddTask(once(key, time.Duration(from)*time.Second, j.job)))
					time.AfterFunc(time.Duration(after)*time.Second, func() {
						should(t, tw.Reschedule(key, time.Duration(to)*time.Second))
					})
				}
			}
		}
		testkit.Settle(time.Hour)
		for key, at := range want {
			j.want(t, key, at)
		}
		balanced(t, tw, len(want))
	})
}

func TestGet_tellsWhereTheTaskIs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const slots = 10
		tw := startWheel(t, time.Second, slots, timewheel.WithPoolSize(1))
		testkit.Settle(33 * time.Second)
		for i := 1; i <= 3*slots; i++ {
			must(t, tw.AddTask(&timewheel.Task{
				Key: name(i), Interval: time.Minute, Delay: time.Duration(i) * time.Second, Times: i, Job: nothing,
			}))
		}
		first, _ := tw.Get(name(1))
		for passed := range 8 {
			for i := passed + 1; i <= 3*slots; i++ {
				want := timewheel.Info{
					Key: name(i), Interval: time.Minute, Times: i,
					Next: time.Now().Add(time.Duration(i-passed) * time.Second),
					Slot: (first.Slot + i - 1) % slots, Circle: (i - passed - 1) / slots,
				}
				got, ok := tw.Get(name(i))
				if !ok || !got.Next.Equal(want.Next) || withoutNext(got) != withoutNext(want) {
					t.Errorf("after %d s: Get %+v, %v, want %+v", passed, got, ok, want)
				}
			}
			testkit.Settle(time.Second)
		}
		occupy(t, tw, 1)
		testkit.Settle(10 * time.Second)
		for i := 9; i <= 17; i++ {
			info, ok := tw.Get(name(i))
			due := time.Now().Add(time.Duration(i-18) * time.Second)
			if !ok || !info.Waiting || info.Slot != 0 || info.Circle != 0 || !info.Next.Equal(due) || info.Times != i {
				t.Errorf("task %d waits for a worker: %+v, %v, want it due at %v", i, info, ok, due)
			}
		}
	})
}

func withoutNext(info timewheel.Info) timewheel.Info {
	info.Next = time.Time{}
	return info
}

func TestAll_isAWalkWithoutALock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, 10*ms, 16)
		const n = 1000
		for i := range n {
			must(t, tw.AddTask(once(name(i), time.Hour, nothing)))
		}
		tw.AfterFunc(time.Hour, func() {})
		seen := map[string]int{}
		for info := range tw.All() {
			seen[info.Key]++
			if got, ok := tw.Get(info.Key); !ok || got != info {
				t.Fatalf("All yields %+v, and Get returns %+v, %v", info, got, ok)
			}
			everyVerb(t, tw)
			must(t, tw.RemoveTask(info.Key))
			must(t, tw.AddTask(once(info.Key+" again", time.Hour, nothing)))
		}
		for i := range n {
			if seen[name(i)] != 1 {
				t.Fatalf("%s was there all the while and seen %d times", name(i), seen[name(i)])
			}
		}
		wantEqual(t, "Len", tw.Len(), n+1)
		walked := 0
		for range tw.All() {
			if walked++; walked == 3 {
				break
			}
		}
		wantEqual(t, "steps of a walk that is left", walked, 3)
		for info := range tw.All() { // a task that is gone when the walk reaches it is not seen
			if !tw.Exist(info.Key) {
				t.Fatalf("%s is not there", info.Key)
			}
			_, err := tw.Drain(func(*timewheel.Task) {})
			must(t, err)
		}
		balanced(t, tw, n+1+n+n*verbsAdded)
	})
}

func TestDrain_takesEveryPendingTaskInDueOrder(t *testing.T) {
	for _, state := range []string{"running", "before Start", "after Stop"} {
		inBubble(t, func(t *testing.T) {
			tw, j := newWheel(t, 10*ms, 16, timewheel.WithPoolSize(1)), newJournal()
			var release func()
			added := 9
			if state != "before Start" {
				tw.Start()
				release = occupy(t, tw, 1)
				added++
			}
			must(t, tw.AddTask(&timewheel.Task{Key: "c", Interval: 10 * ms, Delay: 300 * ms, Times: 7, Job: j.job}))
			must(t, tw.AddTask(every("e", time.Hour, j.job)))
			must(t, tw.AddTask(once("b", 41*ms, j.job)))
			must(t, tw.AddTask(times("a", 35*ms, 5, j.job)))
			must(t, tw.AddTask(once("d", time.Hour, j.job)))
			must(t, tw.AddTask(once("removed", time.Hour, j.job)))
			must(t, tw.AddTask(once("f", ms, j.job)))
			tw.AfterFunc(2*time.Hour, func() { j.note("timer") })
			stopped := tw.AfterFunc(time.Hour, func() { j.note("timer") })
			testkit.Settle(50 * ms) // a and b are due, and wait
			must(t, tw.Reschedule("f", 3*time.Hour))
			must(t, tw.Reschedule("d", time.Hour-60*ms)) // before e
			must(t, tw.RemoveTask("removed"))
			stopped.Stop()
			if state == "after Stop" {
				tw.Stop()
			}
			var got []string
			n, err := tw.Drain(func(task *timewheel.Task) {
				got = append(got, fmt.Sprintf("%s in %v, then every %v, %d times",
					task.Key, task.Delay, task.Interval, task.Times))
				if task.Key != "" && tw.Exist(task.Key) || task.Job == nil || tw.Len() != 0 {
					t.Errorf("while %q is handed out: Exist %v, Len %d", task.Key, tw.Exist(task.Key), tw.Len())
				}
				everyVerb(t, tw)
				if task.Key == "c" {
					task.Job(task)
				}
			})
			must(t, err)
			wantEqual(t, state, got, []string{
				"a in 1ns, then every 35ms, 5 times",
				"b in 1ns, then every 41ms, 1 times",
				"c in 250ms, then every 10ms, 7 times",
				"d in 59m59.94s, then every 1h0m0s, 1 times",
				"e in 59m59.95s, then every 1h0m0s, -1 times",
				" in 1h59m59.95s, then every 0s, 1 times",
				"f in 3h0m0s, then every 1ms, 1 times",
			})
			wantEqual(t, "drained tasks", n, 7)
			wantEqual(t, "tasks left", len(keysOf(tw))+tw.Len(), 0)
			if state != "after Stop" {
				added += 7 * verbsAdded
			}
			if release != nil {
				release()
			}
			tw.Start()
			testkit.Settle(24 * time.Hour)
			wantEqual(t, "runs", j.keys(), []string{"c"}) // by the test
			balanced(t, tw, added)
		})
	}
}

func TestDrain_isEnoughToGoOnElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		from, to, j := startWheel(t, 10*ms, 16), startWheel(t, 10*ms, 7), newJournal()
		must(t, from.AddTask(times("a", 100*ms, 4, j.job)))
		must(t, from.AddTask(once("b", 333*ms, j.job)))
		testkit.Settle(150 * ms)
		n, err := from.Drain(func(task *timewheel.Task) { must(t, to.AddTask(task)) })
		must(t, err)
		wantEqual(t, "drained tasks", n, 2)
		testkit.Settle(time.Second)
		j.want(t, "a", 100*ms, 200*ms, 300*ms, 400*ms)
		j.want(t, "b", 340*ms)
		balanced(t, from, 2)
		balanced(t, to, 2)
	})
}

func TestDrain_keyAddedAgain_runs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 60), newJournal()
		for range 3 {
			must(t, tw.AddTask(once("k", 50*ms, j.job)))
			testkit.Settle(20 * ms)
			n, err := tw.Drain(func(*timewheel.Task) {})
			must(t, err)
			wantEqual(t, "drained tasks", n, 1)
		}
		must(t, tw.AddTask(once("k", 50*ms, j.job)))
		testkit.Settle(time.Second)
		j.want(t, "k", 110*ms)
	})
}

func TestPoolSize_boundsTheRunsThatGoOn(t *testing.T) {
	for _, c := range []struct {
		opts []timewheel.Option
		want int
	}{
		{nil, 1024},
		{[]timewheel.Option{timewheel.WithPoolSize(1)}, 1},
		{[]timewheel.Option{timewheel.WithPoolSize(37)}, 37},
	} {
		inBubble(t, func(t *testing.T) {
			tw := startWheel(t, 10*ms, 16, c.opts...)
			var now, most atomic.Int64
			for i := range 3000 {
				must(t, tw.AddTask(once(name(i), time.Duration(i)*10*time.Microsecond+1, func(*timewheel.Task) {
					n := now.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						continue
					}
					time.Sleep(time.Second)
					now.Add(-1)
				})))
			}
			testkit.Settle(100 * ms)
			s := balanced(t, tw, 3000)
			wantEqual(t, "Running", s.Running, c.want)
			wantEqual(t, "Waiting", s.Waiting, 3000-c.want)
			testkit.Settle(time.Hour)
			wantEqual(t, "most runs at the same time", most.Load(), int64(c.want))
			wantEqual(t, "runs", balanced(t, tw, 3000).Started, uint64(3000))
		})
	}
}

func TestSkipIfRunning_doesNothingWhileAnEarlierRunGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16, quiet()), newJournal()
		trouble := false
		must(t, tw.AddTask(times("k", 100*ms, 10, timewheel.SkipIfRunning(func(task *timewheel.Task) {
			j.job(task)
			time.Sleep(250 * ms)
			if trouble = !trouble; trouble {
				panic("trouble") // the next run is not skipped because of it
			}
		}))))
		testkit.Settle(10 * time.Second)
		j.want(t, "k", 100*ms, 400*ms, 700*ms, 1000*ms)
		if s := balanced(t, tw, 1); s.Started != 10 || s.Finished != 1 {
			t.Errorf("Started %d and Finished %d: a run that is skipped is a run", s.Started, s.Finished)
		}
	})
}

// A job may call every method that other callers may call.
func TestJob_thatCallsEveryVerb_doesNotWaitForItself(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16, timewheel.WithPoolSize(2)), newJournal()
		must(t, tw.AddTask(times("k", 20*ms, 3, func(task *timewheel.Task) {
			j.job(task)
			everyVerb(t, tw)
			switch task.Times {
			case 2:
				should(t, tw.Reschedule("k", 50*ms))
			case 1:
				n, err := tw.Drain(func(*timewheel.Task) {})
				should(t, err)
				wantEqual(t, "drained in the run", n, 1)
				should(t, tw.AddTask(once("k", 20*ms, task.Job)))
				should(t, tw.SetTask(once("k", 30*ms, func(task *timewheel.Task) {
					j.job(task)
					tw.Stop()
				})))
			}
		})))
		testkit.Settle(time.Second)
		j.want(t, "k", 20*ms, 70*ms, 100*ms)
		wantEqual(t, "IsRunning", tw.IsRunning(), false)
		balanced(t, tw, 3+2*verbsAdded)
	})
}
