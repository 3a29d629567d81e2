// SPDX-License-Identifier: MIT

package test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// latenesses adds tasks by every verb that sets a due time, at odd moments and for odd delays, and returns how late the
// run of each task began.
func latenesses(t *testing.T, tick time.Duration, slots int) (late []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw := startWheel(t, tick, slots)
		random := seeded()
		var mu sync.Mutex
		expect := func(d time.Duration) func() {
			due := time.Now().Add(d)
			return func() {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, time.Since(due))
			}
		}
		job := func(f func()) timewheel.Job { return func(*timewheel.Task) { f() } }
		verbs := []func(key string, d time.Duration) error{
			func(key string, d time.Duration) error { return tw.AddTask(once(key, d, job(expect(d)))) },
			func(key string, d time.Duration) error {
				return tw.AddTask(&timewheel.Task{Key: key, Interval: year, Delay: d, Job: job(expect(d))})
			},
			func(key string, d time.Duration) error { return tw.SetTask(once(key, d, job(expect(d)))) },
			func(key string, d time.Duration) error {
				err := tw.AddTask(once(key, year, nothing))
				return errors.Join(err, tw.SetTask(once(key, d, job(expect(d)))))
			},
			func(key string, d time.Duration) error { // the due time becomes sooner
				err := tw.AddTask(once(key, d+year, job(expect(d))))
				synctest.Wait() // it is in its slot
				return errors.Join(err, tw.Reschedule(key, d))
			},
			func(key string, d time.Duration) error { // the due time is pushed back
				err := tw.AddTask(once(key, d/2+1, job(expect(d))))
				synctest.Wait()
				return errors.Join(err, tw.Reschedule(key, d))
			},
			func(_ string, d time.Duration) error {
				tw.AfterFunc(d, expect(d))
				return nil
			},
			func(_ string, d time.Duration) error {
				tw.AfterFunc(year, expect(d)).Reset(d)
				return nil
			},
		}
		delays := []time.Duration{1, tick - 1, tick, tick + 1, tick * 3 / 2, tick * time.Duration(slots),
			tick*time.Duration(slots) - 1, tick*time.Duration(slots) + 1}
		n := 0
		for range 40 {
			for _, verb := range verbs {
				delay := delays[random.IntN(len(delays))]
				if random.IntN(2) == 0 {
					delay = 1 + time.Duration(random.Int64N(int64(tick)*int64(slots)*3))
				}
				must(t, verb(name(n), max(delay, 1)))
				n++
			}
			testkit.Settle(time.Duration(random.Int64N(int64(tick) * 2)))
		}
		testkit.Settle(tick * time.Duration(slots) * 4)
		if len(late) != n {
			t.Fatalf("%d of %d tasks ran", len(late), n)
		}
	})
	return late
}

// wheelSizes are the ticks and slots of the tests on due times.
var wheelSizes = []struct {
	tick  time.Duration
	slots int
}{
	{1, 3}, {time.Microsecond, 64}, {ms, 1}, {ms, 512}, {3 * ms, 7}, {10 * ms, 100}, {time.Second, 60},
	{7 * time.Hour, 24},
}

func TestT1_neverEarly(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		for _, size := range wheelSizes {
			if early := slices.Min(latenesses(t, size.tick, size.slots)); early < 0 {
				t.Errorf("tick %v, %d slots: a run began %v early", size.tick, size.slots, -early)
			}
		}
	})
}

func TestT2_lateByLessThanOneTick(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		for _, size := range wheelSizes {
			if late := slices.Max(latenesses(t, size.tick, size.slots)); late >= size.tick {
				t.Errorf("tick %v, %d slots: a run began %v late", size.tick, size.slots, late)
			}
		}
	})
}

