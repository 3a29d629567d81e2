// SPDX-License-Identifier: MIT

package crew

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// An owner is a minimal owner of a crew: a queue of functions.
type owner struct {
	mu    sync.Mutex // protects the fields below
	queue Queue[func()]
	crew  Crew
	most  int // most workers at a time
}

func newOwner(size int) *owner {
	o := new(owner)
	o.crew = New(size, o.work, o.mu.Lock, o.mu.Unlock)
	return o
}

func (o *owner) work() {
	o.mu.Lock()
	o.crew.Begin()
	o.most = max(o.most, o.crew.workers)
	for f, ok := o.queue.Pop(); ok; f, ok = o.queue.Pop() {
		o.crew.Call(o.queue.Len())
		o.mu.Unlock()
		f()
		o.mu.Lock()
	}
	o.crew.End(o.queue.Len())
	o.mu.Unlock()
}

func (o *owner) push(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue.Push(f)
	o.crew.Call(o.queue.Len())
}

func (o *owner) hasGoroutines() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.crew.ants != nil
}

func (o *owner) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.crew.Close()
}

func TestCrew_anySize_runsAllAndKeepsTheBound(t *testing.T) {
	for _, size := range []int{1, 2, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			o := newOwner(size)
			ran := 0
			for range 100 {
				o.push(func() {
					time.Sleep(time.Second)
					o.mu.Lock()
					ran++
					o.mu.Unlock()
				})
			}
			synctest.Wait()
			testkit.Settle(time.Second * time.Duration((100+size-1)/size))
			o.mu.Lock()
			if ran != 100 || o.most != size || o.crew.Starting() != 0 {
				t.Errorf("%d workers at most ran %d of 100, %d at a time", size, ran, o.most)
			}
			o.mu.Unlock()
			o.close()
		})
	}
}

func TestCrew_antsRefuses_runsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner(2)
		ran := 0
		o.push(func() { ran++ })
		synctest.Wait()
		o.mu.Lock()
		o.crew.ants.Release() // without its knowledge
		o.mu.Unlock()
		o.push(func() { ran++ })
		synctest.Wait()
		if ran != 2 {
			t.Errorf("%d of 2 ran", ran)
		}
		o.close()
	})
}

// The rest of an idle crew may end just when new work arrives.
func TestCrew_restIsOver_whileThereIsWork_keepsTheGoroutines(t *testing.T) {
	for _, c := range []struct {
		workers, starting int
		kept              bool
	}{{0, 0, false}, {1, 0, true}, {0, 1, true}, {1, 1, true}, {2, 1, true}} {
		synctest.Test(t, func(t *testing.T) {
			o := newOwner(4)
			o.push(func() {})
			synctest.Wait()
			o.mu.Lock()
			o.crew.workers, o.crew.starting = c.workers, c.starting
			o.mu.Unlock()
			o.crew.rested()
			if kept := o.hasGoroutines(); kept != c.kept {
				t.Errorf("with %d workers and %d about to start the goroutines are kept: %v", c.workers, c.starting, kept)
			}
			o.mu.Lock()
			o.crew.workers, o.crew.starting = 0, 0
			o.mu.Unlock()
			o.close()
		})
	}
}

// A closed crew retains its goroutines until the last worker has ended.
func TestCrew_closedWhileThereIsWork_releasesTheGoroutinesAfterIt(t *testing.T) {
	for _, c := range []struct {
		workers, starting int
		kept              bool
	}{{0, 0, false}, {1, 0, true}, {0, 1, true}} {
		synctest.Test(t, func(t *testing.T) {
			o := newOwner(4)
			o.push(func() {})
			synctest.Wait()
			o.mu.Lock()
			o.crew.workers, o.crew.starting = c.workers, c.starting
			o.mu.Unlock()
			o.close()
			if kept := o.hasGoroutines(); kept != c.kept {
				t.Errorf("with %d workers and %d about to start the goroutines are kept: %v", c.workers, c.starting, kept)
			}
			o.mu.Lock()
			o.crew.workers, o.crew.starting = 1, 0
			o.crew.End(0)
			o.mu.Unlock()
			if o.hasGoroutines() {
				t.Error("the goroutines stay")
			}
		})
	}
}

func TestCrew_atRest_keepsNoGoroutineAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner(4)
		for range 3 {
			o.push(func() {})
			testkit.Settle(rest - 1)
			if !o.hasGoroutines() {
				t.Error("the goroutines are gone before their time")
			}
		}
		testkit.Settle(time.Nanosecond)
		if o.hasGoroutines() {
			t.Error("the goroutines stay")
		}
		o.close()
	})
}
