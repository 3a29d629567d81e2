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

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A walk over the tasks and an add into a growing map hold a shard's lock for a long time. Ticks must not wait for
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
		testkit.Returns(t, "a wait for a timer, while the index is locked,", func() { <-ran })
	}
}

// Fired timers are stopped continually, as by deferred calls of Stop. An add to the full wheel is still refused at
// once, and the loop still handles its ticks.
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
	defer stoppers.Wait()
	defer enough.Store(true)
	testkit.Returns(t, "one of many adds to a full wheel", func() {
		for range 30_000 {
			if err := tw.AddTask(&Task{Key: "k", Interval: time.Hour, Job: ignore}); !errors.Is(err, ErrFull) {
				t.Errorf("an add to a full wheel: %v", err)
				return
			}
		}
	})
	runtime.Gosched()
}

// timerOf returns a separate timer for the same setting, so that its callers do not wait for each other.
func timerOf(t *Timer) *Timer { return &Timer{tw: t.tw, job: t.job, e: t.e} }
