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
				(start + 3) % 60: {Slots: 1, Near: 1, Far: 2},
				start:            {Slots: 1, Near: 1},
				(start + 1) % 60: {Slots: 1, Far: 1},
			}
			if w.layout == Hierarchical { // where the task of a whole turn is on the second level, until the hand comes to the top
				want[start] = Sector{Slots: 1, Far: 1}
			}
			for i, s := range d.Sectors {
				if want, ok := want[i]; s != want && (ok || s != Sector{Slots: 1}) {
					t.Errorf("slot %d has %+v, want %+v", i, s, want)
				}
			}
		}
		w.advance(30 * time.Millisecond)
		if d := w.Dial(60); d.Hand != (start+3)%60 || d.Sectors[d.Hand] != (Sector{Slots: 1, Far: 2}) {
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
				n, all := 0, 0
				for _, s := range d.Sectors {
					n += s.Near + s.Far
					all += s.Slots
				}
				if n != 500 || all != slots {
					t.Fatalf("%d slots in %d sectors are %d with %d tasks, want 500", slots, sectors, all, n)
				}
			}
		})
	}
}

// The sum of near and far is exact whatever the slots; what is near is estimated, wherever the tasks are.
func TestDial_wheelOfManySlots_isEstimated(t *testing.T) {
	for _, every := range []int{1, 2, 64} {
		const slots = 1<<17 + 5
		plan{slots: slots, tick: time.Microsecond}.in(t, func(t *testing.T, w *rig) {
			for i := 0; i < slots; i += every {
				w.once(fmt.Sprint("near ", i), time.Duration(1+i)*time.Microsecond)
				w.once(fmt.Sprint("far ", i), time.Duration(1+i+2*slots)*time.Microsecond)
			}
			d := w.Dial(8)
			near, all, width := 0, 0, 0
			for _, s := range d.Sectors {
				near += s.Near
				all += s.Near + s.Far
				width += s.Slots
			}
			if all != w.Len() || width != slots {
				t.Errorf("%d slots have %d tasks, want %d", width, all, w.Len())
			}
			if near < all*4/10 || near > all*6/10 {
				t.Errorf("%d tasks of %d are near, want half of them", near, all)
			}
		})
	}
}

// A wheel of one slot has two slots a level if it is hierarchical.
func TestDial_oneSlot_nearIsWhatIsDueAtTheNextTick(t *testing.T) {
	plan{slots: 1}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		for i := range 5 {
			w.once(fmt.Sprint(i), time.Duration(i+1)*10*time.Millisecond)
		}
		for i := range 5 {
			s := w.Dial(1).Sectors[0]
			if s.Near+s.Far != 5-i || s.Near > 1 || w.layout == Hashed && s.Near != 1 {
				t.Errorf("after %d ticks the slot has %+v", i, s)
			}
			w.advance(10 * time.Millisecond)
		}
	})
}

// 30,000 tasks that nobody touched for 64 turns would all have to be moved for a Dial, and are not.
func TestDial_farTasks_areMovedInBoundedNumbers(t *testing.T) {
	plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
		w.Start()
		for i := range 30_000 { // 500 a slot
			w.once(fmt.Sprint(i), 70*turn+time.Duration(i)*20*time.Microsecond)
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
		if moved := levels() - before; moved == 0 || moved > maxMoves {
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
		if got := len(w.Upcoming(math.MaxInt)); got != maxUpcoming {
			t.Errorf("the next are %d", got)
		}
		if steps := w.steps(8); steps != maxSteps {
			t.Errorf("%d steps were made", steps)
		}
	})
}

// steps returns how many steps the search for the next n tasks takes.
func (w *rig) steps(n int) (steps int) {
	w.loop.do(func() {
		s := search{steps: maxSteps}
		w.loop.searchLoop(&s, make([]dueEntry, 0, n))
		steps = maxSteps - s.steps
	})
	return steps
}

// A wheel of very many slots, with tasks that were put off again and again: where they wait says nothing of when
// they are due.
func TestUpcoming_tasksThatWerePutOff_costBounded(t *testing.T) {
	plan{slots: 1 << 16, tick: time.Millisecond}.in(t, func(t *testing.T, w *rig) {
		for i := range 1 << 13 {
			w.once(fmt.Sprint(i), time.Duration(1+8*i)*time.Millisecond)
			if err := w.Reschedule(fmt.Sprint(i), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if steps := w.steps(8); steps != maxSteps {
			t.Errorf("%d steps were made", steps)
		}
		if got := len(w.Upcoming(8)); got != 8 {
			t.Errorf("the next are %d", got)
		}
	})
}

// In a wheel in which tasks fall due all the while the next ones are exact, however many wait behind them.
func TestUpcoming_manyTasksFarAndNear_areTheVeryNext(t *testing.T) {
	plan{slots: 1024}.in(t, func(t *testing.T, w *rig) {
		w.Start()
		r := random(1)
		for i := range 50_000 {
			w.once(fmt.Sprint(i), time.Duration(1+r.Int64N(int64(90*time.Minute))))
		}
		for range 20 {
			w.advance(time.Duration(r.Int64N(int64(4 * time.Minute))))
			var all []Info
			for info := range w.All() {
				all = append(all, info)
			}
			slices.SortFunc(all, func(a, b Info) int { return a.Next.Compare(b.Next) })
			if got := w.Upcoming(8); !slices.Equal(got, all[:min(8, len(all))]) {
				t.Fatalf("the next are\n%v, want\n%v", got, all[:min(8, len(all))])
			}
		}
	})
}

func TestUpcoming_whatWaitsForAWorker_isNotToldOf(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		ran := make(chan struct{})
		w.add(&Task{Key: "k", Interval: 10 * time.Millisecond, Times: Forever, Job: func(*Task) { <-ran }})
		w.add(&Task{Key: "far", Interval: time.Hour})
		w.Start()
		w.advance(10 * time.Millisecond)
		w.advance(10 * time.Millisecond) // a run goes on, and the next waits
		for _, info := range w.Upcoming(8) {
			if info.Waiting || info.Key != "far" {
				t.Errorf("one is told of that waits for a worker: %+v", info)
			}
		}
		if got := w.Running(8); len(got) != 1 || got[0].Key != "k" {
			t.Errorf("the runs are %+v", got)
		}
		close(ran)
	})
}

func TestUpcoming_fewTasks_takesFewSteps(t *testing.T) {
	plan{slots: 1 << 16, tick: time.Millisecond}.in(t, func(t *testing.T, w *rig) {
		for i := range 1 << 13 {
			w.once(fmt.Sprint(i), time.Duration(1+8*i)*time.Millisecond)
		}
		if steps := w.steps(8); steps > 500 {
			t.Errorf("%d steps were made for the next 8", steps)
		}
	})
}

func TestRunning_veryMany_looksAtSome(t *testing.T) {
	plan{opts: []Option{WithPoolSize(2 * maxWorkers)}}.in(t, func(t *testing.T, w *rig) {
		end := make(chan struct{})
		for i := range 2 * maxWorkers {
			w.add(&Task{Key: fmt.Sprint(i), Interval: time.Second, Job: func(*Task) { <-end }})
		}
		w.Start()
		w.advance(time.Second)
		if got := w.Running(math.MaxInt); len(got) != maxRunning || got[0].Key != "0" || w.Stats().Running != 2*maxWorkers {
			t.Errorf("%d runs are told of %d", len(got), w.Stats().Running)
		}
		if got := w.Running(math.MinInt); len(got) != 0 {
			t.Errorf("%d runs are told of none", len(got))
		}
		close(end)
		synctest.Wait()
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
