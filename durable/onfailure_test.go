// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// onFailure returns the option that adds a task of the kind "told" about each failure.
func onFailure() durable.KindOption {
	return durable.WithOnFailure(func(failed durable.Info) durable.Task {
		return durable.Task{Key: fmt.Sprintf("told %s %d", failed.Key, failed.Seq), Kind: "told", Payload: []byte(failed.Failure)}
	})
}

// A task is added when a task is parked that ends its process at each attempt.
func TestOnFailure_ofATaskThatEndsItsProcess(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		ended := make(chan struct{})
		defer close(ended)
		handle := func() {
			k.Handle("k", func(context.Context, durable.Run) error { <-ended; return nil }, onFailure(), durable.WithRetry(2, time.Second, time.Second))
			k.Handle("told", ok)
			k.Start()
		}
		k.Open(k.KV)
		handle()
		k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		told := 0
		for range 4 {
			k.After(time.Minute)
			for _, c := range k.Runs() {
				if c.Kind == "told" && strings.Contains(string(c.Payload), "process ended") {
					told++
				}
			}
			k.Crash()
			handle()
		}
		if i := k.Info("a"); told != 1 || i.State != durable.Parked {
			t.Errorf("told %d times of %v", told, i)
		}
	})
}

// Whichever commit fails, or has its answer lost, a failure adds one task.
func TestOnFailure_whateverCommitFails(t *testing.T) {
	for name, fault := range map[string]enginetest.Fault{
		"fails": {Fail: true}, "is lost": {Lose: true}, "is late": {Delay: 3 * time.Second},
	} {
		for at := range 4 {
			kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
				k.Handle("k", func(context.Context, durable.Run) error { return kit.ErrFail }, onFailure(), durable.WithRetry(2, time.Second, time.Second))
				k.Handle("told", ok)
				k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
				var commits atomic.Int64
				for _, n := range k.Nodes {
					n.Link.SetFaults(func(method string) (f enginetest.Fault) {
						if strings.HasPrefix(method, "Commit") {
							if commits.Add(1) == int64(at+1) {
								f = fault
							}
						}
						return f
					})
				}
				k.After(time.Minute)
				told, runs, added, removed := make(map[string]bool), 0, uint64(0), uint64(0)
				for _, c := range k.Runs() {
					if c.Kind == "told" {
						told[c.Key], runs = true, runs+1
					}
				}
				for _, n := range k.Nodes {
					added, removed = added+n.Stats().Added, removed+n.Stats().Removed
				}
				if i := k.Info("a"); len(told) != 1 || runs > 2 || i.State != durable.Parked || commits.Load() <= int64(at) {
					t.Errorf("commit %d of %d %s: %d runs of %v tell of %v", at, commits.Load(), name, runs, told, i)
				}
				if added != 2 || removed != 0 {
					t.Errorf("commit %d %s: %d tasks were added, and %d removed", at, name, added, removed)
				}
			})
		}
	}
}

// A task about a failure that is too large for the engine is left out, and the failed task is parked.
func TestOnFailure_tooLargeForTheEngine(t *testing.T) {
	log, logged := test.NewNullLogger()
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.KV = memory.Limited(engine.Limits{Value: 2000})
		k.Open(k.KV).Start()
		k.Handle("told", ok)
		k.Handle("k", func(context.Context, durable.Run) error { return durable.Park(kit.ErrFail) }, durable.WithOnFailure(func(durable.Info) durable.Task {
			return durable.Task{Key: "told", Kind: "told", Payload: make([]byte, 3000)}
		}))
		k.Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		k.After(time.Minute)
		k.Ran("a")
		if i := k.Info("a"); i.State != durable.Parked || len(i.Failed) != 1 || k.Stats().Added != 1 {
			t.Errorf("%v, and %d tasks were added", i, k.Stats().Added)
		}
		if !slices.ContainsFunc(logged.AllEntries(), func(e *logrus.Entry) bool { return strings.Contains(e.Message, "about a failure is not added") }) {
			t.Errorf("the log says %v", logged.AllEntries())
		}
	}, durable.WithLogger(log))
}
