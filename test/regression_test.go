// SPDX-License-Identifier: MIT

package test

import (
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// The mistakes that wheels of this kind are known for, one test each.

func TestRegression_aDelayOfOneRevolution_doesNotFireAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, time.Second, 60), newJournal()
		settle(17 * time.Second)
		must(t, tw.AddTask(once("k", time.Minute, j.job)))
		settle(time.Hour)
		j.want(t, "k", 77*time.Second)
	})
}

func TestRegression_anIntervalBelowATick_doesNotWaitARevolution(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, time.Second, 60), newJournal()
		must(t, tw.AddTask(times("k", 300*ms, 3, j.job)))
		settle(time.Hour)
		j.want(t, "k", time.Second, 2*time.Second, 3*time.Second)
	})
}

func TestRegression_25msOnA10msWheel_isNot20(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 60), newJournal()
		must(t, tw.AddTask(every("k", 25*ms, j.job)))
		settle(10 * time.Second)
		wantEqual(t, "runs in 10 s", j.count("k"), 400)
	})
}

func TestRegression_aFullPool_dropsNoneOfAThousandJobs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 60, timewheel.WithPoolSize(16)), newJournal()
		for i := range 1000 {
			must(t, tw.AddTask(once(name(i), 50*ms, func(task *timewheel.Task) {
				j.note("ran")
				time.Sleep(100 * ms)
			})))
		}
		settle(time.Minute)
		wantEqual(t, "jobs that ran", j.count("ran"), 1000)
	})
}

func TestRegression_exist_isTrueRightAfterAddTask(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := startWheel(t, ms, 60)
		for i := range 10_000 {
			must(t, tw.AddTask(once(name(i), time.Hour, nothing)))
			if !tw.Exist(name(i)) {
				t.Fatalf("task %d was added and is not there", i)
			}
		}
	})
}

func TestRegression_twoAddsOfOneKeyAtTheSameTime_doNotBothWin(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := startWheel(t, ms, 60)
		won := 0
		add := func() error { return tw.AddTask(once("k", time.Hour, nothing)) }
		for range 2000 {
			other := make(chan error)
			go func() { other <- add() }()
			mine := add()
			if theirs := <-other; (mine == nil) == (theirs == nil) {
				t.Fatalf("of two adds of one key: %v and %v", mine, theirs)
			}
			won++
			must(t, tw.RemoveTask("k"))
		}
		balanced(t, tw, won)
	})
}

func TestRegression_addTask_blocksNeitherBeforeStartNorAfterStop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := newWheel(t, time.Second, 60)
		before := time.Now()
		must(t, tw.AddTask(once("a", time.Hour, nothing)))
		tw.Start()
		tw.Stop()
		if err := tw.AddTask(once("b", time.Hour, nothing)); err == nil {
			t.Error("a stopped wheel took a task")
		}
		wantEqual(t, "time it took", time.Since(before), 0*time.Second)
		wantEqual(t, "tasks", keysOf(tw), []string{"a"})
	})
}

func TestRegression_stop_blocksNeitherBeforeStartNorTheSecondTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		before := time.Now()
		for _, started := range []bool{false, true} {
			tw := newWheel(t, time.Second, 60)
			if started {
				tw.Start()
			}
			tw.Stop()
			tw.Stop()
			wantEqual(t, "IsRunning", tw.IsRunning(), false)
		}
		wantEqual(t, "time it took", time.Since(before), 0*time.Second)
	})
}

// Every way from one slot to another, with the hand before, at and after both of them.
func TestRegression_aMoveToANearerSlot_doesNotFireARevolutionLateOrEarly(t *testing.T) {
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
		settle(time.Hour)
		for key, at := range want {
			j.want(t, key, at)
		}
		balanced(t, tw, len(want))
	})
}

func TestRegression_afterDrain_aKeyFiresAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 60), newJournal()
		for range 3 {
			must(t, tw.AddTask(once("k", 50*ms, j.job)))
			settle(20 * ms)
			n, err := tw.Drain(func(*timewheel.Task) {})
			must(t, err)
			wantEqual(t, "drained tasks", n, 1)
		}
		must(t, tw.AddTask(once("k", 50*ms, j.job)))
		settle(time.Second)
		j.want(t, "k", 110*ms)
	})
}

func TestRegression_aTaskAddedAgain_isNotHitByTheOldRemove(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 60), newJournal()
		for range 1000 { // the loop has not heard of the old ones when the last is added
			must(t, tw.AddTask(once("k", 50*ms, nothing)))
			must(t, tw.RemoveTask("k"))
		}
		must(t, tw.AddTask(once("k", 50*ms, j.job)))
		settle(ms)
		wantEqual(t, "Exist", tw.Exist("k"), true)
		settle(time.Second)
		j.want(t, "k", 50*ms)
	})
}
