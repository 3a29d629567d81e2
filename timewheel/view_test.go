// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

const turn = 60 * 10 * time.Millisecond // one circle of a rig's wheel by default

func TestOccupancy_countsSlotBySlot(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		start := w.Hand().Slot
		w.once("near", 30*time.Millisecond)
		w.once("a whole turn", turn)
		w.once("a turn and a tick", turn+10*time.Millisecond)
		w.once("five turns", 5*turn+30*time.Millisecond)
		w.once("ninety turns", 90*turn+30*time.Millisecond)
		want := map[int]int{(start + 3) % 60: 3, start: 1, (start + 1) % 60: 1}
		for slot, s := range w.Occupancy(60) {
			if s != (Sector{1, want[slot]}) {
				t.Errorf("slot %d has %+v, want %d tasks", slot, s, want[slot])
			}
		}
		if err := w.Reschedule("near", time.Hour+10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if s := w.Occupancy(60)[(start+3)%60]; s.Tasks != 3 {
			t.Errorf("a task that was put off does not wait where it did: %+v", s)
		}
		w.advance(30 * time.Millisecond)
		if s := w.Occupancy(60)[(start+1)%60]; s.Tasks != 2 {
			t.Errorf("after its old deadline a task that was put off is not in its slot: %+v", s)
		}
	})
}

func TestHand_isWhereTheClockIs(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		before := w.Hand()
		if before.Slots != 60 || before.Tick != 10*time.Millisecond || before.Layout != w.layout {
			t.Errorf("the hand is of another wheel: %+v", before)
		}
		w.advance(time.Second)
		if h := w.Hand(); h != before {
			t.Errorf("before Start the hand moved from %v to %v", before, h)
		}
		w.Start()
		start := w.Hand().Slot
		for i := range 100 {
			if h := w.Hand(); h.Slot != (start+i)%60 {
				t.Fatalf("after %d ticks the hand is at %d, from %d", i, h.Slot, start)
			}
			w.advance(10 * time.Millisecond)
		}
		w.Stop()
		end := w.Hand()
		w.advance(time.Second)
		if h := w.Hand(); h != end {
			t.Errorf("after Stop the hand moved from %v to %v", end, h)
		}
	})
}

func TestOccupancy_anyNumberOfSectors_countsEveryTaskOnce(t *testing.T) {
	testkit.NotForRaces(t)
	for _, slots := range []int{1, 2, 7, 60, 1500, 2048, 2049, 1<<17 + 5} {
		plan{slots: slots, tick: time.Microsecond}.in(t, func(t *testing.T, w *rig) {
			for i := range 500 {
				w.once(fmt.Sprint(i), time.Duration(1+i*i)*time.Millisecond)
			}
			for _, sectors := range []int{math.MinInt, -1, 0, 1, 2, 3, 59, 60, 61, 1024, 5000, math.MaxInt} {
				all := w.Occupancy(sectors)
				if want := min(max(sectors, 1), slots, maxSectors); len(all) != want {
					t.Fatalf("%d slots in %d sectors are %d", slots, sectors, len(all))
				}
				tasks, width := 0, 0
				least, most := all[0].Slots, 0
				for _, s := range all[:len(all)-1] {
					least, most = min(least, s.Slots), max(most, s.Slots)
				}
				for _, s := range all {
					tasks += s.Tasks
					width += s.Slots
				}
				if tasks != 500 || width != slots || most > 2*least+64 {
					t.Fatalf("%d slots in %d sectors are %d with %d tasks, want 500; from %d to %d wide",
						slots, sectors, width, tasks, least, most)
				}
			}
		})
	}
}

// upcoming returns the keys of the next n tasks.
func (w *rig) upcoming(n int) (keys []string) {
	for _, info := range w.Upcoming(n) {
		keys = append(keys, info.Key)
	}
	return keys
}

func TestUpcoming_returnsWhatIsDueWithinATurn(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.once("beyond", turn+20*time.Millisecond)
		w.once("b", turn/2)
		w.once("c", turn/2+10*time.Millisecond)
		w.once("a", 5*time.Millisecond)
		w.once("e", math.MaxInt64)
		w.AfterFunc(turn-30*time.Millisecond, func() {})
		w.add(&Task{Key: "put off", Interval: turn / 4, Times: Forever})
		w.add(&Task{Key: "put off farther", Interval: turn / 4, Times: Forever})
		for key, d := range map[string]time.Duration{"put off": turn/2 + 20*time.Millisecond, "put off farther": 2 * turn} {
			if err := w.Reschedule(key, d); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"a", "b", "c", "put off", ""}
		for range 2 { // before Start and after it
			for n := range 9 {
				got := w.upcoming(n)
				if n >= len(want) && !slices.Equal(got, want) || len(got) != min(n, len(want)) {
					t.Errorf("the next %d are %q", n, got)
				}
			}
			w.Start()
		}
		if got := w.Upcoming(-1); len(got) != 0 {
			t.Errorf("the next -1 are %v", got)
		}
		w.Stop()
		if got := w.upcoming(math.MaxInt); !slices.Equal(got, want) {
			t.Errorf("after Stop there are %d", len(got))
		}
	})
}

