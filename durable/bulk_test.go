// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// An askedEngine counts the questions written to it.
type askedEngine struct {
	engine.Engine
	questions *atomic.Int64
}

func (e askedEngine) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if w := batches[0][0]; w.Note && strings.HasPrefix(w.Key, "question/") && w.If == engine.IfAbsent {
		e.questions.Add(1)
	}
	return e.Engine.Commit(ctx, by, batches)
}

// untilCancelled is a handler that counts the runs that were cancelled.
func untilCancelled(n *atomic.Int64) durable.Handler {
	return func(ctx context.Context, _ durable.Run) error {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), durable.ErrCancelled) {
				n.Add(1)
			}
			return durable.Park(ctx.Err())
		case <-time.After(time.Hour):
			return nil
		}
	}
}

// One question cancels any number of runs on all nodes, and its answer takes no longer than for one key.
func TestBulk_cancel_asksAllNodesOnce(t *testing.T) {
	kit.OnNodes(t, 3, func(t *testing.T, k *kit.Kit) {
		var questions, slow, other atomic.Int64
		asks := k.Join(func(to engine.Engine) engine.Engine { return askedEngine{to, &questions} }).Start()
		k.Handle("slow", untilCancelled(&slow))
		k.Handle("other", untilCancelled(&other))
		const runs = 40
		for i := range runs {
			adds := k.Nodes[i%len(k.Nodes)] // and holds and runs it
			adds.Add(durable.Task{Key: fmt.Sprint("slow:", i), Kind: "slow", Group: fmt.Sprint("shop \xff", i/10), Delay: time.Second})
		}
		asks.Add(durable.Task{Key: "other", Kind: "other", Delay: time.Second},
			durable.Task{Key: "slow:later", Kind: "slow", Delay: time.Hour})
		k.After(3 * time.Second)
		bulk := func(q durable.Query, want int) {
			t.Helper()
			began := time.Now()
			n, next, err := asks.BulkStep(ctx, q, durable.DoCancel)
			if n != want || next != "" || err != nil {
				t.Errorf("%+v: %d, %q, %v; want %d", q, n, next, err, want)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%+v: it has taken %v", q, took)
			}
		}
		bulk(durable.Query{Kind: "slow", State: durable.Scheduled}, 0)
		bulk(durable.Query{Kind: "slow", Prefix: "other"}, 0)
		bulk(durable.Query{Kind: "slow", Repeating: true}, 0)
		bulk(durable.Query{Kind: "slow", Failure: "refused"}, 0)
		bulk(durable.Query{Prefix: strings.Repeat("p", 1<<20)}, 0)
		bulk(durable.Query{Group: strings.Repeat("g", 1<<20)}, 0)
		bulk(durable.Query{Group: "shop"}, 0)
		synctest.Wait()
		if n := slow.Load() + other.Load(); n != 0 {
			t.Errorf("%d runs were cancelled that were not asked for", n)
		}
		bulk(durable.Query{Group: "shop \xff1"}, runs/4)
		synctest.Wait()
		if n := slow.Load(); n != runs/4 {
			t.Errorf("%d runs of the group were cancelled", n)
		}
		questions.Store(0)
		bulk(durable.Query{Kind: "slow", State: durable.Running}, runs-runs/4)
		if n := questions.Load(); n != 1 {
			t.Errorf("%d questions were asked", n)
		}
		synctest.Wait()
		if slow.Load() != runs || other.Load() != 0 {
			t.Errorf("cancelled are %d of the kind, and %d of another", slow.Load(), other.Load())
		}
		bulk(durable.Query{}, 1)
		k.Info("slow:later")
		unasked(k)
	})
}
