// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

func TestInput_bad_isRefusedAndChangesNothing(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	good := durable.Task{Key: "k", Kind: "note", Interval: sec}
	with := func(change func(t *durable.Task)) durable.Task {
		t := good
		change(&t)
		return t
	}
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for name, c := range map[string]struct {
			task durable.Task
			want error
		}{
			"no key":                {with(func(t *durable.Task) { t.Key = "" }), durable.ErrInvalidTask},
			"long key":              {with(func(t *durable.Task) { t.Key = long(durable.MaxKey + 1) }), durable.ErrInvalidTask},
			"no kind":               {with(func(t *durable.Task) { t.Kind = "" }), durable.ErrInvalidTask},
			"long kind":             {with(func(t *durable.Task) { t.Kind = long(durable.MaxKind + 1) }), durable.ErrInvalidTask},
			"unknown kind":          {with(func(t *durable.Task) { t.Kind = "other" }), durable.ErrUnknownKind},
			"large payload":         {with(func(t *durable.Task) { t.Payload = make([]byte, durable.MaxPayload+1) }), durable.ErrInvalidTask},
			"long group":            {with(func(t *durable.Task) { t.Group = long(durable.MaxGroup + 1) }), durable.ErrInvalidTask},
			"negative interval":     {with(func(t *durable.Task) { t.Interval = -1 }), durable.ErrInvalidTask},
			"negative delay":        {with(func(t *durable.Task) { t.Delay = -1 }), durable.ErrInvalidTask},
			"negative times":        {with(func(t *durable.Task) { t.Times = -2 }), durable.ErrInvalidTask},
			"delay and at":          {with(func(t *durable.Task) { t.Delay, t.At = 1, time.Now() }), durable.ErrInvalidTask},
			"twice and no interval": {with(func(t *durable.Task) { t.Interval, t.Delay, t.Times = 0, 1, 2 }), durable.ErrInvalidTask},
			"forever, no interval":  {with(func(t *durable.Task) { t.Interval, t.Delay, t.Times = 0, 1, -1 }), durable.ErrInvalidTask},
			"at in the year 1969":   {with(func(t *durable.Task) { t.At = time.Unix(-1, 0) }), durable.ErrInvalidTask},
			"at in the year 2300":   {with(func(t *durable.Task) { t.At = time.Unix(10413792000, 0) }), durable.ErrInvalidTask},
		} {
			for verb, err := range map[string]error{"AddTask": k.AddTask(ctx, c.task), "SetTask": k.SetTask(ctx, c.task)} {
				if !errors.Is(err, c.want) {
					t.Errorf("%s, %s: %v", name, verb, err)
				}
			}
		}
		if n := k.Len(); n != 0 {
			t.Errorf("%d tasks were added", n)
		}
		many := make([]durable.Task, 65)
		for i := range many {
			many[i] = with(func(t *durable.Task) { t.Key, t.Payload = strings.Repeat("k", i+1), make([]byte, durable.MaxPayload) })
		}
		if err := k.AddTask(ctx, many...); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("more than MaxBatch at once: %v", err)
		}
		if n := k.Len(); n != 0 {
			t.Errorf("%d tasks were added", n)
		}
		// The maximum size.
		k.Add(durable.Task{Key: long(durable.MaxKey), Kind: "note", Delay: hour, Payload: make([]byte, durable.MaxPayload)},
			durable.Task{Key: "end of time", Kind: "note", Delay: math.MaxInt64, Interval: math.MaxInt64, Times: 2})
		if calls := k.RunsAfter(2 * hour); len(calls) != 1 || len(calls[0].Payload) != durable.MaxPayload {
			t.Errorf("these ran: %d", len(calls))
		}
	})
}

func TestOptions_bad_areRefused(t *testing.T) {
	for name, o := range map[string]durable.Option{
		"nil": nil, "tick": durable.WithTick(0), "pool": durable.WithPoolSize(0),
		"catch-up": durable.WithCatchUp(0), "logger": durable.WithLogger(nil),
	} {
		if _, err := durable.New(ctx, memory.New().Engine(), o); err == nil {
			t.Errorf("%s: no error from New", name)
		}
	}
	if _, err := durable.New(ctx, nil); err == nil {
		t.Error("no error for a nil engine")
	}
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		h := func(context.Context, durable.Run) error { return nil }
		for name, err := range map[string]error{
			"no name":    k.Scheduler.Handle("", h),
			"long name":  k.Scheduler.Handle(strings.Repeat("x", durable.MaxKind+1), h),
			"no handler": k.Scheduler.Handle("x", nil),
			"nil option": k.Scheduler.Handle("x", h, nil),
			"attempts":   k.Scheduler.Handle("x", h, durable.WithRetry(0, sec, sec)),
			"least":      k.Scheduler.Handle("x", h, durable.WithRetry(1, 0, sec)),
			"most":       k.Scheduler.Handle("x", h, durable.WithRetry(1, sec, sec-1)),
			"policy":     k.Scheduler.Handle("x", h, durable.WithMissed(3)),
			"again":      k.Scheduler.Handle("note", h),
		} {
			if err == nil {
				t.Errorf("%s: no error from Handle", name)
			}
		}
	})
}

// The error for a time that no task can have names it and the allowed range.
func TestInput_timeOutOfRange_namesTheBounds(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for at, want := range map[time.Time]string{
			time.Date(2262, 5, 1, 0, 0, 0, 0, time.FixedZone("", 3600)): "2262-04-30T23:00:00Z",
			time.Unix(-1, 0): "1969-12-31T23:59:59Z",
		} {
			err := k.AddTask(ctx, durable.Task{Key: "k", Kind: "note", At: at})
			want = "durable: invalid task: at " + want + ` of "k" is not between 1970-01-01T00:00:00Z and 2262-04-11T23:47:16Z`
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}
