// SPDX-License-Identifier: MIT

package timewheel

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// A watchedClock is a fake clock that counts how often a timer is set or stopped, which the loop does once each time it
// goes to sleep. It can also call a function when the clock is read.
type watchedClock struct {
	*clock.Fake
	sleeps atomic.Int64
	onNow  atomic.Pointer[func()]
}

func (c *watchedClock) Now() uint64 {
	if f := c.onNow.Swap(nil); f != nil {
		(*f)()
	}
	return c.Fake.Now()
}

func (c *watchedClock) NewTimer() clock.Timer { return watchedTimer{c.Fake.NewTimer(), c} }

type watchedTimer struct {
	clock.Timer
	c *watchedClock
}

func (t watchedTimer) Reset(d time.Duration) {
	t.c.sleeps.Add(1)
	t.Timer.Reset(d)
}

func (t watchedTimer) Stop() {
	t.c.sleeps.Add(1)
	t.Timer.Stop()
}

// A rig is a wheel with a manual clock in a synctest bubble, where the test can wait until all is quiet.
type rig struct {
	*testing.T
	*TimeWheel
	hand *watchedClock

	runs sync.Mutex // protects ran
	ran  []string   // the keys, in start order
}

// A plan describes how to create a rig. The clock starts at the given instant.
type plan struct {
	tick  time.Duration // 10 ms by default
	slots int           // 60 by default
	clock uint64
	opts  []Option
}

// in runs f for each layout in a bubble, with a wheel that is not started. At the end the wheel must be consistent, its
// counters must balance, and it must leave no goroutine behind.
func (p plan) in(t *testing.T, f func(t *testing.T, w *rig)) {
	t.Helper()
	eachLayout(t, func(t *testing.T, kind Layout) { p.with(kind, t, f) })
}

// with is like in, but for a single layout.
func (p plan) with(kind Layout, t *testing.T, f func(t *testing.T, w *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { p.build(kind, t, f) })
}

// build is like with, but runs inside an existing bubble.
func (p plan) build(kind Layout, t *testing.T, f func(t *testing.T, w *rig)) {
	t.Helper()
	w := &rig{T: t, hand: &watchedClock{Fake: clock.NewFake(p.clock)}}
	tick, slots := p.tick, p.slots
	if tick == 0 {
		tick = 10 * time.Millisecond
	}
	if slots == 0 {
		slots = 60
	}
	opts := append([]Option{WithClock(w.hand), WithPoolSize(1), WithLayout(kind)}, p.opts...)
	w.TimeWheel = NewTimeWheel(tick, slots, opts...)
	defer w.Stop()
	f(t, w)
	w.verify()
	w.Stop()
	w.verify()
}

// verify waits until all is quiet, and fails the test if the wheel is inconsistent.
func (w *rig) verify() {
	w.Helper()
	synctest.Wait()
	if err := w.Check(); err != nil {
		w.Error(err)
	}
	s := w.Stats()
	if s.Due != s.Started+s.Missed+uint64(s.Waiting)+s.Withdrawn {
		w.Errorf("the runs do not balance: %+v", s)
	}
	if s.Added != s.Finished+s.Removed+uint64(s.Pending) {
		w.Errorf("the tasks do not balance: %+v", s)
	}
}

// advance waits until all is quiet, moves the clock by d in one step, and waits again. (Without the wait, a loop that
// is about to set its timer would set it relative to the new time, and sleep too long.)
func (w *rig) advance(d time.Duration) {
	synctest.Wait()
	w.hand.Advance(d)
	synctest.Wait()
}

// rest lets the loop come to rest. An entry posted just after a look is found by the next look, a poll later, and only
// the look after that finds nothing.
func (w *rig) rest() {
	for range 2 {
		w.advance(10 * poll)
	}
}

func (w *rig) job(task *Task) {
	w.runs.Lock()
	defer w.runs.Unlock()
	w.ran = append(w.ran, task.Key)
}

func (w *rig) add(task *Task) {
	w.Helper()
	if task.Job == nil {
		task.Job = w.job
	}
	if err := w.AddTask(task); err != nil {
		w.Fatal(err)
	}
}

// once adds a task that is due once.
func (w *rig) once(key string, d time.Duration) {
	w.Helper()
	w.add(&Task{Key: key, Interval: d})
}

// wantRuns fails the test unless exactly the runs of these keys began since the last call.
func (w *rig) wantRuns(keys ...string) {
	w.Helper()
	w.runs.Lock()
	defer w.runs.Unlock()
	if !slices.Equal(w.ran, keys) {
		w.Errorf("ran %q, want %q", w.ran, keys)
	}
	w.ran = nil
}

// entry returns the entry of a live task.
func (w *rig) entry(key string) *entry {
	w.Helper()
	e := w.index.get(key)
	if e == nil {
		w.Fatalf("there is no task %q", key)
	}
	return e
}

// wantTicks is like wantRuns, but takes the keys grouped by tick: tasks due at one tick run in any order.
func (w *rig) wantTicks(ticks ...[]string) {
	w.Helper()
	w.runs.Lock()
	defer w.runs.Unlock()
	left := w.ran
	for _, keys := range ticks {
		n := min(len(keys), len(left))
		got, want := slices.Sorted(slices.Values(left[:n])), slices.Sorted(slices.Values(keys))
		if left = left[n:]; !slices.Equal(got, want) {
			w.Errorf("at one tick %q ran, want %q; all that ran: %q", got, want, w.ran)
		}
	}
	if len(left) > 0 {
		w.Errorf("ran %q at last, want nothing more", left)
	}
	w.ran = nil
}

// posted returns how many entries wait in the inboxes.
func (w *rig) posted() (n int) {
	for i := range w.loop.inboxes {
		b := &w.loop.inboxes[i]
		b.mu.Lock()
		n += len(b.in)
		b.mu.Unlock()
	}
	return n
}

// eachLayout runs f for every layout.
func eachLayout(t *testing.T, f func(t *testing.T, kind Layout)) {
	t.Helper()
	for _, kind := range []Layout{Hashed, Hierarchical} {
		t.Run(kind.String(), func(t *testing.T) { f(t, kind) })
	}
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func ignore(*Task) {}
