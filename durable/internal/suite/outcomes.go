// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

var errNot = errors.New("not now")

func parks(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		if run.Seq > 0 {
			return nil
		}
		return fmt.Errorf("charging: %w", durable.Park(errNot))
	})
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	if calls := k.RunsAfter(30 * time.Second); len(calls) != 1 {
		t.Errorf("%d attempts: %v", len(calls), calls)
	}
	if i := k.Info("a"); i.State != durable.Parked || i.Attempts != 1 ||
		i.Failure != "charging: not now" {
		t.Errorf("parked: %+v", i)
	}
	k.Must(k.On().Reschedule(ctx, "a", 0))
	if calls := k.RunsAfter(2 * time.Second); len(calls) != 1 || calls[0].Attempt != 1 {
		t.Errorf("rescheduled: %v", calls)
	}
	k.Gone("a")
}

func retriesAfter(t *testing.T, k *kit.Kit) {
	const wait = 7 * time.Second
	k.Handle("k", func(context.Context, durable.Run) error {
		return fmt.Errorf("busy: %w", durable.RetryAfter(wait, errNot))
	}, durable.WithRetry(3, time.Millisecond, time.Millisecond))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	calls := k.RunsAfter(30 * time.Second)
	if len(calls) != 3 {
		t.Fatalf("%d attempts: %v", len(calls), calls)
	}
	for n := range 2 {
		if d := calls[n+1].At - calls[n].At; d < wait || d > wait+time.Second/2 || calls[n+1].Attempt != n+2 {
			t.Errorf("attempt %d comes after %v", calls[n+1].Attempt, d)
		}
	}
	if i := k.Info("a"); i.State != durable.Parked || i.Attempts != 3 || i.Failure != "busy: not now" {
		t.Errorf("after the last attempt: %+v", i)
	}
}

func notes(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		switch {
		case run.Seq == 0:
			run.Complete("paid")
			run.Complete("paid already")
		case run.Seq == 1 && run.Attempt == 1:
			run.Complete("no")
			return errNot
		case run.Seq == 1:
			run.Complete(strings.Repeat("n", 1000))
		}
		return errors.Join(nil, nil)
	}, durable.WithRetry(3, time.Second, time.Second))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Interval: 10 * time.Second, Times: 4})
	for n, want := range []struct {
		wait     time.Duration
		calls    int
		note     string
		attempts int
	}{
		{11 * time.Second, 1, "paid already", 0},
		{9100 * time.Millisecond, 1, "paid already", 1}, // the next attempt failed
		{2 * time.Second, 1, strings.Repeat("n", 256), 0},
		{9 * time.Second, 1, "", 0},
	} {
		calls := k.RunsAfter(want.wait)
		if i := k.Info("a"); len(calls) != want.calls || i.Note != want.note || i.Attempts != want.attempts {
			t.Errorf("after step %d: %v, %+v", n, calls, i)
		}
	}
	k.RunsAfter(20 * time.Second)
	k.Gone("a")
}

func timesOut(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(ctx context.Context, run durable.Run) error {
		if run.Attempt == 3 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}, durable.WithTimeout(2*time.Second), durable.WithRetry(5, time.Second, time.Second))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	k.RunsAfter(3500 * time.Millisecond)
	if i := k.Info("a"); i.Attempts != 1 ||
		i.Failure != "timed out after 2s, ended after 2s: context deadline exceeded" {
		t.Errorf("after the first attempt: %+v", i)
	}
	if calls := k.RunsAfter(10 * time.Second); len(calls) != 2 {
		t.Errorf("%d more attempts: %v", len(calls), calls)
	}
	k.Gone("a")
}

func endsLate(t *testing.T, k *kit.Kit) {
	const long = 6 * time.Second
	k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(long); return nil },
		durable.WithTimeout(2*time.Second), durable.WithRetry(2, time.Second, time.Second))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
	calls := k.RunsAfter(20 * time.Second)
	if len(calls) != 2 || calls[1].At-calls[0].At < long {
		t.Errorf("%d attempts: %v", len(calls), calls)
	}
	if i := k.Info("a"); i.State != durable.Parked || i.Failure != "timed out after 2s, ended after 6s: the handler returned nil" {
		t.Errorf("after the last attempt: %+v", i)
	}
}

