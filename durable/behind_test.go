// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A graveyard is an engine whose claims pass over deleted tasks, which were due at all times since the first of them.
type graveyard struct {
	engine.Engine
	first time.Time
	hour  time.Duration // how long it takes to pass over the deleted tasks of an hour
	sum   atomic.Int64  // the total duration of all claims
}

func (e *graveyard) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	began := time.Now()
	over := time.Duration(min(r.Until, began.UnixNano()) - max(r.After, e.first.UnixNano()))
	timer := time.NewTimer(time.Duration(float64(e.hour) * over.Hours()))
	defer timer.Stop()
	defer func() { e.sum.Add(int64(time.Since(began))) }()
	select {
	case <-timer.C:
		return e.Engine.Claim(ctx, r)
	case <-ctx.Done():
		return engine.Claims{}, ctx.Err()
	}
}

// onGraveyard runs the test on a node over a graveyard, an hour after its first deleted task. put commits a task due at
// that time, as another program would.
func onGraveyard(t *testing.T, hour time.Duration, test func(k *kit.Kit, n *kit.Node, e *graveyard, put func(string, time.Time))) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		over := &graveyard{first: time.Now(), hour: hour}
		n := k.Join(func(to engine.Engine) engine.Engine {
			over.Engine = to
			return over
		}).Start()
		k.After(time.Hour)
		test(k, n, over, func(key string, due time.Time) {
			w, err := author.Add(durable.Task{Key: key, Kind: "note", Delay: 1}, due.UnixNano()-1)
			if err == nil {
				_, err = k.Engine.Commit(ctx, 0, []engine.Batch{{w}})
			}
			k.Must(err)
		})
	})
}

// An overdue task that is committed late is found however long a claim from the beginning takes, even longer than the
// lease. Such claims take each of two cursors a tenth of the time. They delay no other task, and the engine does not
// count as away.
func TestClaim_ofWhatIsCommittedLate_delaysNothingElse(t *testing.T) {
	for _, hour := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		t.Run(hour.String(), func(t *testing.T) {
			onGraveyard(t, hour, func(k *kit.Kit, n *kit.Node, e *graveyard, put func(string, time.Time)) {
				put("first", time.Now().Add(-time.Minute))
				k.After(5 * time.Minute)
				k.Ran("first")
				e.sum.Store(0) // each of the two cursors has been at the beginning before
				began := time.Now()
				for i, ago := range []time.Duration{59 * time.Minute, 30 * time.Minute, 10 * time.Minute, time.Minute} {
					key := fmt.Sprint("late", i)
					put(key, began.Add(-ago))
					k.After(time.Second + 20*hour)
					k.Ran(key)
				}
				for i := range 200 {
					key := fmt.Sprint("now", i)
					put(key, time.Now())
					k.After(200 * time.Millisecond)
					k.Ran(key)
				}
				if sum := time.Duration(e.sum.Load()); sum > time.Since(began)/4 {
					t.Errorf("claims took %v of %v", sum, time.Since(began))
				}
				if s := n.Stats().Node; s.CallsFailed != 0 || s.Away {
					t.Errorf("there was trouble: %+v", s)
				}
			})
		})
	}
}

// A single claim from the beginning that hangs does not delay the next ones, which find tasks that are committed late.
func TestClaim_thatHangsOnce_delaysNoLaterOne(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		hung := &hangingOnce{took: 3 * time.Second}
		k.Join(func(to engine.Engine) engine.Engine {
			hung.Engine = to
			return hung
		}).Start()
		k.After(10 * time.Second)
		hung.next.Store(true)
		k.After(4 * time.Second)
		for i := range 20 { // at each phase of a tenth of a second between two claims
			w, err := author.Add(durable.Task{Key: "late", Kind: "note", Delay: 1}, time.Now().Add(-time.Minute).UnixNano()-1)
			k.Must(err)
			_, err = k.Engine.Commit(ctx, 0, []engine.Batch{{w}})
			k.Must(err)
			k.After(time.Second + time.Duration(i)*5*time.Millisecond)
			k.Ran("late")
		}
		if hung.next.Load() {
			t.Error("no claim has hung")
		}
	}, durable.WithLease(10*time.Second))
}

// A hangingOnce is an engine on which the next claim from the beginning takes a while.
type hangingOnce struct {
	engine.Engine
	next atomic.Bool
	took time.Duration
}

func (e *hangingOnce) Claim(ctx context.Context, r engine.ClaimRequest) (engine.Claims, error) {
	if r.After < 0 && e.next.Swap(false) {
		time.Sleep(e.took)
	}
	return e.Engine.Claim(ctx, r)
}

// A claim of overdue tasks that takes too long is given up. The engine does not count as away, no other task is
// delayed, and Shutdown does not wait for the claim.
func TestClaim_ofWhatIsOverdue_thatTakesTooLong_isGivenUp(t *testing.T) {
	onGraveyard(t, 40*time.Second, func(k *kit.Kit, n *kit.Node, _ *graveyard, put func(string, time.Time)) {
		for i := range 1000 { // 20 minutes
			key := fmt.Sprint("now", i)
			put(key, time.Now())
			k.After(200 * time.Millisecond)
			k.Ran(key)
			if n.Stats().Node.Away {
				t.Fatal("the engine is away")
			}
			k.After(time.Second)
		}
		if s := n.Stats().Node; s.CallsFailed == 0 || s.CallsFailed > 10 {
			t.Errorf("%d claims were given up", s.CallsFailed)
		}
		for failed := n.Stats().Node.CallsFailed; n.Stats().Node.CallsFailed == failed; {
			k.After(time.Second) // until one has been given up
		}
		k.After(285 * time.Second) // the next one is in progress
		began := time.Now()
		n.End()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Shutdown took %v", took)
		}
	})
}
