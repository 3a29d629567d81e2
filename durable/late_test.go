// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A release that the node has given up may arrive while the task is running there. It does not free the task for
// another node.
func TestRelease_thatIsLate_freesNoRun(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		var running, most atomic.Int32
		k.Handle("k", func(context.Context, durable.Run) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(4 * lease)
			return nil
		})
		m := k.Nodes[0]
		m.Add(durable.Task{Key: "a", Kind: "k", Delay: sec / 2})
		m.Link.Next("Release", enginetest.Fault{Delay: 2 * lease})
		k.Must(m.PauseKind(ctx, "k"))
		k.After(sec / 10) // it is being given back
		k.Must(m.ResumeKind(ctx, "k"))
		if calls := k.RunsAfter(10 * lease); len(calls) != 1 || most.Load() != 1 {
			t.Errorf("%d runs at once: %v", most.Load(), calls)
		}
	})
}

// A start whose confirmation was lost does not count as an attempt if the node then has no worker for it and gives the
// task to another node.
func TestRelease_ofAStartThatMayBeCounted_isNoAttempt(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		a, b := k.Nodes[0], k.Nodes[1]
		end := make(chan struct{})
		a.Handle("long", func(context.Context, durable.Run) error { <-end; return nil })
		k.Handle("once", func(context.Context, durable.Run) error { return nil }, durable.WithRetry(1, sec, sec))
		k.After(lease)
		lose := enginetest.Fault{Lose: true}
		a.Link.Next("Confirm", lose, lose) // ahead, and when it is due
		a.Add(durable.Task{Key: "once", Kind: "once", Delay: sec / 10})
		a.Add(durable.Task{Key: "long", Kind: "long", Delay: sec/10 + 2*tick})
		calls := k.RunsAfter(2 * lease)
		if len(calls) != 2 || calls[1].Key != "once" || calls[1].Attempt != 1 || calls[1].Node != b.Name {
			t.Errorf("the runs are %v", calls)
		}
		close(end)
	}, durable.WithPoolSize(1))
}

// A pause that its caller has given up, and that arrives after a resumption has returned, has no effect. This holds
// even if the resumption found nothing paused, its own call failed or its answer was lost.
func TestPauseAll_thatIsLate_undoesNoResumption(t *testing.T) {
	for _, f := range []enginetest.Fault{{}, {Fail: true}, {Lose: true}} {
		kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
			m := k.Nodes[0]
			k.After(sec) // the engine's time is noted
			m.Link.Next("Commit Notes", enginetest.Fault{Delay: 2 * lease}, f)
			gaveUp, cancel := context.WithTimeout(ctx, sec/2)
			defer cancel()
			if err := m.PauseAll(gaveUp); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			resumed := m.ResumeAll(ctx)
			k.After(3 * lease)
			if p, err := m.Paused(ctx); err != nil || resumed == nil && p.All {
				t.Errorf("after %+v it is paused: %v, %v", f, p.All, err)
			} else if (resumed == nil) == f.Fail {
				t.Errorf("after %+v ResumeAll returns %v", f, resumed)
			}
		})
	}
}

// A claim that arrives late gives the node a task that it does not know about. The node finds the task and runs it, and
// does so soon if the claim arrives within a lease after the node gave up.
func TestClaim_thatIsLate_losesNoTask(t *testing.T) {
	for by, within := range map[time.Duration]time.Duration{
		lease + tick/2:   lease / 2,
		3*lease + tick/2: 5 * lease, // and when the node does not ask itself
	} {
		kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
			m := k.Nodes[0]
			k.After(lease)
			var arrives time.Time
			m.Link.SetFaults(func(method string) (f enginetest.Fault) {
				if method == "Claim" && arrives.IsZero() {
					f.Delay = by
					arrives = time.Now().Add(f.Delay)
				}
				return f
			})
			k.After(sec)
			w, err := author.Add(durable.Task{Key: "a", Kind: "note", At: arrives.Add(-by)}, time.Now().UnixNano())
			if err != nil {
				t.Fatal(err)
			}
			k.After(time.Until(arrives.Add(-time.Nanosecond)))
			if _, err := k.Engine.Commit(ctx, 0, []engine.Batch{{w}}); err != nil {
				t.Fatal(err)
			}
			k.After(time.Nanosecond)
			if task, _, err := one(k.Engine, "a"); err != nil || task.Owner == 0 || task.Starts > 0 {
				t.Fatalf("the task is %+v, %v", task, err)
			}
			k.After(within)
			k.Ran("a")
		})
	}
}
