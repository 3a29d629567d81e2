// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// sets calls SetTask with the payloads 0 to n-1, that often, and returns when it began.
func (r *rig) sets(task durable.Task, n int, every time.Duration) time.Time {
	r.t.Helper()
	began := time.Now()
	for i := range n {
		if i > 0 {
			time.Sleep(every)
		}
		task.Payload = fmt.Append(nil, i)
		r.must(r.on().SetTask(ctx, task))
	}
	return began
}

func debounces(t *testing.T, r *rig) {
	r.handle("k", func(context.Context, durable.Run) error { return nil })
	task := durable.Task{Key: "a", Kind: "k", Delay: 10 * time.Second, MaxDelay: 30 * time.Second}
	is := func(calls []call, at time.Time, payload string) {
		t.Helper()
		if len(calls) != 1 || calls[0].at.Before(at) || calls[0].at.After(at.Add(time.Second/2)) ||
			string(calls[0].Payload) != payload || calls[0].Due.Sub(at).Abs() > time.Second/2 {
			t.Errorf("want a run of %q at %v: %v", payload, at, calls)
		}
	}
	began := r.sets(task, 4, 4*time.Second)
	is(r.ran(15*time.Second), began.Add(22*time.Second), "3")
	r.gone("a")
	began = r.sets(task, 7, 4*time.Second) // the last after 24 s
	is(r.ran(15*time.Second), began.Add(30*time.Second), "6")
	r.gone("a")
	r.add(task) // is the first of a burst, too
	began = time.Now()
	time.Sleep(9 * time.Second)
	r.sets(task, 3, 9*time.Second)
	is(r.ran(20*time.Second), began.Add(30*time.Second), "2")
	none := durable.Task{Key: "b", Kind: "k", Delay: 10 * time.Second} // without MaxDelay for any time
	began = r.sets(none, 8, 5*time.Second)
	is(r.ran(15*time.Second), began.Add(45*time.Second), "7")

	for _, wrong := range []durable.Task{
		{MaxDelay: time.Second}, {Interval: time.Second, MaxDelay: time.Second}, {Delay: time.Second, MaxDelay: -1},
		{Delay: 2 * time.Second, MaxDelay: time.Second}, {At: time.Now(), MaxDelay: time.Second},
	} {
		wrong.Key, wrong.Kind = "a", "k"
		if err := r.on().SetTask(ctx, wrong); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func burstEnds(t *testing.T, r *rig) {
	fails := false
	r.handle("k", func(context.Context, durable.Run) error {
		if fails {
			return durable.RetryAfter(20*time.Second, errNot)
		}
		time.Sleep(5 * time.Second)
		return nil
	})
	task := durable.Task{Key: "a", Kind: "k", Delay: 10 * time.Second, MaxDelay: 12 * time.Second}
	next := func(what string, d time.Duration) {
		t.Helper()
		if in := time.Until(r.info("a").Next); (in - d).Abs() > time.Second/2 {
			t.Errorf("%s: the run is due in %v, want %v", what, in, d)
		}
	}
	r.sets(task, 2, 5*time.Second)
	next("set twice", 7*time.Second)
	r.ran(9 * time.Second) // it is running, for two seconds
	r.sets(task, 1, 0)
	next("set during the run", 10*time.Second)
	if calls := r.ran(20 * time.Second); len(calls) != 1 {
		t.Errorf("after the run: %v", calls)
	}
	r.gone("a")

	fails = true
	r.sets(task, 1, 0)
	r.ran(11 * time.Second)
	r.sets(task, 1, 0)
	next("set after a failed attempt", 10*time.Second)
	r.ran(4 * time.Second)
	r.must(r.on().Reschedule(ctx, "a", 3*time.Second))
	next("moved", 3*time.Second)
	r.sets(task, 1, 0)
	next("set after it was moved", 10*time.Second)
	r.ran(5 * time.Second)
	r.must(r.on().Pause(ctx, "a"))
	r.sets(task, 1, 0)
	next("set while it is paused", 7*time.Second)
	r.must(r.on().RemoveTask(ctx, "a"))
	r.sets(task, 1, 0)
	next("set after it was removed", 10*time.Second)
	r.must(r.on().RemoveTask(ctx, "a"))
}

func throttles(t *testing.T, r *rig) {
	r.handle("k", func(context.Context, durable.Run) error { return nil })
	task := durable.Task{Key: "a", Kind: "k", Delay: 10 * time.Second, MaxDelay: 10 * time.Second}
	r.sets(task, 50, 700*time.Millisecond)
	calls := r.ran(15 * time.Second)
	if len(calls) != 4 || string(calls[3].Payload) != "49" {
		t.Errorf("in 34.3 s: %v", calls)
	}
	for i := range calls[1:] {
		if d := calls[i+1].at.Sub(calls[i].at); d < task.Delay || d > task.Delay+time.Second {
			t.Errorf("after %v comes %v", calls[i].at, calls[i+1].at)
		}
	}
}
