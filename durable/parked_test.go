// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// park leaves n parked tasks behind, with the kind "once".
func park(k *kit.Kit, n int) {
	k.T.Helper()
	once(k)
	for i := range n {
		k.Add(durable.Task{Key: fmt.Sprint("parked", i), Kind: "once", Delay: sec})
	}
	k.After(hour)
	parked(k, n, uint64(n))
	k.Crash()
	once(k)
}

func once(k *kit.Kit) {
	k.T.Helper()
	k.Handle("once", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(1, sec, sec))
}

// parked fails the test unless now tasks are parked, and tasks were parked total times since New.
func parked(k *kit.Kit, now int, total uint64) {
	k.T.Helper()
	n := 0
	for i, err := range k.All(ctx) {
		if err != nil {
			k.T.Fatal(err)
		}
		if i.State == durable.Parked {
			n++
		}
	}
	if s := k.Stats(); n != now || s.Parked != now || s.ParkedTotal != total {
		k.T.Errorf("%d tasks are parked, want %d; Parked is %d, and ParkedTotal %d, want %d",
			n, now, s.Parked, s.ParkedTotal, total)
	}
}

func TestParked_everyVerb_isCounted(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		park(k, 5)
		synctest.Wait()
		parked(k, 5, 0) // even before Start
		k.Start()
		k.After(sec)
		k.Must(
			k.RemoveTask(ctx, "parked0"),
			k.Reschedule(ctx, "parked1", hour),
			k.SetTask(ctx, durable.Task{Key: "parked2", Kind: "note", Delay: hour}))
		parked(k, 2, 0)
		k.After(2 * hour)
		parked(k, 3, 1) // the one that was rescheduled is parked again
	})
}

// Some of the parked tasks from before New are changed while they are counted: each counts once or not at all.
func TestParked_changesWhileTheyAreCounted_agreeWithTheEngine(t *testing.T) {
	for seed := range uint64(5) {
		kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
			const tasks = 3000
			park(k, tasks)
			k.KV = k.KV.Clone()
			k.Kill()
			k.Open(drowsy{k.KV, 20 * time.Microsecond}, "note", "fail")
			once(k)
			k.Start()
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
						err = k.RemoveTask(ctx, key)
					case 1:
						err = k.Reschedule(ctx, key, hour)
					case 2:
						err = k.Reschedule(ctx, key, 0)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			k.After(sec)
			parked(k, now, total)
		})
	}
}
