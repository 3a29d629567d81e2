// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// The trace with which a task is added is in each of its runs, even in a later process.
func TestTrace_isInEveryRun(t *testing.T) {
	trace := strings.Repeat("x", durable.MaxTrace)
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		handle := func() {
			k.Handle("kind", func(_ context.Context, run durable.Run) error {
				if run.Attempt == 1 {
					return errors.New("on purpose")
				}
				return nil
			}, durable.WithRetry(2, time.Second, time.Second))
		}
		handle()
		k.Add(durable.Task{Key: "k", Kind: "kind", Interval: time.Minute, Times: 3, Trace: trace, Payload: []byte("payload")},
			durable.Task{Key: "without", Kind: "kind", Delay: 12 * time.Hour})
		k.After(90 * time.Second)
		k.Must(k.Reschedule(ctx, "k", time.Minute))
		k.Crash()
		handle()
		k.Start()
		if info := k.Info("k"); info.Trace != trace || string(info.Payload) != "payload" {
			t.Errorf("in the next process the task is %+v", info)
		}
		k.After(time.Hour)
		for i, run := range k.Ran("k", "k", "k", "k", "k", "k") {
			if run.Trace != trace {
				t.Errorf("call %d has the trace %q", i, run.Trace)
			}
		}
		if info := k.Info("without"); info.Trace != "" {
			t.Errorf("a task without a trace is %+v", info)
		}
		err := k.AddTask(ctx, durable.Task{Key: "long", Kind: "kind", Delay: 1, Trace: trace + "x"})
		if !errors.Is(err, durable.ErrInvalidTask) || !strings.Contains(err.Error(), "513 bytes; 512 are allowed") {
			t.Errorf("a trace that is too long: %v", err)
		}
	})
}