// Complete, Park and RetryAfter still take effect after an attempt has timed out.
func decidesLate(t *testing.T, k *kit.Kit) {
	const bound, long, wait = 2 * time.Second, 6 * time.Second, 20 * time.Second
	ends := map[string]error{
		"nil": nil, "error": errNot, "park": durable.Park(errNot), "retry": durable.RetryAfter(wait, errNot),
		"done": nil, "no note": nil, "done and failed": errNot,
	}
	notes := map[string]string{"done": "paid already", "no note": "", "done and failed": "no"}
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		time.Sleep(long)
		if note, ok := notes[run.Key]; ok {
			run.Complete(note)
		}
		return ends[run.Key]
	},
		durable.WithTimeout(bound), durable.WithRetry(3, time.Second, time.Second))
	for key := range ends {
		k.On().Add(durable.Task{Key: key, Kind: "k", Delay: time.Second, Interval: time.Hour, Times: 2})
	}
	calls := k.RunsAfter(7400 * time.Millisecond)
	if len(calls) != len(ends) {
		t.Errorf("the calls are %v", calls)
	}
	for key, want := range map[string]struct {
		state   durable.State
		failure string
		note    string
		times   int
	}{
		"nil":     {durable.Retrying, "the handler returned nil", "", 2},
		"error":   {durable.Retrying, "not now", "", 2},
		"park":    {durable.Parked, "not now", "", 2},
		"retry":   {durable.Retrying, "not now", "", 2},
		"done":    {durable.Scheduled, "", "paid already", 1},
		"no note": {durable.Scheduled, "", "", 1},

		"done and failed": {durable.Retrying, "not now", "", 2},
	} {
		if want.failure != "" {
			want.failure = "timed out after 2s, ended after 6s: " + want.failure
		}
		i := k.Info(key)
		if i.State != want.state || i.Failure != want.failure || i.Note != want.note || i.Times != want.times {
			t.Errorf("%s: %+v", key, i)
		}
	}
	again := make(map[string]time.Duration)
	for _, c := range k.RunsAfter(long + wait) {
		if _, seen := again[c.Key]; !seen {
			again[c.Key] = c.At - calls[0].At
		}
	}
	soon := long + wait/2
	if len(again) != 4 || again["nil"] > soon || again["error"] > soon || again["retry"] < long+wait {
		t.Errorf("the next attempts come after %v", again)
	}
}

// An order is a payload.
type order struct{ Number int }

// kindOf registers the kind "k" on every node and returns the Kind of one of the nodes.
func kindOf[T any](k *kit.Kit, h func(ctx context.Context, run durable.Run, payload T) error, opts ...durable.KindOption,
) durable.Kind[T] {
	var all []durable.Kind[T]
	for _, s := range k.Nodes {
		kind, err := durable.KindOf(s.Scheduler, "k", h, opts...)
		k.Must(err)
		all = append(all, kind)
	}
	return all[len(all)-1]
}

func jsonPayloads(t *testing.T, k *kit.Kit) {
	got := make(chan order, 2)
	orders := kindOf(k, func(_ context.Context, _ durable.Run, o order) error {
		got <- o
		return nil
	})
	k.Must(orders.Add(ctx, "a", order{42}, durable.In(time.Second)))
	if i := k.Info("a"); string(i.Payload) != `{"Number":42}` || i.PayloadVersion != 1 {
		t.Errorf("the task is %+v", i)
	}
	if o := <-got; o.Number != 42 {
		t.Errorf("the payload is %+v", o)
	}
	k.RunsAfter(time.Second)
	k.Gone("a")
}

// A payload that cannot be encoded changes nothing.
func noEncoding(t *testing.T, k *kit.Kit) {
	kind := kindOf(k, func(context.Context, durable.Run, any) error { return nil })
	k.Must(kind.Set(ctx, "a", 1, durable.In(time.Minute)))
	for _, err := range []error{kind.Add(ctx, "b", func() {}), kind.Set(ctx, "a", func() {})} {
		if !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("a payload that cannot be JSON: %v", err)
		}
	}
	if i := k.Info("a"); string(i.Payload) != "1" {
		t.Errorf("the task is %+v", i)
	}
	k.Gone("b")
}

// A burst of Set calls results in one run with the last payload.
func setsJSON(t *testing.T, k *kit.Kit) {
	got := make(chan order, 3)
	orders := kindOf(k, func(_ context.Context, _ durable.Run, o order) error {
		got <- o
		return nil
	})
	for n := range 3 {
		k.Must(orders.Set(ctx, "a", order{n + 1}, durable.In(time.Second), func(t *durable.Task) { t.MaxDelay = time.Minute }))
	}
	if i := k.Info("a"); string(i.Payload) != `{"Number":3}` || i.PayloadVersion != 1 {
		t.Errorf("the task is %+v", i)
	}
	k.RunsAfter(3 * time.Second)
	if o := <-got; o.Number != 3 || len(got) > 0 {
		t.Errorf("the payload is %+v, and there are %d more", o, len(got))
	}
	k.Gone("a")
}