// In a wheel whose tasks fall due continually, Upcoming returns exactly the next tasks, however many tasks wait behind
// them.
func TestUpcoming_manyTasksFarAndNear_areTheVeryNext(t *testing.T) {
	testkit.NotForRaces(t)
	plan{slots: 1024}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		r := random(1)
		for i := range 50_000 {
			w.once(fmt.Sprint(i), time.Duration(1+r.Int64N(int64(90*time.Minute/(10*time.Millisecond))))*10*time.Millisecond)
		}
		for range 20 {
			w.advance(time.Duration(r.Int64N(int64(4 * time.Minute))))
			last := w.hand.Time(w.hand.Now()).Add(1024 * 10 * time.Millisecond)
			var all []time.Time
			for info := range w.All() {
				if !info.Next.After(last) {
					all = append(all, info.Next)
				}
			}
			slices.SortFunc(all, time.Time.Compare)
			var got []time.Time
			for _, info := range w.Upcoming(8) {
				got = append(got, info.Next)
			}
			if !slices.Equal(got, all[:min(8, len(all))]) {
				t.Fatalf("the next are due at\n%v, want\n%v", got, all[:min(8, len(all))])
			}
		}
	})
}

func TestUpcoming_whatWaitsForAWorker_comesFirst(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		ran := make(chan struct{})
		w.add(&Task{Key: "busy", Interval: 10 * time.Millisecond, Job: func(*Task) { <-ran }})
		w.add(&Task{Key: "k", Interval: 20 * time.Millisecond, Times: Forever})
		w.once("once", 30*time.Millisecond)
		w.once("soon", 100*time.Millisecond)
		w.Start()
		for range 5 {
			w.advance(10 * time.Millisecond)
		}
		for n, want := range [][]string{nil, {"k"}, {"k", "once"}, {"k", "once", "soon"}, {"k", "once", "soon"}} {
			got := w.Upcoming(n)
			for i, info := range got {
				if info.Waiting != (i < 2) {
					t.Errorf("number %d is %+v", i, info)
				}
			}
			if keys := w.upcoming(n); !slices.Equal(keys, want) {
				t.Errorf("the next %d are %q, want %q", n, keys, want)
			}
		}
		if s := w.Stats(); s.OldestWait != 30*time.Millisecond {
			t.Errorf("the run that has waited longest has waited %v", s.OldestWait)
		}
		close(ran)
		synctest.Wait()
		if s := w.Stats(); s.OldestWait != 0 {
			t.Errorf("nothing waits, and the longest has waited %v", s.OldestWait)
		}
	})
}

// Upcoming reads at most as many waiting runs as requested, and at most 8,192, because it holds the dispatcher's lock.
func TestUpcoming_veryManyWait_looksAtTheFirst(t *testing.T) {
	testkit.NotForRaces(t)
	plan{tick: time.Millisecond}.in(t, func(t *testing.T, w *rig) {
		end := make(chan struct{})
		defer close(end)
		w.Start()
		w.AfterFunc(0, func() { <-end })
		w.advance(time.Millisecond)
		for i := range maxVisit + 100 {
			w.once(fmt.Sprint(i), time.Duration(1+i)*time.Millisecond)
		}
		w.advance(time.Minute)
		if got := w.dispatch.queued(8); len(got) != 8 || got[0].key != "0" || got[7].key != "7" {
			t.Errorf("%d waiting runs were read, want the first 8", len(got))
		}
		if got := len(w.Upcoming(math.MaxInt)); got != maxVisit {
			t.Errorf("the next are %d, want %d", got, maxVisit)
		}
	})
}

