// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// sets calls SetTask with the payloads 0 to n-1 at the given interval, and returns the time of the first call.
func sets(k *kit.Kit, task durable.Task, n int, every time.Duration) time.Time {
	k.T.Helper()
	began := time.Now()
	for i := range n {
		if i > 0 {
			time.Sleep(every)
		}
		task.Payload = fmt.Append(nil, i)
		k.Must(k.On().SetTask(ctx, task))
	}
	return began
}

func debounces(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	task := durable.Task{Key: "a", Kind: "k", Delay: 10 * time.Second, MaxDelay: 30 * time.Second}
	is := func(calls []kit.Call, at time.Time, payload string) {
		t.Helper()
		if len(calls) != 1 || calls[0].At < at.Sub(k.Begin) || calls[0].At > at.Sub(k.Begin)+time.Second/2 ||
			string(calls[0].Payload) != payload || calls[0].Due.Sub(at).Abs() > time.Second/2 {
			t.Errorf("want a run of %q at %v: %v", payload, at, calls)
		}
	}
	began := sets(k, task, 4, 4*time.Second)
	is(k.RunsAfter(15*time.Second), began.Add(22*time.Second), "3")
	k.Gone("a")
	began = sets(k, task, 7, 4*time.Second) // the last call is after 24 s
	is(k.RunsAfter(15*time.Second), began.Add(30*time.Second), "6")
	k.Gone("a")
	k.On().Add(task) // AddTask can also begin a burst
	began = time.Now()
	k.After(9 * time.Second)
	sets(k, task, 3, 9*time.Second)
	is(k.RunsAfter(20*time.Second), began.Add(30*time.Second), "2")
	none := durable.Task{Key: "b", Kind: "k", Delay: 10 * time.Second} // no MaxDelay: it can be postponed forever
	began = sets(k, none, 8, 5*time.Second)
	is(k.RunsAfter(15*time.Second), began.Add(45*time.Second), "7")

	for _, wrong := range []durable.Task{
		{MaxDelay: time.Second}, {Interval: time.Second, MaxDelay: time.Second}, {Delay: time.Second, MaxDelay: -1},
		{Delay: 2 * time.Second, MaxDelay: time.Second}, {At: time.Now(), MaxDelay: time.Second},
	} {
		wrong.Key, wrong.Kind = "a", "k"
		if err := k.On().SetTask(ctx, wrong); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func burstEnds(t *testing.T, k *kit.Kit) {
	fails := false
	k.Handle("k", func(context.Context, durable.Run) error {
		if fails {
			return durable.RetryAfter(20*time.Second, errNot)
		}
		time.Sleep(5 * time.Second)
		return nil
	})
	task := durable.Task{Key: "a", Kind: "k", Delay: 10 * time.Second, MaxDelay: 12 * time.Second}
	next := func(what string, d time.Duration) {
		t.Helper()
		if in := time.Until(k.Info("a").Next); (in - d).Abs() > time.Second/2 {
			t.Errorf("%s: the run is due in %v, want %v", what, in, d)
		}
	}
	sets(k, task, 2, 5*time.Second)
	next("set twice", 7*time.Second)
	k.RunsAfter(9 * time.Second) // the task is running for two seconds
	sets(k, task, 1, 0)
	next("set during the run", 10*time.Second)
	if calls := k.RunsAfter(20 * time.Second); len(calls) != 1 {
		t.Errorf("after the run: %v", calls)
	}
	k.Gone("a")

	fails = true
	sets(k, task, 1, 0)
	k.RunsAfter(11 * time.Second)
	sets(k, task, 1, 0)
	next("set after a failed attempt", 10*time.Second)
	k.RunsAfter(4 * time.Second)
	k.Must(k.On().Reschedule(ctx, "a", 3*time.Second))
	next("moved", 3*time.Second)
	sets(k, task, 1, 0)
	next("set after it was moved", 10*time.Second)
	k.RunsAfter(5 * time.Second)
	k.Must(k.On().Pause(ctx, "a"))
	sets(k, task, 1, 0)
	next("set while it is paused", 7*time.Second)
	k.Must(k.On().RemoveTask(ctx, "a"))
	sets(k, task, 1, 0)
	next("set after it was removed", 10*time.Second)
	k.Must(k.On().RemoveTask(ctx, "a"))
}

func throttles(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	task := durable.Task{Key: "a", Kind: "k", Delay: 10 * time.Second, MaxDelay: 10 * time.Second}
	sets(k, task, 50, 700*time.Millisecond)
	calls := k.RunsAfter(15 * time.Second)
	if len(calls) != 4 || string(calls[3].Payload) != "49" {
		t.Errorf("in 34.3 s: %v", calls)
	}
	for i := range calls[1:] {
		if d := calls[i+1].At - calls[i].At; d < task.Delay || d > task.Delay+time.Second {
			t.Errorf("after %v comes %v", calls[i].At, calls[i+1].At)
		}
	}
}
