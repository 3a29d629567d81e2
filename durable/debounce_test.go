// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A burst and its end survive a restart.
func TestDebounce_isKeptAcrossRestarts(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		task := durable.Task{Key: "a", Kind: "note", Delay: 10 * sec, MaxDelay: 30 * sec}
		set := func() {
			t.Helper()
			k.Must(k.SetTask(ctx, task))
		}
		for range 6 {
			set()
			k.After(4 * sec)
			k.Crash()
			k.Start()
		}
		set() // after 24 s
		k.After(30 * sec)
		ranAt(k, "a", 30*sec)
	})
}

// All nodes set one task at the same time, and often. A burst does not exceed its limit: a SetTask during the start of
// a run does not postpone that run.
func TestDebounce_onNodes_atTheSameTime(t *testing.T) {
	kit.OnNodes(t, 3, func(t *testing.T, k *kit.Kit) {
		const most, lasts = 2 * sec, 20 * sec
		var all sync.WaitGroup
		for i, m := range k.Nodes {
			slow := enginetest.Fault{Delay: time.Millisecond}
			m.Link.SetFaults(func(string) enginetest.Fault { return slow })
			task := durable.Task{Key: "a", Kind: "note", Delay: sec, MaxDelay: most}
			all.Go(func() {
				for n := 0; time.Since(k.Begin) < lasts; n++ {
					if err := m.SetTask(ctx, task); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(3+(n*7+i)%5) * time.Millisecond)
				}
			})
		}
		all.Wait()
		calls := k.RunsAfter(3 * sec)
		last := time.Duration(0)
		for _, call := range calls {
			if gap := call.At - last; gap < sec || gap > most+sec/2 {
				t.Errorf("after %v comes %v", last, call.At)
			}
			last = call.At
		}
		if len(calls) < 8 {
			t.Errorf("the runs are %v", calls)
		}
		k.Gone("a")
	})
}

// A SetTask that retries for long, because others change the task, counts its delay from its last try. So it adds no
// run between the runs of the bursts.
func TestDebounce_whoseWriteIsLate_isNoRunAtOnce(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		task := durable.Task{Key: "a", Kind: "note", Delay: sec, MaxDelay: sec}
		slow, other := k.Nodes[0], k.Nodes[1]
		k.Must(other.SetTask(ctx, task))
		slow.Link.Next("Commit", enginetest.Fault{Delay: 4 * sec})
		began := time.Since(k.Begin)
		k.Must(slow.SetTask(ctx, task))
		calls := k.RunsAfter(3 * sec)
		if len(calls) != 2 || calls[1].At < began+5*sec || calls[1].At > began+5*sec+sec/2 {
			t.Errorf("called after %v, the runs are %v", began, calls)
		}
	})
}

// The SetTask calls of a burst on one node are handled one at a time: each reads the task once, and none retries. A
// call that waits for its turn ends with its context, and the others continue.
func TestDebounce_onANode_isNotTriedAgain(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		const callers, each = 20, 10 * time.Millisecond
		m := k.Nodes[0]
		task := durable.Task{Key: "a", Kind: "note", Delay: 5 * sec, MaxDelay: 10 * sec}
		var reads atomic.Int64
		m.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Get" {
				reads.Add(1)
			}
			return enginetest.Fault{Delay: each}
		})
		brief, cancel := context.WithTimeout(ctx, callers*each)
		defer cancel()
		gaveUp := make(chan error)
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if err := m.SetTask(ctx, task); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		go func() { gaveUp <- m.SetTask(brief, task) }()
		if err := <-gaveUp; !errors.Is(err, context.DeadlineExceeded) {
			t.Error("the one that waits returns", err)
		}
		all.Wait()
		if n := reads.Load(); n != callers {
			t.Errorf("%d SetTask read the task %d times", callers, n)
		}
		k.Info("a")
	})
}
