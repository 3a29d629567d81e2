// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const turn = 60 * 10 * time.Millisecond // of a rig's wheel, unless it is planned otherwise

func TestDial_tasksNearAndFar_areToldApartSlotBySlot(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		start := w.Dial(1).Hand
		w.once("near", 30*time.Millisecond)
		w.once("a whole turn", turn)
		w.once("a turn and a tick", turn+10*time.Millisecond)
		w.once("five turns", 5*turn+30*time.Millisecond)
		w.once("ninety turns", 90*turn+30*time.Millisecond)
		for range 2 {
			d := w.Dial(60)
			if d.Tick != 10*time.Millisecond || d.Slots != 60 || d.Layout != w.layout || len(d.Sectors) != 60 {
				t.Fatalf("the dial is of another wheel: %+v", d)
			}
			want := map[int]Sector{
				(start + 3) % 60: {Near: 1, Far: 2},
				start:            {Near: 1},
				(start + 1) % 60: {Far: 1},
			}
			if w.layout == Hierarchical { // where the task of a whole turn is on the second level, until the hand comes to the top
				want[start] = Sector{Far: 1}
			}
			for i, s := range d.Sectors {
				if s != want[i] {
					t.Errorf("slot %d has %+v, want %+v", i, s, want[i])
				}
			}
		}
		w.advance(30 * time.Millisecond)
		if d := w.Dial(60); d.Hand != (start+3)%60 || d.Sectors[d.Hand] != (Sector{Far: 2}) {
			t.Errorf("three ticks later the hand is at %d, over %+v", d.Hand, d.Sectors[d.Hand])
		}
	})
}

func TestDial_sleepingWheel_hasItsHandWhereTheClockIs(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		before := w.Dial(1).Hand
		w.advance(time.Second)
		if d := w.Dial(1); d.Hand != before {
			t.Errorf("before Start the hand moved from %d to %d", before, d.Hand)
		}
		w.Start()
		start := w.Dial(1).Hand
		for i := range 100 {
			if d := w.Dial(1); d.Hand != (start+i)%60 {
				t.Fatalf("after %d ticks the hand is at %d, from %d", i, d.Hand, start)
			}
			w.advance(10 * time.Millisecond)
		}
		w.Stop()
		end := w.Dial(1).Hand
		w.advance(time.Second)
		if d := w.Dial(1); d.Hand != end {
			t.Errorf("after Stop the hand moved from %d to %d", end, d.Hand)
		}
	})
}

func TestDial_anyNumberOfSectors_countsEveryTaskOnce(t *testing.T) {
	for _, slots := range []int{1, 2, 7, 60, 4096} {
		plan{slots: slots}.in(t, func(t *testing.T, w *rig) {
			for i := range 500 {
				w.once(fmt.Sprint(i), time.Duration(1+i*i)*time.Millisecond)
			}
			for _, sectors := range []int{math.MinInt, -1, 0, 1, 2, 3, 59, 60, 61, 1024, 5000, math.MaxInt} {
				d := w.Dial(sectors)
				if want := min(max(sectors, 1), slots, maxSectors); len(d.Sectors) != want {
					t.Fatalf("%d slots in %d sectors are %d", slots, sectors, len(d.Sectors))
				}
				n := 0
				for _, s := range d.Sectors {
					n += s.Near + s.Far
				}
				if n != 500 {
					t.Fatalf("%d slots in %d sectors have %d tasks, want 500", slots, sectors, n)
				}
			}
		})
	}
}

func TestDial_wheelOfManySlots_isEstimated(t *testing.T) {
	const slots = 1 << 17
	plan{slots: slots, tick: time.Microsecond}.in(t, func(t *testing.T, w *rig) {
		for i := range slots {
			w.once(fmt.Sprint(i), time.Duration(1+i)*time.Microsecond)
		}
		d := w.Dial(8)
		for i, s := range d.Sectors {
			if s.Near+s.Far != slots/8 {
				t.Errorf("sector %d of a wheel with a task in every slot has %+v", i, s)
			}
		}
	})
}

// 100,000 tasks that nobody touched for 64 turns would all have to be moved for a Dial, and are not.
func TestDial_farTasks_areMovedInBoundedNumbers(t *testing.T) {
	plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		w.once("the first", turn)
		for i := range 100_000 {
			w.once(fmt.Sprint(i), 70*turn+time.Duration(i)*time.Microsecond)
		}
		w.advance(63 * turn)
		levels := func() (first int) {
			w.loop.do(func() {
				r := w.loop.layout.(*ring)
				for i := range r.slots {
					for l := r.slots[i].levels; l != nil && l.shift == 0; l = l.up {
						for _, n := range l.lengths {
							first += int(n)
						}
					}
				}
			})
			return first
		}
		before := levels()
		w.Dial(60)
		if moved := levels() - before; moved > maxMoves {
			t.Errorf("a dial moved %d tasks", moved)
		}
	})
}

func TestUpcoming_returnsWhatIsDueNext(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		w.once("d", 100*turn)
		w.once("b", 7*turn)
		w.once("c", 7*turn+time.Millisecond)
		w.once("a", 5*time.Millisecond)
		w.once("e", math.MaxInt64)
		w.AfterFunc(time.Hour, func() {})
		w.add(&Task{Key: "put off", Interval: time.Second, Times: Forever})
		if err := w.Reschedule("put off", 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		want := []string{"a", "b", "c", "d", "", "put off", "e"}
		for range 2 { // before Start and after it
			for n := range 9 {
				var keys []string
				for _, info := range w.Upcoming(n) {
					keys = append(keys, info.Key)
				}
				if !slices.Equal(keys, want[:min(n, len(want))]) {
					t.Errorf("the next %d are %q", n, keys)
				}
			}
			w.Start()
		}
		if got := w.Upcoming(-1); len(got) != 0 {
			t.Errorf("the next -1 are %v", got)
		}
		if got := len(w.Upcoming(math.MaxInt)); got != len(want) {
			t.Errorf("there are %d in all", got)
		}
		w.Stop()
		if got := len(w.Upcoming(10)); got != len(want) {
			t.Errorf("after Stop there are %d", got)
		}
	})
}

func TestUpcoming_veryManyAtOnce_looksAtSome(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		for i := range 10 * maxSteps {
			w.once(fmt.Sprint(i), time.Second)
		}
		if got := len(w.Upcoming(20 * maxSteps)); got != maxSteps {
			t.Errorf("of %d tasks %d were looked at", 10*maxSteps, got)
		}
	})
}

func TestRunning_longestFirst(t *testing.T) {
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
				for _, r := range w.Running(n) {
					keys = append(keys, r.Key)
					if r.Due.IsZero() || r.Handed.Before(r.Due) || observed == r.Started.IsZero() || !r.Ended.IsZero() {
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
