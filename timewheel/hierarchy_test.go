// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// where returns the level and slot in which the entry waits.
func (h *hierarchy) where(e *entry) (level, slot int) {
	for k := range h.levels {
		for i := range h.levels[k].slots {
			head := h.levels[k].slots[i].head
			for o := head; o != nil; {
				if o == e {
					return k, i
				}
				if o = o.next; o == head {
					break
				}
			}
		}
	}
	return -1, -1
}

// The walks that textbooks show: at which tick the entry is in which slot of which level.
func TestHierarchy_walksOfTheTextbooks(t *testing.T) {
	type step struct {
		tick        uint64
		level, slot int
	}
	for _, c := range []struct {
		name  string
		slots int
		at    uint64
		steps []step
	}{
		{"350 ms in slots of 1 ms, 20 a level", 20, 350, []step{{0, 1, 17}, {340, 0, 10}}},
		{"450 ms in slots of 1 ms, 20 a level", 20, 450, []step{{0, 2, 1}, {400, 1, 2}, {440, 0, 10}}},
		{"15 s in slots of 1 s, 10 a level", 10, 15, []step{{0, 1, 1}, {10, 0, 5}}},
		{"15 s in slots of 1 s, 7 a level", 7, 15, []step{{0, 1, 2}, {14, 0, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHierarchy(c.slots, 0)
			e := &entry{at: c.at}
			h.place(e)
			for i, s := range c.steps {
				if s.tick > 0 {
					if next := h.next(); next != s.tick {
						t.Fatalf("step %d: the next visit is at %d, want %d", i, next, s.tick)
					}
					if due := h.visit(); !due.empty() {
						t.Fatalf("step %d: it is due at tick %d", i, s.tick)
					}
				}
				if level, slot := h.where(e); level != s.level || slot != s.slot {
					t.Errorf("step %d, tick %d: it is in slot %d of level %d, want slot %d of level %d",
						i, s.tick, slot, level, s.slot, s.level)
				}
			}
			if next := h.next(); next != c.at {
				t.Fatalf("the last visit is at %d, want %d", next, c.at)
			}
			if due := h.visit(); due.popFront() != e || h.next() != never {
				t.Error("it does not come out at its tick")
			}
		})
	}
}

// The start of a level is trimmed to a multiple of its unit: what is less than n units ahead of that fits.
func TestHierarchy_place_countsFromTheTrimmedStart(t *testing.T) {
	const slots = 20
	for _, c := range []struct {
		now, at     uint64
		level, slot int
	}{
		{15, 34, 0, 14}, // across a multiple of 20, and yet on level 0
		{15, 35, 1, 1},  // 20 ahead
		{39, 419, 1, 0}, // number 20, and the hand at 1
		{39, 420, 2, 1}, // number 21
		{39, 799, 2, 1},
		{399, 400, 0, 0},
		{399, 7999, 2, 19}, // number 19, and the hand at 0
		{399, 8000, 3, 1},  // number 20
	} {
		h := newHierarchy(slots, c.now)
		e := &entry{at: c.at}
		h.place(e)
		if level, slot := h.where(e); level != c.level || slot != c.slot {
			t.Errorf("tick %d, now %d: slot %d of level %d, want slot %d of level %d",
				c.at, c.now, slot, level, c.slot, c.level)
		}
	}
}

func TestHierarchy_levels_areMadeOnDemandAndStay(t *testing.T) {
	h := newHierarchy(10, 0)
	for _, c := range []struct {
		at     uint64
		levels int
	}{{9, 1}, {10, 2}, {99, 2}, {100, 3}, {5, 3}, {never - 1, 20}} {
		e := &entry{at: c.at}
		h.place(e)
		if n := len(h.levels); n != c.levels {
			t.Errorf("for tick %d there are %d levels, want %d", c.at, n, c.levels)
		}
		h.unlink(e)
		if h.next() != never {
			t.Errorf("with tick %d taken out the next visit is at %d", c.at, h.next())
		}
	}
}

// A wheel that has one task wakes up once for each level that the task comes down, and not at every tick.
func TestHierarchy_oneTask_wakesTheLoopOnceALevel(t *testing.T) {
	plan{tick: time.Millisecond, slots: 20}.with(Hierarchical, t, func(t *testing.T, w *rig) {
		w.Start()
		w.advance(10 * time.Millisecond)
		w.once("k", 850*time.Millisecond)
		w.advance(20 * time.Millisecond) // the loop has rested since
		before := w.hand.sleeps.Load()
		for range 850 {
			w.advance(time.Millisecond)
		}
		w.wantRuns("k")
		if n := w.hand.sleeps.Load() - before; n > 6 { // three visits; it may be busy after one
			t.Errorf("the loop went to sleep %d times in 850 ticks", n)
		}
	})
}

// Many tasks in the same slots, of which any may be taken out: the first, the last, one between, the only
// one.
func TestHierarchy_unlink_whereverItHangs(t *testing.T) {
	for seed := range uint64(50) {
		r := random(seed)
		m := newModelled(t, Hierarchical, 3+r.IntN(4), uint64(r.IntN(100)))
		for range 40 {
			m.add(m.now + 1 + uint64(r.IntN(200)))
		}
		m.advance(m.now + uint64(r.IntN(100)))
		for len(m.model) > 0 {
			m.remove(m.model[r.IntN(len(m.model))])
		}
		if m.next() != never {
			t.Fatalf("an empty layout wants a visit at %d", m.next())
		}
	}
}

// Both layouts are driven through the same operations, and must have run the same tasks after each step and
// tell the same of those that wait.
func TestLayouts_anyOperations_differInNothing(t *testing.T) {
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

// runBoth reads numbers from the script until it ends.
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
	span := func() time.Duration { // around one turn, or one of a level, or anything
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

// timed is a job that notes the time as well.
func (w *rig) timed(task *Task) {
	w.runs.Lock()
	defer w.runs.Unlock()
	w.ran = append(w.ran, fmt.Sprint(task.Key, "@", w.hand.Fake.Now()))
}

// step does one operation and returns what came of it: the answer, the runs, the accounts and all tasks.
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
		synctest.Wait() // else it is chance whether what is overdue runs before the clock moves on
	}
	if op >= 6 {
		for left := uint64(max(d, 0)); left > 0; { // tick by tick, if those are not too many
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
	slices.Sort(w.ran) // those due at the same instant have no promised order
	answer := fmt.Sprintf("%v, ran %q, %+v, now %d", err, w.ran, w.Stats(), w.hand.Now())
	w.ran = nil
	infos := slices.Collect(w.All())
	slices.SortFunc(infos, func(a, b Info) int { return int(a.Key[0]) - int(b.Key[0]) })
	return fmt.Sprintf("%s, %v", answer, infos)
}
