// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// seen is how long after a pause, or the end of one, all nodes have seen it.
const seen = 2 * time.Second

func ok(context.Context, durable.Run) error { return nil }

// pausedAre fails the test unless all nodes say that this is paused, and of these kinds.
func (r *rig) pausedAre(want durable.Pauses, kinds ...string) {
	r.t.Helper()
	for i, s := range r.all {
		p, err := s.Paused(ctx)
		if err != nil || p.All != want.All || !slices.Equal(p.Kinds, want.Kinds) {
			r.t.Errorf("on node %d are paused: %+v, %v, want %+v", i, p, err, want)
		}
		for _, k := range s.Kinds() {
			if k.Paused != slices.Contains(kinds, k.Kind) {
				r.t.Errorf("on node %d: %+v", i, k)
			}
		}
	}
}

// keys returns the keys of the calls, sorted.
func keys(calls []call) (all []string) {
	for _, c := range calls {
		all = append(all, c.Key)
	}
	slices.Sort(all)
	return all
}

func pausesKind(t *testing.T, r *rig) {
	r.handle("a", ok)
	r.handle("b", ok)
	task := func(key, kind string, delay time.Duration) durable.Task {
		return durable.Task{Key: key, Kind: kind, Delay: delay}
	}
	r.add(task("a1", "a", 500*time.Millisecond), task("a2", "a", 5*time.Second), task("a3", "a", 20*time.Second),
		task("b1", "b", 5*time.Second))
	r.must(r.on().PauseKind(ctx, "a"))
	r.must(r.on().PauseKind(ctx, "a")) // again
	time.Sleep(seen)
	r.pausedAre(durable.Pauses{Kinds: []string{"a"}}, "a")
	r.add(task("a4", "a", time.Second), task("b2", "b", time.Second), task("a5", "a", time.Second), task("a6", "a", time.Second))
	r.must(r.on().RemoveTask(ctx, "a5"))
	r.must(r.on().Reschedule(ctx, "a6", 30*time.Second))
	r.ran(0) // a node that has not seen it may have begun a1
	r.must(r.on().SetTask(ctx, task("a1", "a", time.Second)))
	if got := keys(r.ran(10 * time.Second)); !slices.Equal(got, []string{"b1", "b2"}) {
		t.Errorf("while a is paused these run: %v", got)
	}
	if i := r.info("a2"); i.State != durable.Waiting || i.Attempts != 0 || i.Missed != 0 {
		t.Errorf("paused and due: %+v", i)
	}
	for i, s := range r.all {
		if st := s.Stats(); st.Unhandled != 0 || st.Waiting != 0 {
			t.Errorf("on node %d: %+v", i, st)
		}
		if c, err := s.CatchUp(ctx); err != nil || c.Left != 0 {
			t.Errorf("on node %d: %+v, %v", i, c, err)
		}
	}
	r.must(r.on().ResumeKind(ctx, "a"))
	r.must(r.on().ResumeKind(ctx, "a")) // again
	calls := r.ran(seen + time.Second)
	if got := keys(calls); !slices.Equal(got, []string{"a1", "a2", "a4"}) {
		t.Errorf("resumed, these run: %v", got)
	}
	for _, c := range calls {
		if c.Attempt != 1 || c.Seq != 0 {
			t.Errorf("resumed: %+v", c)
		}
	}
	r.pausedAre(durable.Pauses{})
	if got := keys(r.ran(30 * time.Second)); !slices.Equal(got, []string{"a3", "a6"}) {
		t.Errorf("later these run: %v", got)
	}
}

func pausesAll(t *testing.T, r *rig) {
	r.handle("a", ok)
	r.handle("b", ok)
	r.add(durable.Task{Key: "a", Kind: "a", Delay: 5 * time.Second}, durable.Task{Key: "b", Kind: "b", Delay: 5 * time.Second})
	r.must(r.on().PauseAll(ctx))
	r.must(r.on().PauseKind(ctx, "b"))
	time.Sleep(seen)
	r.pausedAre(durable.Pauses{All: true, Kinds: []string{"b"}}, "a", "b")
	if calls := r.ran(10 * time.Second); len(calls) != 0 {
		t.Errorf("while all are paused: %v", calls)
	}
	r.must(r.on().ResumeAll(ctx))
	if got := keys(r.ran(seen + time.Second)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("all but b are resumed: %v", got)
	}
	r.pausedAre(durable.Pauses{Kinds: []string{"b"}}, "b")
	r.must(r.on().PauseAll(ctx))
	r.must(r.on().ResumeKind(ctx, "b"))
	if calls := r.ran(seen + time.Second); len(calls) != 0 {
		t.Errorf("b is resumed while all are paused: %v", calls)
	}
	r.must(r.on().ResumeAll(ctx))
	if got := keys(r.ran(seen + time.Second)); !slices.Equal(got, []string{"b"}) {
		t.Errorf("all are resumed: %v", got)
	}
}

// entered is how long after its start a handler may be called, on a busy machine.
const entered = 500 * time.Millisecond

