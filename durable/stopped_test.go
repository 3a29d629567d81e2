// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// firstError returns the error with which a walk begins.
func firstError(walk iter.Seq2[durable.Info, error]) error {
	for _, err := range walk {
		return err
	}
	return nil
}

// verbs maps the name of each verb that returns an error to a call of it. AddTask and similar verbs need the kind "k".
var verbs = map[string]func(s *durable.Scheduler) error{
	"Handle":     func(s *durable.Scheduler) error { return s.Handle("later", ok) },
	"Declare":    func(s *durable.Scheduler) error { return s.Declare("later") },
	"Schedule":   func(s *durable.Scheduler) error { _, err := s.Schedule(ctx, durable.TaskSet{Prefix: "a"}); return err },
	"Drain":      func(s *durable.Scheduler) error { return s.Drain(ctx, "a") },
	"Undrain":    func(s *durable.Scheduler) error { return s.Undrain(ctx, "a") },
	"Start":      func(s *durable.Scheduler) error { return s.Start() },
	"AddTask":    func(s *durable.Scheduler) error { return s.AddTask(ctx, anyTask) },
	"SetTask":    func(s *durable.Scheduler) error { return s.SetTask(ctx, anyTask) },
	"Put":        func(s *durable.Scheduler) error { _, _, err := s.Put(ctx, anyTask); return err },
	"AddNew":     func(s *durable.Scheduler) error { _, err := s.AddNew(ctx, anyTask); return err },
	"RemoveTask": func(s *durable.Scheduler) error { return s.RemoveTask(ctx, "a") },
	"Reschedule": func(s *durable.Scheduler) error { return s.Reschedule(ctx, "a", 0) },
	"Pause":      func(s *durable.Scheduler) error { return s.Pause(ctx, "a") },
	"Resume":     func(s *durable.Scheduler) error { return s.Resume(ctx, "a") },
	"PauseKind":  func(s *durable.Scheduler) error { return s.PauseKind(ctx, "k") },
	"ResumeKind": func(s *durable.Scheduler) error { return s.ResumeKind(ctx, "k") },
	"PauseAll":   func(s *durable.Scheduler) error { return s.PauseAll(ctx) },
	"ResumeAll":  func(s *durable.Scheduler) error { return s.ResumeAll(ctx) },
	"All":        func(s *durable.Scheduler) error { return firstError(s.All(ctx)) },
	"AllPrefix":  func(s *durable.Scheduler) error { return firstError(s.AllPrefix(ctx, "", "")) },
	"Backup":     func(s *durable.Scheduler) error { return s.Backup(ctx, io.Discard) },

	"RemoveTaskWait":   func(s *durable.Scheduler) error { _, err := s.RemoveTaskWait(ctx, "a"); return err },
	"Cancel":           func(s *durable.Scheduler) error { _, err := s.Cancel(ctx, "a"); return err },
	"Paused":           func(s *durable.Scheduler) error { _, err := s.Paused(ctx); return err },
	"Get":              func(s *durable.Scheduler) error { _, _, err := s.Get(ctx, "a"); return err },
	"GetMany":          func(s *durable.Scheduler) error { _, err := s.GetMany(ctx, "a"); return err },
	"Exist":            func(s *durable.Scheduler) error { _, err := s.Exist(ctx, "a"); return err },
	"GetTaskTimes":     func(s *durable.Scheduler) error { _, err := s.GetTaskTimes(ctx, "a"); return err },
	"RemovePrefix":     func(s *durable.Scheduler) error { _, err := s.RemovePrefix(ctx, "a"); return err },
	"ReschedulePrefix": func(s *durable.Scheduler) error { _, err := s.ReschedulePrefix(ctx, "a", 0); return err },
	"Find":             func(s *durable.Scheduler) error { _, err := s.Find(ctx, durable.Query{}); return err },
	"Counts":           func(s *durable.Scheduler) error { _, err := s.Counts(ctx); return err },
	"Failures":         func(s *durable.Scheduler) error { _, err := s.Failures(ctx); return err },
	"Groups":           func(s *durable.Scheduler) error { _, err := s.Groups(ctx, durable.Query{}); return err },
	"History":          func(s *durable.Scheduler) error { _, err := s.History(ctx, durable.HistoryQuery{}); return err },
	"Nodes":            func(s *durable.Scheduler) error { _, err := s.Nodes(ctx); return err },
	"CatchUp":          func(s *durable.Scheduler) error { _, err := s.CatchUp(ctx); return err },
	"LastHour":         func(s *durable.Scheduler) error { _, err := s.LastHour(ctx); return err },
	"Sets":             func(s *durable.Scheduler) error { _, err := s.Sets(ctx); return err },
	"Tuned":            func(s *durable.Scheduler) error { _, err := s.Tuned(ctx); return err },
	"TuneLimits":       func(s *durable.Scheduler) error { return s.TuneLimits(ctx, durable.KindLimits{Kind: "k"}) },
	"TunePoolSize":     func(s *durable.Scheduler) error { return s.TunePoolSize(ctx, 1) },
	"TuneCatchUp":      func(s *durable.Scheduler) error { return s.TuneCatchUp(ctx, 1) },
	"Bulk": func(s *durable.Scheduler) error {
		_, err := s.Bulk(ctx, durable.Query{}, durable.DoRemove)
		return err
	},
	"BulkStep": func(s *durable.Scheduler) error {
		_, _, err := s.BulkStep(ctx, durable.Query{}, durable.DoRemove)
		return err
	},
	"BulkReschedule": func(s *durable.Scheduler) error {
		_, err := s.BulkReschedule(ctx, durable.Query{}, func(int) time.Duration { return 0 })
		return err
	},
	"Restore": func(s *durable.Scheduler) error { return s.Restore(ctx, aRecord) },
}

