// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// ok is a handler that has nothing to do.
func ok(context.Context, durable.Run) error { return nil }

// version2 is an option of a kind whose payloads are of version 2.
var version2 = durable.WithPayloadVersion(2, func(payload []byte, _ int) ([]byte, error) {
	return append([]byte("2:"), payload...), nil
})

// A rolling deploy: one node accepts payloads of version 2, and the others do not know that version.
func TestPayloadVersion_rollingDeploy(t *testing.T) {
	kit.OnNodes(t, 3, func(t *testing.T, k *kit.Kit) {
		older := k.Nodes[:2]
		newer := k.Nodes[2]
		for _, m := range older {
			m.Handle("k", ok)
		}
		newer.Handle("k", ok, version2)
		for i := range 60 {
			m := k.Nodes[i%3]
			delay := time.Duration(i) * 100 * time.Millisecond
			m.Add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Payload: []byte("ada"), Delay: delay + time.Millisecond})
		}
		// An old node may add a payload that it does not know.
		older[0].Add(durable.Task{Key: "60", Kind: "k", Payload: []byte("ada"), PayloadVersion: 2,
			Delay: time.Millisecond})
		calls := k.RunsAfter(10 * time.Second)
		if len(calls) != 61 {
			t.Errorf("%d of 61 tasks have run", len(calls))
		}
		for _, call := range calls {
			var i int
			if _, err := fmt.Sscan(call.Key, &i); err != nil {
				t.Fatal(err)
			}
			version := 1
			if i%3 == 2 || i == 60 {
				version = 2
			}
			want := "ada" // of an old node, and of version 2
			if call.Node == newer.Name && version == 1 {
				want = "2:ada"
			}
			if version == 2 && call.Node != newer.Name || string(call.Payload) != want {
				t.Errorf("payload %q of version %d: %v", call.Payload, version, []kit.Call{call})
			}
		}
		newer.End()
		k.Nodes = older
		older[1].Add(durable.Task{Key: "left", Kind: "k", PayloadVersion: 2, Delay: time.Second})
		k.After(time.Minute)
		if info := k.Info("left"); info.State == durable.Parked || info.Attempts > 0 || len(k.Runs()) > 0 {
			t.Errorf("without a node that knows the payload the task is %+v", info)
		}
		k.Join(nil).Start().Handle("k", ok, version2)
		k.After(time.Second)
		k.Ran("left")
	})
}

// After a rollback the process leaves new payloads alone, and the next process runs them.
func TestPayloadVersion_rolledBack(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok, version2)
		k.Add(durable.Task{Key: "overdue", Kind: "k", Delay: time.Second},
			durable.Task{Key: "later", Kind: "k", Delay: time.Hour})
		k.Crash()
		k.Handle("k", ok)
		k.After(time.Minute)
		k.Start()
		k.After(2 * time.Hour)
		if calls, s := k.Runs(), k.Stats(); len(calls) > 0 || s.Unhandled != 2 || s.Parked != 0 {
			t.Errorf("the older process: %v, %+v", calls, s)
		}
		k.Crash()
		k.Handle("k", ok, version2)
		k.Start()
		if calls := k.RunsAfter(time.Second); len(calls) != 2 {
			t.Errorf("the next process: %v", calls)
		}
	})
}

func TestWithPayloadVersion_wrong(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		upgrade := func(payload []byte, _ int) ([]byte, error) { return payload, nil }
		for name, o := range map[string]durable.KindOption{
			"version 1":    durable.WithPayloadVersion(1, upgrade),
			"version 1001": durable.WithPayloadVersion(1001, upgrade),
			"no upgrade":   durable.WithPayloadVersion(2, nil), "timeout 0": durable.WithTimeout(0),
			"timeout -1": durable.WithTimeout(-1),
		} {
			if err := k.Scheduler.Handle("k", ok, o); err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
		for _, version := range []int{-1, 1001} {
			err := k.AddTask(ctx, durable.Task{Key: "a", Kind: "note", Delay: 1, PayloadVersion: version})
			if err == nil {
				t.Errorf("version %d is accepted", version)
			}
		}
	})
}

// A kind that looks like another kind with a payload version is refused.
func TestKind_withTheMarkOfAVersion_isRefused(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		s := k.Nodes[0]
		if err := s.Scheduler.Handle("k\x1f2", ok); err == nil {
			t.Error("Handle takes it")
		}
		err := s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "k\x1f2", Delay: time.Second})
		if !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("AddTask returns %v", err)
		}
	})
}

// The error of an upgrade that decodes JSON quotes a number of the payload. The failure does not.
func TestPayload_upgradeThatCannotDecode_quotesNothing(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		upgrade := func(payload []byte, _ int) ([]byte, error) {
			var old struct{ Card int8 }
			if err := json.Unmarshal(payload, &old); err != nil {
				return nil, fmt.Errorf("a card: %w", err)
			}
			return payload, nil
		}
		k.Handle("card", func(context.Context, durable.Run) error { return nil }, durable.WithPayloadVersion(2, upgrade))
		for i, payload := range []string{`{"Card": 4111111111111111}`, `{"Card": x}`} {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "card", PayloadVersion: 1, Payload: []byte(payload), Delay: sec})
		}
		k.After(2 * sec)
		for key, want := range map[string]string{"0": "the JSON number", "1": "no JSON from byte"} {
			if i := k.Info(key); i.State != durable.Parked || !strings.Contains(i.Failure, want) || strings.Contains(i.Failure, "4111") {
				t.Errorf("the failure is %q", i.Failure)
			}
		}
	})
}
