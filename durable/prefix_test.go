// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// onSlowOnes runs a test on a scheduler with a slow store, and on a node with a slow engine. It is started, and has the
// kind "note".
func onSlowOnes(t *testing.T, test func(t *testing.T, k *kit.Kit)) {
	t.Run("store", func(t *testing.T) {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			k.Open(drowsy{k.KV, time.Millisecond}).Start()
			test(t, k)
		})
	})
	t.Run("node", func(t *testing.T) {
		kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
			k.Link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Delay: 3 * time.Millisecond} })
			test(t, k)
		})
	})
}

// Unlike with Bulk, a task that runs or is moved meanwhile is still removed or moved.
func TestPrefix_ofTasksThatChange_isDone(t *testing.T) {
	onSlowOnes(t, func(t *testing.T, k *kit.Kit) {
		const tasks = 1500
		for i := range tasks {
			k.Add(durable.Task{Key: fmt.Sprintf("k%04d", i), Kind: "note", Delay: hour,
				Interval: 200 * time.Millisecond, Times: durable.Forever})
		}
		var others sync.WaitGroup
		for i := range tasks {
			others.Go(func() {
				for range 3 {
					time.Sleep(time.Duration(1+i%97) * time.Millisecond)
					err := k.Reschedule(ctx, fmt.Sprintf("k%04d", i), 0)
					if err != nil && !errors.Is(err, durable.ErrTaskKeyNotFound) {
						t.Error(err)
					}
				}
			})
		}
		if n, err := k.ReschedulePrefix(ctx, "k", 0); n != tasks || err != nil {
			t.Errorf("ReschedulePrefix: %d, %v", n, err)
		}
		if n, err := k.RemovePrefix(ctx, "k"); n != tasks || err != nil {
			t.Errorf("RemovePrefix: %d, %v", n, err)
		}
		for i, err := range k.All(ctx) {
			t.Errorf("left is %+v, %v", i, err)
		}
		others.Wait()
	})
}

// The later steps are still done when all tasks of a step are removed by something else before it ends.
func TestRemovePrefix_ofTasksThatAreGone_removesTheOthers(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		const tasks, gone = 1500, 1200
		s := k.Nodes[0]
		var all []durable.Task
		var removals engine.Batch
		for i := range tasks {
			task := durable.Task{Key: fmt.Sprintf("k%04d", i), Kind: "note", Delay: hour}
			if all = append(all, task); i < gone {
				removals = append(removals, engine.Write{Record: engine.Record{Key: task.Key}, If: engine.Always})
			}
		}
		s.Add(all...)
		removed := false
		s.Link.SetFaults(func(method string) enginetest.Fault {
			if method == "Commit" && !removed {
				removed = true
				if _, err := k.Engine.Commit(ctx, 0, []engine.Batch{removals}); err != nil {
					t.Error(err)
				}
			}
			return enginetest.Fault{}
		})
		if n, err := s.RemovePrefix(ctx, "k"); n != tasks-gone || err != nil {
			t.Errorf("RemovePrefix: %d, %v", n, err)
		}
		for i, err := range s.All(ctx) {
			t.Errorf("left is %+v, %v", i, err)
		}
	})
}

// When ctx is done the tasks handled so far are counted, and a further call handles the rest.
func TestRemovePrefix_untilItsContextIsDone_isContinued(t *testing.T) {
	onSlowOnes(t, func(t *testing.T, k *kit.Kit) {
		const tasks = 5000
		for i := range tasks {
			k.Add(durable.Task{Key: fmt.Sprintf("k%04d", i), Kind: "note", Delay: hour})
		}
		removed, calls := 0, 0
		for left := tasks; left > 0; calls++ {
			within, cancel := context.WithTimeout(ctx, 2*time.Millisecond<<calls)
			n, err := k.RemovePrefix(within, "k")
			cancel()
			removed += n
			left = 0
			for range k.AllPrefix(ctx, "k", "") {
				left++
			}
			if (err == nil) != (left == 0) || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%d are left, and the error is %v", left, err)
			}
			if removed+left > tasks || removed+left < tasks-1024*(calls+1) {
				t.Fatalf("%d are counted, and %d of %d are left", removed, left, tasks)
			}
		}
		if calls < 2 {
			t.Error("no call was interrupted")
		}
	})
}
