// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// park leaves n parked tasks behind, with the kind "once".
func (r *rig) park(n int) {
	r.t.Helper()
	r.once()
	for i := range n {
		r.add(durable.Task{Key: fmt.Sprint("parked", i), Kind: "once", Delay: sec})
	}
	testkit.Settle(hour)
	r.parked(n, uint64(n))
	r.crash()
	r.once()
}

func (r *rig) once() {
	r.t.Helper()
	r.handle("once", func(context.Context, durable.Run) error { return errFail }, durable.WithRetry(1, sec, sec))
}

// parked fails the test unless now tasks are parked, and tasks were parked total times since New.
func (r *rig) parked(now int, total uint64) {
	r.t.Helper()
	n := 0
	for i, err := range r.All(ctx) {
		if err != nil {
			r.t.Fatal(err)
		}
		if i.Parked {
			n++
		}
	}
	if s := r.Stats(); n != now || s.Parked != now || s.ParkedTotal != total {
		r.t.Errorf("%d tasks are parked, want %d; Parked is %d, and ParkedTotal %d, want %d",
			n, now, s.Parked, s.ParkedTotal, total)
	}
}

func TestParked_everyVerb_isCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.park(5)
		synctest.Wait()
		r.parked(5, 0) // before Start, too
		r.start()
		testkit.Settle(sec)
		err := errors.Join(
			r.RemoveTask(ctx, "parked0"),
			r.Reschedule(ctx, "parked1", hour),
			r.SetTask(ctx, durable.Task{Key: "parked2", Kind: "note", Delay: hour}))
		if err != nil {
			t.Fatal(err)
		}
		r.parked(2, 0)
		testkit.Settle(2 * hour)
		r.parked(3, 1) // the one that was rescheduled is parked again
	})
}

// A slowCount is a store in which reading all tasks takes ten milliseconds for each 512.
type slowCount struct{ *memstore.Store }

func (s slowCount) Due(after engine.Position, until int64) iter.Seq2[engine.Record, error] {
	walk := s.Store.Due(after, until)
	if after.Due != engine.None || until != math.MaxInt64 {
		return walk
	}
	return func(yield func(engine.Record, error) bool) {
		n := 0
		for r, err := range walk {
			if n++; n%512 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// While the parked tasks from before New are counted, some of them are changed: each counts once, or not at all.
func TestParked_changesWhileTheyAreCounted_agreeWithTheStore(t *testing.T) {
	for seed := range uint64(5) {
		inOneBubble(t, func(t *testing.T, r *rig) {
			const tasks = 3000
			r.park(tasks)
			if err := r.Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
			s, err := durable.New(slowCount{r.store.Reopen()}, r.opts...)
			if err != nil {
				t.Fatal(err)
			}
			r.Scheduler = s
			r.once()
			r.start()
			rnd := rand.New(rand.NewPCG(seed, 1))
			now, total := tasks, uint64(0)
			var wait sync.WaitGroup
			for _, i := range rnd.Perm(tasks)[:500] {
				key, delay, verb := fmt.Sprint("parked", i), time.Duration(rnd.IntN(80))*time.Millisecond, rnd.IntN(3)
				if verb == 2 {
					total++ // it is parked again
				} else {
					now--
				}
				wait.Go(func() {
					time.Sleep(delay)
					var err error
					switch verb {
					case 0:
						err = r.RemoveTask(ctx, key)
					case 1:
						err = r.Reschedule(ctx, key, hour)
					case 2:
						err = r.Reschedule(ctx, key, 0)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			testkit.Settle(sec)
			r.parked(now, total)
		})
	}
}
