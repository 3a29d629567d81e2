// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A paused task is still paused in the next process, and is neither parked nor overdue there.
func TestPause_outlivesTheProcess(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "a", Kind: "note", Delay: time.Minute})
		k.Must(k.Pause(ctx, "a"))
		k.Crash()
		k.Start()
		k.After(time.Hour)
		if i, s := k.Info("a"), k.Stats(); i.State != durable.Paused || s.Parked != 0 || len(k.Runs()) != 0 {
			t.Errorf("%+v, %+v", i, s)
		}
		k.Must(k.Resume(ctx, "a"))
		if calls := k.RunsAfter(2 * tick); len(calls) != 1 || calls[0].Due != k.Begin.Add(time.Minute) {
			t.Errorf("%v", calls)
		}
	})
}

// The start of an overdue run is made durable first. While that waits for the commit of a verb, the verb comes before the
// run: once it has returned, no run starts.
func TestStart_ofAnOverdueRun_duringTheCommitOfAVerb_doesNotBegin(t *testing.T) {
	for name, do := range map[string]func(k *kit.Kit) error{
		"pause":      func(k *kit.Kit) error { return k.Pause(ctx, "a") },
		"pause kind": func(k *kit.Kit) error { return k.PauseKind(ctx, "note") },
		"pause all":  func(k *kit.Kit) error { return k.PauseAll(ctx) },
		"remove":     func(k *kit.Kit) error { return k.RemoveTask(ctx, "a") },
		"reschedule": func(k *kit.Kit) error { return k.Reschedule(ctx, "a", time.Hour) },
		"replace": func(k *kit.Kit) error {
			return k.SetTask(ctx, durable.Task{Key: "a", Kind: "note", Delay: time.Hour})
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				k.Add(durable.Task{Key: "a", Kind: "note", Delay: time.Second})
				left := k.KV.Clone()
				k.Kill()
				k.After(time.Minute)
				k.Open(slowToCommit{left, time.Second})
				answered := make(chan error)
				go func() { answered <- do(k) }()
				k.After(tick / 2)
				k.Start() // the commit of the verb holds up that of the start
				k.Must(<-answered)
				k.RanNothing()
				k.After(time.Minute)
				k.RanNothing()
				if i, ok, err := k.Get(ctx, "a"); err != nil || name != "remove" && (!ok || i.Attempts != 0) {
					t.Errorf("%+v, %v", i, err)
				}
				_ = k.Resume(ctx, "a") // it fails if the task is removed
				k.Must(k.ResumeKind(ctx, "note"))
				k.Must(k.ResumeAll(ctx))
				for _, c := range k.RunsAfter(2 * time.Hour) {
					if c.Key == "a" && (c.Attempt != 1 || name == "remove") {
						t.Errorf("%+v", c)
					}
				}
			})
		})
	}
}

// A task that is paused after Bulk has found it is not run: that would bring a paused task forward.
func TestBulk_ofATaskThatIsBeingPaused_leavesItAlone(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		s := k.Use(durable.New(ctx, kit.Own(slowToCommit{memory.New(), time.Second}), durable.WithLogger(testkit.Quiet()))).Scheduler
		defer func() { _ = s.Shutdown(ctx) }()
		k.Must(s.Handle("note", func(context.Context, durable.Run) error { return nil }))
		k.Must(s.AddTask(ctx, durable.Task{Key: "a", Kind: "note", Delay: time.Hour}))
		for _, c := range []struct {
			verb func(context.Context, string) error
			do   durable.Action
		}{{s.Pause, durable.DoRunNow}, {s.Resume, durable.DoResume}, {s.Pause, durable.DoPause}} {
			var other sync.WaitGroup
			other.Go(func() { // it is durable in a second
				if err := c.verb(ctx, "a"); err != nil {
					t.Error(err)
				}
			})
			k.After(time.Second / 2)
			if n, err := s.Bulk(ctx, durable.Query{}, c.do); n != 0 || err != nil {
				t.Errorf("Bulk(%d) = %d, %v", c.do, n, err)
			}
			other.Wait()
		}
	})
}