// While adds keep the loop busy it looks for them from time to time. A task that is due before the next look must not
// wait for it.
func TestT2_amidManyAdds_lateByLessThanOneTick(t *testing.T) {
	const tick, rounds, far = 10 * time.Microsecond, 100, 300
	inBubble(t, func(t *testing.T) {
		tw := startWheel(t, tick, 64)
		for round := range rounds {
			for i := range far {
				must(t, tw.AddTask(once(name(round*far+i), time.Hour, nothing)))
			}
			j := newJournal()
			must(t, tw.AddTask(once("k", tick, j.job)))
			testkit.Settle(time.Second)
			if at := j.at("k"); len(at) != 1 || at[0] < tick || at[0] >= 2*tick {
				t.Fatalf("round %d: a task that was due after %v ran at %v", round, tick, at)
			}
			testkit.Settle(tick / 3)
		}
	})
}

func TestT3_repeatsKeepTheirGrid(t *testing.T) {
	const tick = 10 * ms
	for _, c := range []struct {
		delay, interval time.Duration
		perSecond       int
	}{
		{0, 25 * ms, 40},
		{0, 10 * ms, 100},
		{0, 33 * ms, 30},
		{0, 15 * ms, 66},
		{0, 10*ms + 1, 99},
		{0, 105 * ms, 9},
		{0, time.Second, 1},
		{3 * ms, 25 * ms, 40},
		{time.Nanosecond, 35 * ms, 29},
		{0, 10*ms - 1, 100}, // below one tick
		{0, 1 * ms, 100},
		{0, time.Nanosecond, 100},
	} {
		t.Run(fmt.Sprintf("%v_then_%v", c.delay, c.interval), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var runs []timewheel.Run
				tw := startWheel(t, tick, 8, timewheel.WithPoolSize(1), timewheel.WithObserver(func(r timewheel.Run) {
					runs = append(runs, r)
				}))
				origin := time.Now()
				task := every("grid", c.interval, nothing)
				task.Delay = c.delay
				must(t, tw.AddTask(task))
				testkit.Settle(time.Second)

				wantEqual(t, "runs in one second", len(runs), c.perSecond)
				due := c.delay
				if due == 0 {
					due = c.interval
				}
				for k, r := range runs {
					if got := r.Due.Sub(origin); got != due {
						t.Fatalf("run %d was due at %v, want %v", k+1, got, due)
					}
					if late := r.Started.Sub(r.Due); late < 0 || late >= tick {
						t.Fatalf("run %d began %v after it was due", k+1, late)
					}
					due += max(c.interval, tick)
				}
				wantEqual(t, "missed", tw.Stats().Missed, uint64(0))
			})
		})
	}
}

func TestT3_slowJob_keepsTheGrid(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 8), newJournal()
		must(t, tw.AddTask(every("slow", 50*ms, func(task *timewheel.Task) {
			j.job(task)
			time.Sleep(120 * ms) // runs overlap
		})))
		testkit.Settle(220 * ms)
		j.want(t, "slow", 50*ms, 100*ms, 150*ms, 200*ms)
		must(t, tw.RemoveTask("slow"))
	})
}

// A wheel that starts an hour after its tasks were added is in the same situation as a stalled one. Within a tick the
// order is free.
func TestT4_afterAStall_overdueTasksRunAtOnceInTheOrderOfTheirTicks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const tick, n = 10 * ms, 10_000
		tw, j := newWheel(t, tick, 16, timewheel.WithPoolSize(1)), newJournal()
		due := make(map[string]time.Duration)
		for _, i := range seeded().Perm(n) {
			due[name(i)] = ms + time.Duration(i)*50*time.Microsecond
			must(t, tw.AddTask(once(name(i), due[name(i)], j.job)))
		}
		testkit.Settle(time.Hour)
		tw.Start()
		synctest.Wait() // no time passes
		keys := j.keys()
		ticks := make([]time.Duration, len(keys))
		for i, key := range keys {
			ticks[i] = (due[key] + tick - 1) / tick
		}
		slices.Sort(keys)
		if len(slices.Compact(keys)) != n || len(ticks) != n || !slices.IsSorted(ticks) {
			t.Errorf("%d of %d tasks ran at once, in the order of their ticks: %v", len(ticks), n, slices.IsSorted(ticks))
		}
		balanced(t, tw, n)
	})
}

