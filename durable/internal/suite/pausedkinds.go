// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// seen is the time within which all nodes see a pause or its end.
const seen = 2 * time.Second

func ok(context.Context, durable.Run) error { return nil }

// pausedAre fails the test unless all nodes report these pauses and show these kinds as paused.
func pausedAre(k *kit.Kit, want durable.Pauses, kinds ...string) {
	k.T.Helper()
	for i, s := range k.Nodes {
		p, err := s.Paused(ctx)
		if err != nil || p.All != want.All || !slices.Equal(p.Kinds, want.Kinds) {
			k.T.Errorf("on node %d are paused: %+v, %v, want %+v", i, p, err, want)
		}
		for _, info := range s.Kinds() {
			if info.Paused != slices.Contains(kinds, info.Kind) {
				k.T.Errorf("on node %d: %+v", i, info)
			}
		}
	}
}

// keys returns the sorted keys of the calls.
func keys(calls []kit.Call) (all []string) {
	for _, c := range calls {
		all = append(all, c.Key)
	}
	slices.Sort(all)
	return all
}

func pausesKind(t *testing.T, k *kit.Kit) {
	k.Handle("a", ok)
	k.Handle("b", ok)
	task := func(key, kind string, delay time.Duration) durable.Task {
		return durable.Task{Key: key, Kind: kind, Delay: delay}
	}
	k.On().Add(task("a1", "a", 500*time.Millisecond), task("a2", "a", 5*time.Second), task("a3", "a", 20*time.Second),
		task("b1", "b", 5*time.Second))
	k.Must(k.On().PauseKind(ctx, "a"))
	k.Must(k.On().PauseKind(ctx, "a")) // a second call has no effect
	k.After(seen)
	pausedAre(k, durable.Pauses{Kinds: []string{"a"}}, "a")
	k.On().Add(task("a4", "a", time.Second), task("b2", "b", time.Second), task("a5", "a", time.Second), task("a6", "a", time.Second))
	k.Must(k.On().RemoveTask(ctx, "a5"))
	k.Must(k.On().Reschedule(ctx, "a6", 30*time.Second))
	k.RunsAfter(0) // a node that has not yet seen the pause may have started a1
	k.Must(k.On().SetTask(ctx, task("a1", "a", time.Second)))
	k.After(10 * time.Second)
	k.Ran("b1", "b2")
	if i := k.Info("a2"); i.State != durable.Waiting || i.Attempts != 0 || i.Missed != 0 {
		t.Errorf("paused and due: %+v", i)
	}
	for i, s := range k.Nodes {
		if st := s.Stats(); st.Unhandled != 0 || st.Waiting != 0 {
			t.Errorf("on node %d: %+v", i, st)
		}
		if c, err := s.CatchUp(ctx); err != nil || c.Left != 0 {
			t.Errorf("on node %d: %+v, %v", i, c, err)
		}
	}
	k.Must(k.On().ResumeKind(ctx, "a"))
	k.Must(k.On().ResumeKind(ctx, "a")) // a second call has no effect
	calls := k.RunsAfter(seen + time.Second)
	if got := keys(calls); !slices.Equal(got, []string{"a1", "a2", "a4"}) {
		t.Errorf("resumed, these run: %v", got)
	}
	for _, c := range calls {
		if c.Attempt != 1 || c.Seq != 0 {
			t.Errorf("resumed: %+v", c)
		}
	}
	pausedAre(k, durable.Pauses{})
	k.After(30 * time.Second)
	k.Ran("a3", "a6")
}

func pausesAll(t *testing.T, k *kit.Kit) {
	k.Handle("a", ok)
	k.Handle("b", ok)
	k.On().Add(durable.Task{Key: "a", Kind: "a", Delay: 5 * time.Second}, durable.Task{Key: "b", Kind: "b", Delay: 5 * time.Second})
	k.Must(k.On().PauseAll(ctx))
	k.Must(k.On().PauseKind(ctx, "b"))
	k.After(seen)
	pausedAre(k, durable.Pauses{All: true, Kinds: []string{"b"}}, "a", "b")
	k.After(10 * time.Second)
	k.RanNothing()
	k.Must(k.On().ResumeAll(ctx))
	k.After(seen + time.Second)
	k.Ran("a")
	pausedAre(k, durable.Pauses{Kinds: []string{"b"}}, "b")
	k.Must(k.On().PauseAll(ctx))
	k.Must(k.On().ResumeKind(ctx, "b"))
	k.After(seen + time.Second)
	k.RanNothing()
	k.Must(k.On().ResumeAll(ctx))
	k.After(seen + time.Second)
	k.Ran("b")
}