var (
	anyTask = durable.Task{Key: "a", Kind: "k", Delay: time.Second}
	aRecord = recordOf(anyTask)
)

// recordOf returns the stored form of the task.
func recordOf(task durable.Task) engine.Record {
	w, err := author.Add(task, 1)
	if err != nil {
		panic(err)
	}
	return w.Record
}

// notVerbs are the methods that have nothing to refuse, and the methods that report how the scheduler has ended.
var notVerbs = []string{"Shutdown", "Err", "Len", "Stats", "Kinds"}

// After Shutdown each verb returns an error that says so, on every scheduler. The table contains every method of a
// Scheduler.
func TestShutdown_eachVerbIsStopped(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		opts := []durable.Option{durable.WithLogger(testkit.Quiet())}
		store, stored := durable.New(ctx, memory.New().Engine(), opts...)
		node, joined := durable.New(ctx, memory.New().Shared(), opts...)
		client, connected := durable.Connect(ctx, memory.New().Shared(), opts...)
		k.Must(stored, joined, connected)
		for name, s := range map[string]*durable.Scheduler{"store": store, "node": node, "client": client} {
			if err := errors.Join(s.Handle("k", ok), s.Shutdown(ctx)); err != nil {
				t.Error(err)
			}
			for verb, call := range verbs {
				says := "durable: stopped: " + verb
				if err := call(s); !errors.Is(err, durable.ErrStopped) || !strings.HasPrefix(err.Error()+" ", says+" ") {
					t.Errorf("%s: %s after Shutdown: %v", name, verb, err)
				}
			}
			handle := func(context.Context, durable.Run, int) error { return nil }
			if _, err := durable.KindOf(s, "later", handle); !errors.Is(err, durable.ErrStopped) {
				t.Errorf("%s: KindOf after Shutdown: %v", name, err)
			}
			if kinds := s.Kinds(); len(kinds) > 1 {
				t.Errorf("%s: the kinds are %v", name, kinds)
			}
		}
	})
	known := make(map[string]bool)
	for verb := range verbs {
		known[verb] = true
	}
	for _, name := range notVerbs {
		known[name] = true
	}
	for all, i := reflect.TypeFor[*durable.Scheduler](), 0; i < all.NumMethod(); i++ {
		if name := all.Method(i).Name; !known[name] {
			t.Errorf("%s is not tried", name)
		}
	}
}

// A run that Shutdown no longer waits for learns why its context is done.
func TestShutdown_tellsRunsWhyTheyAreCancelled(t *testing.T) {
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		cause := make(chan error, 1)
		k.Handle("long", func(ctx context.Context, _ durable.Run) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		})
		k.Add(durable.Task{Key: "a", Kind: "long", Delay: time.Second})
		k.After(2 * time.Second)
		k.Nodes[0].Kill()
		if err := <-cause; !errors.Is(err, durable.ErrStopped) {
			t.Errorf("the cause is %v", err)
		}
	})
}