func TestT4_afterAStall_ticksAreComputedAndNotCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := newWheel(t, 10*ms, 16)
		testkit.Settle(time.Hour + 3*ms)
		tw.Start()
		testkit.Settle(7 * ms)
		j := newJournal()
		must(t, tw.AddTask(once("k", 95*ms, j.job)))
		testkit.Settle(time.Minute)
		j.want(t, "k", 100*ms)
	})
}

func TestT4_afterAStall_repeatsRunOnceAndRejoinTheirGrid(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := newWheel(t, 10*ms, 16), newJournal()
		must(t, tw.AddTask(times("k", 25*ms, 3, j.job)))
		testkit.Settle(1010 * ms) // due 40 times, at 25 ms to 1 s
		tw.Start()
		synctest.Wait()
		j.want(t, "k", 1010*ms)
		wantEqual(t, "runs left", tw.GetTaskTimes("k"), 2)
		testkit.Settle(time.Second)
		j.want(t, "k", 1010*ms, 1030*ms, 1050*ms) // due at 1025 and 1050
		if s := balanced(t, tw, 1); s.Missed != 39 || s.Due != 42 {
			t.Errorf("Due %d and Missed %d, want 42 and 39", s.Due, s.Missed)
		}
	})
}

// The wall clock cannot be set in a test. But a test can ensure that it is not read: a time.Time keeps its monotonic
// reading unless one of these drops or ignores it.
func TestT5_theWallClockIsNotRead(t *testing.T) {
	wall := []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "UTC", "Local", "In", "Round", "Truncate",
		"Date", "Clock", "Hour", "Minute", "Second", "Nanosecond", "AddDate", "Parse"}
	calls := 0
	for _, dir := range []string{"../timewheel", "../pool", "../internal", "../ttlcache", "../dashboard"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			skip := strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "fake.go") ||
				path == "../timewheel/dates.go" || // for AddAt, see T7
				path == "../internal/recent/recent.go" // for the time that a machine was suspended
			if err != nil || skip || filepath.Ext(path) != ".go" {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
					calls++
					if slices.Contains(wall, selector.Sel.Name) {
						t.Errorf("%s: %s takes the wall clock's word", set.Position(call.Pos()), selector.Sel.Name)
					}
				}
				return true
			})
			return nil
		})
		must(t, err)
	}
	if calls < 100 {
		t.Errorf("looked at %d calls: that is not the whole library", calls)
	}
}

// A time.Time from the wheel can be compared with the current time, whatever happens to the wall clock.
func TestT5_timesCarryAMonotonicReading(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		runs := make(chan timewheel.Run, 1)
		tw := startWheel(t, ms, 8, timewheel.WithObserver(func(r timewheel.Run) { runs <- r }))
		must(t, tw.AddTask(once("far", time.Hour, nothing)))
		tw.AfterFunc(0, func() {})
		info, ok := tw.Get("far")
		r := <-runs
		for what, at := range map[string]time.Time{
			"Info.Next": info.Next,
			"Run.Due":   r.Due, "Run.Dispatched": r.Dispatched, "Run.Started": r.Started, "Run.Ended": r.Ended,
		} {
			if !ok || at == at.Round(0) { // Round drops the reading and changes nothing else
				t.Errorf("%s has no monotonic reading: %v", what, at)
			}
		}
	})
}