// entered is the maximum delay between a start and the handler call on a busy machine.
const entered = 500 * time.Millisecond

// After PauseKind has returned, no run starts on the same node. After another two seconds, no run starts on any node.
func pausedKindStartsNothing(t *testing.T, k *kit.Kit) {
	var mu sync.Mutex
	var asked int // the node whose PauseKind is called
	var since time.Time
	for i, s := range k.Nodes {
		s.Handle("k", func(context.Context, durable.Run) error {
			mu.Lock()
			defer mu.Unlock()
			if d := time.Since(since); !since.IsZero() && (i == asked && d > entered || d > seen+entered) {
				t.Errorf("on node %d a run starts %v after a pause on node %d", i, d, asked)
			}
			return nil
		})
	}
	for i := range 60 {
		k.On().Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Interval: 100 * time.Millisecond, Times: durable.Forever})
	}
	for round := range 2 * len(k.Nodes) {
		time.Sleep(3*time.Second + time.Duration(round)*17*time.Millisecond)
		k.Must(k.Nodes[round%len(k.Nodes)].PauseKind(ctx, "k"))
		mu.Lock()
		asked, since = round%len(k.Nodes), time.Now()
		mu.Unlock()
		time.Sleep(5 * time.Second)
		mu.Lock()
		since = time.Time{}
		mu.Unlock()
		k.Must(k.On().ResumeKind(ctx, "k"))
	}
	for i := range 60 {
		if info := k.Info(fmt.Sprint(i)); info.Attempts != 0 {
			t.Errorf("%+v", info)
		}
		k.Must(k.On().RemoveTask(ctx, fmt.Sprint(i)))
	}
}

func pausesKindRunning(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(4 * time.Second); return nil })
	k.On().Add(durable.Task{Key: "once", Kind: "k", Delay: time.Second},
		durable.Task{Key: "repeats", Kind: "k", Interval: 2 * time.Second, Delay: time.Second, Times: 2})
	k.After(1500 * time.Millisecond)
	k.Must(k.On().PauseKind(ctx, "k"))
	k.After(10 * time.Second)
	k.Ran("once", "repeats")
	k.Gone("once")
	if i := k.Info("repeats"); i.Times != 1 || i.Attempts != 0 {
		t.Errorf("%+v", i)
	}
	k.Must(k.On().ResumeKind(ctx, "k"))
	k.After(10 * time.Second)
	k.Ran("repeats")
	k.Gone("repeats")
}

func resumesRepeatingKind(t *testing.T, k *kit.Kit) {
	kinds := map[string]durable.Missed{"once": durable.MissedOnce, "skip": durable.MissedSkip, "all": durable.MissedAll}
	for kind, missed := range kinds {
		k.Handle(kind, ok, durable.WithMissed(missed))
		k.Must(k.On().PauseKind(ctx, kind))
	}
	k.After(seen)
	for kind := range kinds {
		k.On().Add(durable.Task{Key: kind, Kind: kind, Interval: 4 * time.Second, Times: durable.Forever})
	}
	k.After(21 * time.Second) // 5 periods and part of the next
	k.RanNothing()
	for kind := range kinds {
		k.Must(k.On().ResumeKind(ctx, kind))
	}
	calls := k.RunsAfter(2500 * time.Millisecond)
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
		if i := k.Info(kind); n != want.runs || i.Missed != want.missed {
			t.Errorf("%s: %d runs and %d missed periods, want %+v", kind, n, i.Missed, want)
		}
		k.Must(k.On().RemoveTask(ctx, kind))
	}
}