func noJSON(t *testing.T, k *kit.Kit) {
	kindOf(k, func(context.Context, durable.Run, order) error { return nil })
	for key, payload := range map[string]string{"space": " ", "no JSON": "{", "another": `{"Number":"x"}`} {
		k.On().Add(durable.Task{Key: key, Kind: "k", Payload: []byte(payload), Delay: time.Second})
	}
	k.RunsAfter(2 * time.Second)
	for key, why := range map[string]string{
		"space":   "payload of 1 bytes does not decode into suite.order: it is no JSON from byte 1 on",
		"no JSON": "payload of 1 bytes does not decode into suite.order: it is no JSON from byte 1 on",
		"another": "payload of 14 bytes does not decode into suite.order: the JSON string of field Number, at byte ",
	} {
		i := k.Info(key)
		if i.State != durable.Parked || i.Attempts != 1 || !strings.HasPrefix(i.Failure, why) {
			t.Errorf("%+v", i)
		}
	}
}

// toVersion2 upgrades a payload of version 1, which is a name, to version 2.
func toVersion2(payload []byte, from int) ([]byte, error) {
	if from != 1 || len(payload) == 0 {
		return nil, errNot
	}
	return append([]byte("2:"), payload...), nil
}

func upgrades(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return errNot },
		durable.WithPayloadVersion(2, toVersion2), durable.WithRetry(2, time.Second, time.Second))
	k.On().Add(durable.Task{Key: "old", Kind: "k", Payload: []byte("ada"), PayloadVersion: 1, Delay: time.Second})
	k.On().Add(durable.Task{Key: "present", Kind: "k", Payload: []byte("2:ada"), Delay: time.Second})
	calls := k.RunsAfter(5 * time.Second)
	if len(calls) != 4 {
		t.Errorf("the attempts are %v", calls)
	}
	for _, c := range calls {
		if string(c.Payload) != "2:ada" {
			t.Errorf("the payload of %s is %q", c.Token, c.Payload)
		}
	}
	for key, version := range map[string]int{"old": 1, "present": 2} {
		if i := k.Info(key); i.PayloadVersion != version {
			t.Errorf("%+v", i)
		}
	}
	if i := k.Info("old"); string(i.Payload) != "ada" { // the stored payload is unchanged
		t.Errorf("the payload is %q", i.Payload)
	}
}

func failsToUpgrade(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil },
		durable.WithPayloadVersion(2, toVersion2))
	k.On().Add(durable.Task{Key: "a", Kind: "k", PayloadVersion: 1, Delay: time.Second})
	k.After(5 * time.Second)
	k.RanNothing()
	if i := k.Info("a"); i.State != durable.Parked || i.Failure != "payload of version 1 is not upgraded to 2: not now" {
		t.Errorf("%+v", i)
	}
}

func newerPayload(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil },
		durable.WithPayloadVersion(2, toVersion2))
	k.On().Add(durable.Task{Key: "newer", Kind: "k", PayloadVersion: 3, Delay: time.Second})
	k.On().Add(durable.Task{Key: "soon", Kind: "k", PayloadVersion: 3, Delay: time.Millisecond})
	k.On().Add(durable.Task{Key: "own", Kind: "k", Delay: time.Second})
	k.After(10 * time.Second)
	k.Ran("own")
	census, err := k.On().Counts(ctx)
	if err != nil || len(census.Kinds) != 1 || census.Kinds[0].Kind != "k" || census.Kinds[0].Tasks != 2 {
		t.Errorf("%+v, %v", census, err)
	}
	for _, key := range []string{"newer", "soon"} {
		if i := k.Info(key); i.State != durable.Waiting || i.Attempts != 0 || i.PayloadVersion != 3 {
			t.Errorf("%+v", i)
		}
	}
}

// The counts of a kind include a call whose task was removed during the run. Those of the scheduler do not.
func countsRemoved(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(_ context.Context, run durable.Run) error {
		time.Sleep(2 * time.Second)
		if run.Key == "fails" {
			return errNot
		}
		return nil
	})
	s := k.Nodes[0]
	s.Add(durable.Task{Key: "fails", Kind: "k", Delay: time.Second}, durable.Task{Key: "succeeds", Kind: "k", Delay: time.Second})
	k.After(2 * time.Second)
	k.Must(s.RemoveTask(ctx, "fails"), s.RemoveTask(ctx, "succeeds"))
	s.End()
	if got := s.Stats(); got.Started != 2 || got.Succeeded != 0 || got.Failed != 0 {
		t.Errorf("the accounts of the scheduler are %+v", got)
	}
	if got := s.Kinds()[0]; got.Started != 2 || got.Succeeded != 1 || got.Failed != 1 {
		t.Errorf("the accounts of the kind are %+v", got)
	}
}