// After PauseKind no run starts where it was asked, and after two seconds none anywhere.
func pausedKindStartsNothing(t *testing.T, r *rig) {
	var mu sync.Mutex
	var asked int // the node
	var since time.Time
	for i, s := range r.all {
		r.must(s.Handle("k", func(context.Context, durable.Run) error {
			mu.Lock()
			defer mu.Unlock()
			if d := time.Since(since); !since.IsZero() && (i == asked && d > entered || d > seen+entered) {
				t.Errorf("on node %d a run starts %v after a pause on node %d", i, d, asked)
			}
			return nil
		}))
	}
	for i := range 60 {
		r.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Interval: 100 * time.Millisecond, Times: durable.Forever})
	}
	for round := range 2 * len(r.all) {
		time.Sleep(3*time.Second + time.Duration(round)*17*time.Millisecond)
		r.must(r.all[round%len(r.all)].PauseKind(ctx, "k"))
		mu.Lock()
		asked, since = round%len(r.all), time.Now()
		mu.Unlock()
		time.Sleep(5 * time.Second)
		mu.Lock()
		since = time.Time{}
		mu.Unlock()
		r.must(r.on().ResumeKind(ctx, "k"))
	}
	for i := range 60 {
		if info := r.info(fmt.Sprint(i)); info.Attempts != 0 {
			t.Errorf("%+v", info)
		}
		r.must(r.on().RemoveTask(ctx, fmt.Sprint(i)))
	}
}

func pausesKindRunning(t *testing.T, r *rig) {
	r.handle("k", func(context.Context, durable.Run) error { time.Sleep(4 * time.Second); return nil })
	r.add(durable.Task{Key: "once", Kind: "k", Delay: time.Second},
		durable.Task{Key: "repeats", Kind: "k", Interval: 2 * time.Second, Delay: time.Second, Times: 2})
	time.Sleep(1500 * time.Millisecond)
	r.must(r.on().PauseKind(ctx, "k"))
	if got := keys(r.ran(10 * time.Second)); !slices.Equal(got, []string{"once", "repeats"}) {
		t.Errorf("before: %v", got)
	}
	r.gone("once")
	if i := r.info("repeats"); i.Times != 1 || i.Attempts != 0 {
		t.Errorf("%+v", i)
	}
	r.must(r.on().ResumeKind(ctx, "k"))
	if got := keys(r.ran(10 * time.Second)); !slices.Equal(got, []string{"repeats"}) {
		t.Errorf("resumed: %v", got)
	}
	r.gone("repeats")
}

func resumesRepeatingKind(t *testing.T, r *rig) {
	kinds := map[string]durable.Missed{"once": durable.MissedOnce, "skip": durable.MissedSkip, "all": durable.MissedAll}
	for kind, missed := range kinds {
		r.handle(kind, ok, durable.WithMissed(missed))
		r.must(r.on().PauseKind(ctx, kind))
	}
	time.Sleep(seen)
	for kind := range kinds {
		r.add(durable.Task{Key: kind, Kind: kind, Interval: 4 * time.Second, Times: durable.Forever})
	}
	if calls := r.ran(21 * time.Second); len(calls) != 0 { // 5 periods, and a bit of the next
		t.Errorf("paused: %v", calls)
	}
	for kind := range kinds {
		r.must(r.on().ResumeKind(ctx, kind))
	}
	calls := r.ran(2500 * time.Millisecond)
	for kind, want := range map[string]struct {
		runs   int
		missed uint64
	}{"once": {1, 4}, "skip": {0, 5}, "all": {5, 0}} {
		n := 0
		for _, c := range calls {
			if c.Key == kind {
				n++
			}
		}
		if i := r.info(kind); n != want.runs || i.Missed != want.missed {
			t.Errorf("%s: %d runs and %d missed periods, want %+v", kind, n, i.Missed, want)
		}
		r.must(r.on().RemoveTask(ctx, kind))
	}
}

func pausesKindWithoutHandler(t *testing.T, r *rig) {
	r.must(r.on().PauseKind(ctx, "later\xff"))
	r.pausedAre(durable.Pauses{Kinds: []string{"later\xff"}})
	time.Sleep(seen)
	r.handle("later\xff", ok)
	r.pausedAre(durable.Pauses{Kinds: []string{"later\xff"}}, "later\xff")
	r.add(durable.Task{Key: "a", Kind: "later\xff", Delay: time.Second})
	if calls := r.ran(3 * time.Second); len(calls) != 0 {
		t.Errorf("paused before it had a handler: %v", calls)
	}
	r.must(r.on().ResumeKind(ctx, "later\xff"))
	if calls := r.ran(seen + time.Second); len(calls) != 1 {
		t.Errorf("resumed: %v", calls)
	}
	for _, kind := range []string{"", string(make([]byte, durable.MaxKind+1)), "a\x1f2"} {
		if err := r.on().PauseKind(ctx, kind); err == nil {
			t.Errorf("no kind has the name %.20q, and it is paused", kind)
		}
	}
}

// Pauses of several nodes at the same time are all kept.
func pausesAtOnce(t *testing.T, r *rig) {
	var all sync.WaitGroup
	var want []string
	for i := range 30 {
		kind, s := fmt.Sprintf("kind%02d", i), r.on()
		want = append(want, kind)
		all.Go(func() {
			if err := s.PauseKind(ctx, kind); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	r.pausedAre(durable.Pauses{Kinds: want})
	for i, kind := range want {
		s := r.on()
		if i%3 != 0 {
			all.Go(func() {
				if err := s.ResumeKind(ctx, kind); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	var left []string
	for i, kind := range want {
		if i%3 == 0 {
			left = append(left, kind)
		}
	}
	r.pausedAre(durable.Pauses{Kinds: left})
}
