// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A kind with a limit is paused while more of its tasks are due than fit in memory. Nothing starts, other kinds are
// not delayed, and when it is resumed each of the tasks that are left runs once.
func pausesLimitedKind(t *testing.T, r *rig) {
	const n, tasks = 2, 1500
	m := r.metered("k", func(context.Context, durable.Run) error { time.Sleep(10 * time.Millisecond); return nil },
		durable.WithConcurrency(n))
	r.handle("free", ok)
	ran := make(map[string]int)
	count := func(calls []call) (of int) {
		for _, c := range calls {
			if c.Kind == "k" {
				ran[c.Key]++
				of++
			}
			if c.Attempt != 1 {
				t.Errorf("%s: attempt %d", c.Key, c.Attempt)
			}
		}
		return of
	}
	r.addMany(tasks, "k", time.Second)
	if count(r.ran(1500*time.Millisecond)) == 0 {
		t.Error("nothing runs before the pause")
	}
	r.must(r.on().PauseKind(ctx, "k"))
	count(r.ran(seen))
	r.must(r.on().RemoveTask(ctx, fmt.Sprintf("k-%05d", tasks-1)))
	r.add(durable.Task{Key: "k-more", Kind: "k", Delay: time.Second},
		durable.Task{Key: "free", Kind: "free", Delay: time.Second})
	calls := r.ran(time.Minute)
	if of := count(calls); of != 0 || len(calls) != 1 {
		t.Errorf("while it is paused %d of the kind run, of %d", of, len(calls))
	}
	for i, s := range r.all {
		if st := s.Stats(); st.Limited != 0 || st.Unhandled != 0 {
			t.Errorf("on scheduler %d: %+v", i, st)
		}
	}
	r.must(r.on().ResumeKind(ctx, "k"))
	for range 3 { // it is paused again on the way
		count(r.ran(700 * time.Millisecond))
		r.must(r.on().PauseKind(ctx, "k"))
		count(r.ran(seen))
		r.must(r.on().ResumeKind(ctx, "k"))
	}
	count(r.ran(time.Minute))
	if len(ran) != tasks {
		t.Errorf("%d of %d ran", len(ran), tasks)
	}
	for key, times := range ran {
		if times != 1 {
			t.Errorf("%s ran %d times", key, times)
		}
	}
	for i := range r.all {
		if m.peak(i) > n {
			t.Errorf("%d runs at the same time on scheduler %d", m.peak(i), i)
		}
	}
	r.allDone()
}

// What waits for the rate of its kind uses up none of it while the kind is paused.
func pausesKindWithRate(t *testing.T, r *rig) {
	const per, tasks = 30 * time.Second, 20
	r.handle("k", ok, durable.WithRate(1, per, 1))
	for i, s := range r.all { // uses up the rate of each
		r.must(s.AddTask(ctx, durable.Task{Key: fmt.Sprint("first", i), Kind: "k", Delay: 500 * time.Millisecond}))
	}
	if first := r.ran(2 * time.Second); len(first) != len(r.all) {
		t.Fatalf("%d ran at first", len(first))
	}
	r.addMany(tasks, "k", 500*time.Millisecond)
	time.Sleep(time.Second)
	r.must(r.on().PauseKind(ctx, "k"))
	if calls := r.ran(per + per/2); len(calls) != 0 {
		t.Errorf("paused: %v", calls)
	}
	r.must(r.on().ResumeKind(ctx, "k"))
	if calls := r.ran(seen + time.Second); len(calls) != len(r.all) {
		t.Errorf("resumed after a pause that was longer than the time of the rate: %v", calls)
	}
	n, err := r.on().RemovePrefix(ctx, "k-")
	r.must(err)
	if n != tasks-len(r.all) {
		t.Errorf("%d were left", n)
	}
}
