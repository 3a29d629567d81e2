// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// Both layouts perform the same operations. After each step they must have run the same tasks, and must report the same
// information about the waiting tasks.
func TestLayouts_anyOperations_differInNothing(t *testing.T) {
	testkit.NotForRaces(t)
	for seed := range uint64(150) {
		r := random(seed)
		script := make([]byte, 400)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		runBoth(t, script)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func FuzzLayouts_differInNothing(f *testing.F) {
	r := random(1)
	for n := range 8 {
		script := make([]byte, 20<<n)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 1<<12 {
			script = script[:1<<12]
		}
		runBoth(t, script)
	})
}

// runBoth reads numbers from the script until the script ends.
func runBoth(t *testing.T, script []byte) {
	draw := func(n int) int {
		if len(script) == 0 {
			return 0
		}
		v := int(script[0])
		script = script[1:]
		return v % n
	}
	slots := []int{1, 2, 3, 7, 20, 64}[draw(6)]
	start := []uint64{0, 1<<31 - 500, 1<<53 - 500, 1<<63 - 500}[draw(4)]
	tick := time.Duration([]int64{1, 10, 1 << 20}[draw(3)])
	if start > 1<<40 {
		tick = 1
	}
	span := func() time.Duration { // about one circle, or a circle of one level, or anything
		n := uint64(slots)
		ticks := []uint64{1, n, n * n, n * n * n, 64 * n, 100_000}[draw(6)]*uint64(1+draw(3)) + uint64(draw(3)) - 1
		return time.Duration(ticks)*tick + time.Duration(draw(3)-1)
	}
	var key string
	var d, interval time.Duration
	var times int
	plan{tick: tick, slots: slots, clock: start}.with(Hashed, t, func(t *testing.T, one *rig) {
		plan{tick: tick, slots: slots, clock: start}.build(Hierarchical, t, func(t *testing.T, two *rig) {
			for len(script) > 0 && !t.Failed() {
				op := draw(8)
				key, d = string(rune('a'+draw(6))), span()
				interval, times = max(span(), 1), []int{0, 2, 5, Forever}[draw(4)]
				var answers [2]string
				for i, w := range []*rig{one, two} {
					answers[i] = w.step(op, &Task{Key: key, Delay: max(d, 0), Interval: interval, Times: times, Job: w.timed}, d)
				}
				if answers[0] != answers[1] {
					t.Fatalf("operation %d:\n%v: %s\n%v: %s", op, Hashed, answers[0], Hierarchical, answers[1])
				}
			}
		})
	})
}

// timed is a job that also records the time.
func (w *rig) timed(task *Task) {
	w.runs.Lock()
	defer w.runs.Unlock()
	w.ran = append(w.ran, fmt.Sprint(task.Key, "@", w.hand.Fake.Now()))
}

// step performs one operation and returns its result: the answer, the runs, the counters and all tasks.
func (w *rig) step(op int, task *Task, d time.Duration) string {
	var err error
	switch op {
	case 0, 1, 2:
		err = w.AddTask(task)
	case 3:
		err = w.RemoveTask(task.Key)
	case 4:
		err = w.Reschedule(task.Key, d)
	case 5:
		err = w.SetTask(task)
	case 6:
		w.Start()
		synctest.Wait() // without this, chance decides whether overdue tasks run before the clock advances
	}
	if op >= 6 {
		for left := uint64(max(d, 0)); left > 0; { // tick by tick, unless there are too many
			step := uint64(w.loop.ticks)
			if left > 300*step {
				step = left
			}
			step = min(step, left)
			w.advance(time.Duration(step))
			left -= step
		}
	}
	w.verify()
	slices.Sort(w.ran) // tasks due at one tick run in any order
	answer := fmt.Sprintf("%v, ran %q, %+v, now %d", err, w.ran, w.Stats(), w.hand.Now())
	w.ran = nil
	infos := slices.Collect(w.All())
	slices.SortFunc(infos, func(a, b Info) int { return int(a.Key[0]) - int(b.Key[0]) })
	return fmt.Sprintf("%s, %v", answer, infos)
}

// A wheel with one task wakes up once for each level that the task moves down, not at every tick.
func TestHierarchy_oneTask_wakesTheLoopOnceALevel(t *testing.T) {
	plan{tick: time.Millisecond, slots: 20}.with(Hierarchical, t, func(t *testing.T, w *rig) {
		w.Start()
		w.advance(10 * time.Millisecond)
		w.once("k", 850*time.Millisecond)
		w.rest()
		before := w.hand.sleeps.Load()
		for range 850 {
			w.advance(time.Millisecond)
		}
		w.wantRuns("k")
		if n := w.hand.sleeps.Load() - before; n > 6 { // three visits; the loop may be busy after one of them
			t.Errorf("the loop went to sleep %d times in 850 ticks", n)
		}
	})
}
