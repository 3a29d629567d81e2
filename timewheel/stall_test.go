// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cmap "github.com/orcaman/concurrent-map/v2"
)

// patience is how long a test waits for what should happen at once, before it calls it a deadlock.
const patience = 20 * time.Second

// A walk over the tasks, and an add into a growing map, hold a shard's lock for long. Ticks must not wait for
// them.
func TestL1_indexIsLocked_timersFire(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	tw.Start()
	ran := make(chan struct{}, 1)
	for i := range 100 {
		mustAdd(t, tw, strconv.Itoa(i), time.Hour)
	}
	if err := tw.AddTask(&Task{Key: "k", Interval: 100 * time.Millisecond, Times: Forever, Job: func(*Task) {
		select {
		case ran <- struct{}{}:
		default:
		}
	}}); err != nil {
		t.Fatal(err)
	}
	shards := make(map[*cmap.ConcurrentMapShared[string, *entry]]bool)
	for i := 0; len(shards) < cmap.SHARD_COUNT; i++ {
		shard := tw.index.m.GetShard(strconv.Itoa(i))
		if !shards[shard] {
			shards[shard] = true
			shard.Lock()
		}
	}
	defer func() {
		for shard := range shards {
			shard.Unlock()
		}
	}()
	for range 3 {
		select {
		case <-ran:
		case <-time.After(patience):
			t.Fatal("no timer fires while the index is locked")
		}
	}
}

// Timers that have fired are stopped all the while, as deferred Stops are. An add to the full wheel is
// refused all the same, and the loop gets to its ticks.
func TestL3_addToAFullWheel_whileFiredTimersAreStopped_isRefusedAtOnce(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60, WithMaxPending(1))
	defer tw.Stop()
	tw.Start()
	mustAdd(t, tw, "live", time.Hour)
	fired := make(chan struct{})
	timer := tw.AfterFunc(0, func() { close(fired) })
	<-fired
	var stoppers sync.WaitGroup
	var enough atomic.Bool
	for range 4 {
		stoppers.Go(func() {
			for own := timerOf(timer); !enough.Load(); {
				own.Stop()
			}
		})
	}
	refused := make(chan error)
	go func() {
		for range 30_000 {
			if err := tw.AddTask(&Task{Key: "k", Interval: time.Hour, Job: ignore}); !errors.Is(err, ErrFull) {
				refused <- err
				return
			}
		}
		refused <- nil
	}()
	defer stoppers.Wait()
	defer enough.Store(true)
	select {
	case err := <-refused:
		if err != nil {
			t.Errorf("an add to a full wheel: %v", err)
		}
	case <-time.After(patience):
		t.Error("an add to a full wheel does not return")
	}
	runtime.Gosched()
}

// timerOf returns a timer of its own for the same setting, so that its callers do not wait for each other.
func timerOf(t *Timer) *Timer { return &Timer{tw: t.tw, job: t.job, e: t.e} }
