// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// What a task is added with is in each of its runs, in a later process, too.
func TestTrace_isInEveryRun(t *testing.T) {
	trace := strings.Repeat("x", durable.MaxTrace)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var mu sync.Mutex // protects seen
		var seen []string
		open := func() *durable.Scheduler {
			s, err := durable.New(store, durable.WithLogger(testkit.Quiet()))
			must(t, err)
			must(t, s.Handle("kind", func(_ context.Context, run durable.Run) error {
				mu.Lock()
				seen = append(seen, run.Trace)
				mu.Unlock()
				if run.Attempt == 1 {
					return errors.New("on purpose")
				}
				return nil
			}, durable.WithRetry(2, time.Second, time.Second)))
			must(t, s.Start())
			return s
		}
		s := open()
		must(t, s.AddTask(ctx, durable.Task{Key: "k", Kind: "kind", Interval: time.Minute, Times: 3, Trace: trace,
			Payload: []byte("payload")}))
		must(t, s.AddTask(ctx, durable.Task{Key: "without", Kind: "kind", Delay: 12 * time.Hour}))
		time.Sleep(90 * time.Second)
		must(t, s.Reschedule(ctx, "k", time.Minute))
		store = store.Reopen()
		must(t, s.Shutdown(ctx))
		s = open()
		info, _, err := s.Get(ctx, "k")
		if must(t, err); info.Trace != trace || string(info.Payload) != "payload" {
			t.Errorf("in the next process the task is %+v", info)
		}
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(seen) != 6 {
			t.Errorf("there were %d calls, want 6", len(seen))
		}
		for i, got := range seen {
			if got != trace {
				t.Errorf("call %d has the trace %q", i, got)
			}
		}
		if info, _, err = s.Get(ctx, "without"); err != nil || info.Trace != "" {
			t.Errorf("a task without a trace is %+v, %v", info, err)
		}
		err = s.AddTask(ctx, durable.Task{Key: "long", Kind: "kind", Delay: 1, Trace: trace + "x"})
		if !errors.Is(err, durable.ErrInvalidTask) || !strings.Contains(err.Error(), "513 bytes; 512 are allowed") {
			t.Errorf("a trace that is too long: %v", err)
		}
		must(t, s.Shutdown(ctx))
	})
}
