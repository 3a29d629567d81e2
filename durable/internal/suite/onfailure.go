// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// tell returns the task about a failure. Its payload describes the failed task.
func tell(failed durable.Info) durable.Task {
	errors := make([]string, len(failed.Failed))
	for n, f := range failed.Failed {
		errors[n] = f.Text
	}
	return durable.Task{
		Key: fmt.Sprintf("told %s %d", failed.Key, failed.Seq), Kind: "told",
		Payload: fmt.Appendf(nil, "%s %q parked: %t, %q", failed.Key, failed.Payload, failed.State == durable.Parked, errors),
	}
}

// A task is added each time that a task is parked, whatever parks it, or gives up a run: in the same commit, so there is never
// one without the other.
func addsOnFailure(t *testing.T, k *kit.Kit) {
	k.Handle("told", ok)
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		switch {
		case strings.HasPrefix(run.Key, "good"):
			return nil
		case strings.HasPrefix(run.Key, "park"):
			return durable.Park(errNot)
		}
		return errNot
	}, durable.WithRetry(2, time.Second, time.Second), durable.WithOnFailure(tell))
	k.On().Add(
		durable.Task{Key: "good", Kind: "k", Delay: time.Second},
		durable.Task{Key: "bad", Kind: "k", Delay: time.Second, Payload: []byte("p")},
		durable.Task{Key: "park", Kind: "k", Delay: time.Second, Interval: time.Hour, Times: 3},
		durable.Task{Key: "repeat", Kind: "k", Delay: time.Second, Interval: time.Hour, Times: 3})
	told := func(want ...string) {
		t.Helper()
		var got []string
		for _, c := range k.Runs() {
			if c.Kind == "told" {
				got = append(got, c.Key+": "+string(c.Payload))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("told is %q, want %q", got, want)
		}
	}
	no := errNot.Error()
	k.After(time.Minute)
	told(
		fmt.Sprintf("told bad 0: bad %q parked: true, %q", "p", []string{no, no}),
		fmt.Sprintf("told park 0: park %q parked: true, %q", "", []string{no}),
		fmt.Sprintf("told repeat 1: repeat %q parked: false, %q", "", []string{no, no}))
	added, removed := uint64(0), uint64(0)
	for _, n := range k.Nodes {
		added, removed = added+n.Stats().Added, removed+n.Stats().Removed
	}
	if added != 4+3 || removed != 0 {
		t.Errorf("%d tasks were added, and %d removed", added, removed)
	}

	k.Must(k.On().Reschedule(ctx, "bad", 0)) // the next failure of the task is another one
	k.After(time.Minute)
	told(fmt.Sprintf("told bad 1: bad %q parked: true, %q", "p", []string{no, no}))
}

// A task is parked although the function for failures panics, names no task or one that is not allowed. A task about a failure
// replaces one with its key.
func addsNothingOnFailure(t *testing.T, k *kit.Kit) {
	k.Handle("told", ok)
	k.Must(k.On().PauseKind(ctx, "told"))
	tasks := map[string]durable.Task{
		"no key":      {},
		"its own key": {Key: "its own key", Kind: "told"},
		"once":        {Key: "told", Kind: "told", Once: "o"},
		"unknown":     {Key: "told", Kind: "unknown"},
		"too large":   {Key: "told", Kind: "told", Payload: make([]byte, durable.MaxPayload+1)},
		"good":        {Key: "good told", Kind: "told", Payload: []byte("first")},
		"good too":    {Key: "good told", Kind: "told", Payload: []byte("second")},
	}
	k.Handle("k", func(context.Context, durable.Run) error { return durable.Park(errNot) }, durable.WithOnFailure(func(i durable.Info) durable.Task {
		if i.Key == "panic" {
			panic("no")
		}
		return tasks[i.Key]
	}))
	keys := []string{"panic"}
	for key := range tasks {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for n, key := range keys {
		k.On().Add(durable.Task{Key: key, Kind: "k", Delay: time.Duration(n+1) * time.Second})
	}
	k.After(time.Minute)
	for _, key := range keys {
		if i := k.Info(key); i.State != durable.Parked || i.Failure != errNot.Error() || len(i.Failed) != 1 {
			t.Errorf("%s: %v", key, i)
		}
	}
	k.Gone("told")
	if i := k.Info("good told"); string(i.Payload) != "second" || i.Kind != "told" {
		t.Errorf("the task about the failures is %v", i)
	}
}
