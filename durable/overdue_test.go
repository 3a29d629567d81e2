// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// openHeld opens a scheduler that handles "k", on a KV whose commits are held up from now on.
func openHeld(k *kit.Kit) (*kit.Node, *heldKV) {
	store := &heldKV{KV: k.KV, turn: make(chan struct{}, 1)}
	store.turn <- struct{}{}
	s := k.Open(store)
	s.Handle("k", ok)
	<-store.turn
	return s, store
}

// A verb whose caller gives up while it waits for the store has no effect.
func TestContext_doneWhileAnotherCommitIsMade_hasNoEffect(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		s, store := openHeld(k)
		answered := make(chan error, 2)
		add := func(ctx context.Context, key string) {
			go func() { answered <- s.AddTask(ctx, durable.Task{Key: key, Kind: "k", Delay: hour}) }()
			synctest.Wait()
		}
		add(ctx, "first")
		gaveUp, cancel := context.WithCancel(ctx)
		add(gaveUp, "second")
		cancel()
		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Errorf("the error of the second is %v", err)
		}
		store.turn <- struct{}{}
		if err := errors.Join(<-answered, s.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
		if n := len(stored(t, store.KV)); n != 1 {
			t.Errorf("the store has %d tasks", n)
		}
	})
}

// However many callers wait, a commit serves a bounded number of them, so that the first does not wait long.
func TestScheduler_withVeryManyCallers_commitsThemInParts(t *testing.T) {
	testkit.NotForRaces(t)
	const callers, most = 6000, 4096
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		s, store := openHeld(k)
		var adds sync.WaitGroup
		for i := range callers {
			adds.Go(func() {
				if err := s.AddTask(ctx, durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: hour}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		store.turn <- struct{}{}
		adds.Wait()
		s.End()
		if n := len(stored(t, store.KV)); n != callers || store.most > most || store.most < most/4 {
			t.Errorf("there are %d tasks, and a commit had %d", n, store.most)
		}
	})
}

// Shutdown waits for runs in progress, and leaves the rest of a backlog to the next process.
func TestOverdue_atShutdown_isLeft(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		const tasks = 500
		k.Crash("note")
		k.Handle("note", sleeper(100*time.Millisecond))
		for i := range tasks {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "note"})
		}
		k.After(time.Second)
		k.Start()
		k.After(time.Second)
		k.Must(k.Shutdown(ctx))
		calls := len(k.Runs())
		k.Crash()
		if left := k.Len(); calls == 0 || calls > 50 || calls+left != tasks {
			t.Errorf("%d runs within a second and Shutdown, and %d tasks are left of %d", calls, left, tasks)
		}
	}, durable.WithPoolSize(3))
}

// A task that has used up attempts by ending its process has all of them again after Reschedule, even if nothing has
// read it since.
func TestOverdue_rescheduledAfterACrash_hasAllOfItsAttempts(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		kills := func() {
			k.Handle("kills", func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() })
		}
		kills()
		k.Add(durable.Task{Key: "a", Kind: "kills", Delay: time.Second})
		for range 3 { // the first start is on time, and not counted
			k.After(2 * time.Second)
			k.Crash()
			kills()
			k.Start()
		}
		k.After(2 * time.Second)
		k.Runs()
		k.Crash() // and no handler looks at the task
		k.Start()
		k.Must(k.Reschedule(ctx, "a", time.Second))
		k.Handle("kills", sleeper(0))
		if calls := k.RunsAfter(2 * time.Second); len(calls) != 1 || calls[0].Attempt != 1 {
			t.Errorf("the attempts are %v, the first number %d", calls, calls[0].Attempt)
		}
	})
}

// The runs of a kind with a limit wait for the limit, and one worker does them one at a time. The other worker is busy
// with a long run. A third kind still gets its turn.
func TestLimit_worker_givesWayToOtherKinds(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("long", sleeper(hour))
		k.Handle("limited", sleeper(10*time.Millisecond), durable.WithConcurrency(1))
		for i := range 1000 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "limited", Delay: 2 * time.Second})
		}
		k.Add(durable.Task{Key: "long", Kind: "long", Delay: 2500 * time.Millisecond},
			durable.Task{Key: "third", Kind: "note", Delay: 3 * time.Second})
		calls := k.RunsAfter(4 * time.Second)
		if !slices.ContainsFunc(calls, func(c kit.Call) bool { return c.Key == "third" }) {
			t.Errorf("%d runs, but a second after it was due the third kind has not run: %v", len(calls), k.Stats())
		}
		k.After(time.Minute)
		if calls = append(calls, k.Runs()...); len(calls) != 1002 {
			t.Errorf("after a minute there were %d runs", len(calls))
		}
	}, durable.WithPoolSize(2))
}