// The loop looks at a bounded number of tasks, however many are due or were postponed.
func TestUpcoming_veryMany_looksAtSome(t *testing.T) {
	testkit.NotForRaces(t)
	plan{slots: 1 << 16, tick: time.Millisecond}.in(t, func(t *testing.T, w *rig) {
		for i := range 3 * maxVisit {
			w.once(fmt.Sprint(i), time.Duration(1+i)*time.Millisecond)
			if err := w.Reschedule(fmt.Sprint(i), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(w.Upcoming(8)); got != 0 {
			t.Errorf("%d tasks that were put off beyond a turn come next", got)
		}
		for i := range 2 * maxVisit {
			w.once(fmt.Sprint("next ", i), time.Microsecond)
		}
		if got := len(w.Upcoming(math.MaxInt)); got != maxVisit-1 { // one of the postponed tasks is among them
			t.Errorf("the next are %d", got)
		}
	})
}

func TestLongestRuns_veryMany_areAll(t *testing.T) {
	const n = 2000
	plan{opts: []Option{WithPoolSize(n)}}.in(t, func(t *testing.T, w *rig) {
		end := make(chan struct{})
		for i := range n {
			w.add(&Task{Key: fmt.Sprint(i), Interval: time.Second, Job: func(*Task) { <-end }})
		}
		w.Start()
		w.advance(time.Second)
		if got := w.LongestRuns(math.MaxInt); len(got) != n || w.Stats().Running != n {
			t.Errorf("%d runs are returned of %d", len(got), w.Stats().Running)
		}
		if got := w.LongestRuns(math.MinInt); len(got) != 0 {
			t.Errorf("%d runs are returned of none", len(got))
		}
		close(end)
		synctest.Wait()
	})
}

func TestLongestRuns_longestFirst(t *testing.T) {
	for _, observed := range []bool{false, true} {
		opts := []Option{WithPoolSize(3)}
		if observed {
			opts = append(opts, WithObserver(func(Run) {}))
		}
		plan{opts: opts}.in(t, func(t *testing.T, w *rig) {
			ends := make(map[string]chan struct{})
			for i, key := range []string{"a", "b", "c", "waits"} {
				ends[key] = make(chan struct{})
				w.add(&Task{Key: key, Interval: time.Duration(i+1) * 100 * time.Millisecond, Job: func(task *Task) { <-ends[task.Key] }})
			}
			w.Start()
			running := func(n int) (keys []string) {
				for _, r := range w.LongestRuns(n) {
					keys = append(keys, r.Key)
					if r.Due.IsZero() || r.Dispatched.Before(r.Due) || observed == r.Started.IsZero() || !r.Ended.IsZero() {
						t.Errorf("the account is %+v", r)
					}
				}
				return keys
			}
			for range 4 {
				w.advance(100 * time.Millisecond)
			}
			for n, want := range [][]string{nil, {"a"}, {"a", "b"}, {"a", "b", "c"}, {"a", "b", "c"}} {
				if got := running(n); !slices.Equal(got, want) {
					t.Errorf("the %d longest are %q, want %q", n, got, want)
				}
			}
			close(ends["b"])
			synctest.Wait()
			if got := running(9); !slices.Equal(got, []string{"a", "c", "waits"}) {
				t.Errorf("after the end of one there are %q", got)
			}
			for _, key := range []string{"a", "c", "waits"} {
				close(ends[key])
			}
			synctest.Wait()
			if got := running(9); len(got) != 0 {
				t.Errorf("after the end of all there are %q", got)
			}
		})
	}
}

// The printed form labels its numbers.
func TestString_ofStatsAndInfo_reads(t *testing.T) {
	s := Stats{Added: 9, Finished: 2, Removed: 3, Pending: 4, Due: 8, Started: 5, Missed: 1, Withdrawn: 2, Panicked: 6,
		Running: 7, Workers: 10}
	for want, s := range map[string]Stats{
		"4 tasks pending; 0 runs waiting, 7 running on at most 10 workers; tasks: 9 added, 2 finished, 3 removed; " +
			"runs: 8 due, 5 started, 1 missed, 2 withdrawn, 6 panicked": s,
		"1 tasks pending, 1 of them paused; 2 runs waiting, 0 running, the oldest wait is 3s; tasks: 0 added, 0 finished, " +
			"0 removed; runs: 0 due, 0 started, 0 missed, 0 withdrawn, 0 panicked": {
			Pending: 1, Paused: 1, Waiting: 2, OldestWait: 3 * time.Second},
	} {
		if got := fmt.Sprint(s); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	next := time.Date(2000, 1, 2, 3, 4, 5, 6e6, time.FixedZone("", 3600))
	for want, i := range map[string]Info{
		`"a": due 2000-01-02T03:04:05.006+01:00, in slot 7 after 2 more circles, runs left: 1`: {
			Key: "a", Next: next, Slot: 7, Circle: 2, Times: 1},
		`"a": due since 2000-01-02T03:04:05.006+01:00, waiting for a worker, every 1m0s, forever`: {
			Key: "a", Next: next, Waiting: true, Interval: time.Minute, Times: Forever},
		`"a": paused, due 2000-01-02T03:04:05.006+01:00 if it was resumed now, runs left: 2`: {
			Key: "a", Next: next, Paused: true, Times: 2},
	} {
		if got := fmt.Sprint(i); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