func pausesKindWithoutHandler(t *testing.T, k *kit.Kit) {
	k.Must(k.On().PauseKind(ctx, "later\xff"))
	pausedAre(k, durable.Pauses{Kinds: []string{"later\xff"}})
	k.After(seen)
	k.Handle("later\xff", ok)
	pausedAre(k, durable.Pauses{Kinds: []string{"later\xff"}}, "later\xff")
	k.On().Add(durable.Task{Key: "a", Kind: "later\xff", Delay: time.Second})
	k.After(3 * time.Second)
	k.RanNothing()
	k.Must(k.On().ResumeKind(ctx, "later\xff"))
	if calls := k.RunsAfter(seen + time.Second); len(calls) != 1 {
		t.Errorf("resumed: %v", calls)
	}
	for _, kind := range []string{"", string(make([]byte, durable.MaxKind+1)), "a\x1f2"} {
		if err := k.On().PauseKind(ctx, kind); err == nil {
			t.Errorf("no kind has the name %.20q, and it is paused", kind)
		}
	}
}

// If several nodes pause kinds at the same time, all pauses are kept.
func pausesAtOnce(t *testing.T, k *kit.Kit) {
	var all sync.WaitGroup
	var want []string
	for i := range 30 {
		kind, s := fmt.Sprintf("kind%02d", i), k.On()
		want = append(want, kind)
		all.Go(func() {
			if err := s.PauseKind(ctx, kind); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	pausedAre(k, durable.Pauses{Kinds: want})
	for i, kind := range want {
		s := k.On()
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
	pausedAre(k, durable.Pauses{Kinds: left})
}

// Pauses that exceed what a store or an engine can hold are refused and change nothing.
func pausesTooMany(t *testing.T, k *kit.Kit) {
	n := 0
	var err error
	for ; err == nil && n < 1000; n++ {
		err = k.On().PauseKind(ctx, fmt.Sprint(strings.Repeat("k", durable.MaxKind-4), 1000+n))
	}
	if !errors.Is(err, durable.ErrInvalidTask) || n < 150 {
		t.Errorf("kind %d: %v", n, err)
	}
	if p, err := k.On().Paused(ctx); err != nil || len(p.Kinds) != n-1 {
		t.Errorf("%d are paused, %v", len(p.Kinds), err)
	}
	if err := k.On().PauseAll(ctx); err != nil && !errors.Is(err, durable.ErrInvalidTask) {
		t.Error(err)
	}
}

// catchUp is the rate at which overdue tasks run in resumesKindSlowly.
const catchUp = 100

// Tasks that fell due while their kind was paused run at the rate for overdue tasks and delay nothing else.
func resumesKindSlowly(t *testing.T, k *kit.Kit) {
	const tasks = 3000
	k.Handle("late", ok)
	k.Handle("live", ok)
	k.Must(k.PauseKind(ctx, "late"))
	k.After(seen)
	var all []durable.Task
	for i := range tasks {
		all = append(all, durable.Task{Key: fmt.Sprint(i), Kind: "late", Delay: time.Duration(i+1) * 10 * time.Millisecond})
	}
	k.On().Add(all...)
	k.On().Add(durable.Task{Key: "live", Kind: "live", Interval: 100 * time.Millisecond, Times: durable.Forever})
	k.After(time.Minute)
	k.Must(k.ResumeKind(ctx, "late"))
	resumed := time.Now()
	for late := 0; late < tasks; {
		for _, c := range k.RunsAfter(100 * time.Millisecond) {
			if c.Kind == "late" {
				late++
			} else if c.Late > 200*time.Millisecond {
				t.Errorf("a live run is %v late", c.Late)
			}
		}
		if most := catchUp*(time.Since(resumed).Seconds()+1.2) + 1; float64(late) > most {
			t.Fatalf("%d overdue tasks have run in %v", late, time.Since(resumed))
		}
		if since := time.Since(resumed); since > time.Minute {
			t.Fatalf("after %v %d of %d have run", since, late, tasks)
		}
	}
	k.After(time.Second) // until the results of the last runs have been written
	left := 0
	for i, err := range k.On().All(ctx) {
		if left++; err != nil || i.Key != "live" {
			t.Errorf("left is %+v, %v", i, err)
		}
	}
	for _, n := range k.Nodes {
		if st := n.Stats(); st.Unhandled != 0 || left != 1 {
			t.Errorf("%d are left, and the accounts of %s are %+v", left, n.Name, st)
		}
	}
}