func TestT6_wholeRevolutions_oneLessAndOneMore(t *testing.T) {
	testkit.NotForRaces(t)
	for _, slots := range []int{1, 2, 3, 8, 60} {
		hands := []int{0, 1, slots - 1, slots, slots + 1}
		for _, turns := range []int{62, 63, 64} {
			hands = append(hands, turns*slots-1, turns*slots, turns*slots+slots/2)
		}
		for _, hand := range hands {
			inBubble(t, func(t *testing.T) {
				tw := startWheel(t, time.Second, slots)
				testkit.Settle(time.Duration(hand) * time.Second)
				j := newJournal()
				delays := map[int]bool{}
				for _, turns := range []int{1, 2, 3, 63, 64, 65, 127, 128, 4095, 4096, 4097} {
					for _, more := range []int{-1, 0, 1} {
						delays[turns*slots+more] = true
					}
				}
				delete(delays, 0)
				for d := range delays {
					must(t, tw.AddTask(once(name(d), time.Duration(d)*time.Second, j.job)))
					info, ok := tw.Get(name(d))
					if circle := (d - 1) / slots; !ok || info.Circle != circle || info.Slot < 0 || info.Slot >= slots {
						t.Errorf("%d slots, hand at %d, %d ticks: %+v, want circle %d", slots, hand, d, info, circle)
					}
				}
				testkit.Settle(time.Duration(4200*slots) * time.Second)
				for d := range delays {
					j.want(t, name(d), time.Duration(d)*time.Second)
				}
				balanced(t, tw, len(delays))
			})
		}
	}
}

func TestT6_anyDuration_neverOverflows(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	for _, size := range []struct {
		tick  time.Duration
		slots int
	}{{1, 1}, {1, 1 << 10}, {ms, 60}, {time.Hour, 7}, {longest / 2, 3}, {longest, 1}} {
		inBubble(t, func(t *testing.T) {
			tw, j := startWheel(t, size.tick, size.slots), newJournal()
			testkit.Settle(5 * ms)
			for i, d := range []time.Duration{longest, longest - 1, longest/2 + 1, 1<<62 - 1, 250 * year} {
				key := func(verb string) string { return fmt.Sprint(verb, i) }
				must(t, tw.AddTask(once(key("once"), d, j.job)))
				must(t, tw.AddTask(every(key("every"), d, j.job)))
				must(t, tw.AddTask(&timewheel.Task{Key: key("delay"), Interval: 1, Delay: d, Times: 9, Job: j.job}))
				must(t, tw.SetTask(once(key("set"), d, j.job)))
				must(t, tw.AddTask(once(key("moved"), year, j.job)))
				must(t, tw.Reschedule(key("moved"), d))
				tw.AfterFunc(d, func() { j.note("timer") })
				tw.AfterFunc(year, func() { j.note("timer") }).Reset(d)
				for _, verb := range []string{"once", "every", "delay", "set", "moved"} {
					info, ok := tw.Get(key(verb))
					if want := time.Now().Add(d); !ok || !info.Next.Equal(want) && size.tick < year {
						t.Errorf("tick %v: %s for %v is due at %v, want %v", size.tick, verb, d, info.Next, want)
					}
					if info.Circle < 0 || info.Slot < 0 || info.Slot >= size.slots {
						t.Errorf("tick %v: %s for %v waits at %+v", size.tick, verb, d, info)
					}
				}
			}
			testkit.Settle(100 * year)
			if keys := j.keys(); len(keys) > 0 {
				t.Errorf("tick %v: %v ran early", size.tick, keys)
			}
			wantEqual(t, "live tasks", tw.Len(), 35)
			n, err := tw.Drain(func(task *timewheel.Task) {
				if task.Delay < 40*year {
					t.Errorf("tick %v: %s is due in %v", size.tick, task.Key, task.Delay)
				}
			})
			must(t, err)
			wantEqual(t, "drained tasks", n, 35)
			balanced(t, tw, 35)
		})
	}
}

// The first run is soon, and the rest of the grid is beyond the reach of every clock.
func TestT6_longestInterval_runsOnceAndStaysPending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, time.Second, 60), newJournal()
		task := every("k", math.MaxInt64, j.job)
		task.Delay = 5 * time.Second
		must(t, tw.AddTask(task))
		testkit.Settle(200 * year)
		j.want(t, "k", 5*time.Second)
		wantEqual(t, "runs left", tw.GetTaskTimes("k"), timewheel.Forever)
	})
}
