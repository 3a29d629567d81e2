// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// ok is a handler that has nothing to do.
func ok(context.Context, durable.Run) error { return nil }

// version2 is an option of a kind whose payloads are of version 2.
var version2 = durable.WithPayloadVersion(2, func(payload []byte, _ int) ([]byte, error) {
	return append([]byte("2:"), payload...), nil
})

// A rolling deploy: one node takes payloads of version 2, and the others do not know that there are any.
func TestPayloadVersion_rollingDeploy(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		older := c.nodes[:2]
		newer := c.nodes[2]
		for _, m := range older {
			m.handle("k", ok)
		}
		newer.handle("k", ok, version2)
		for i := range 60 {
			m := c.nodes[i%3]
			delay := time.Duration(i) * 100 * time.Millisecond
			m.add(durable.Task{Key: fmt.Sprint(i), Kind: "k", Payload: []byte("ada"), Delay: delay + time.Millisecond})
		}
		// An old node may add what it does not know.
		older[0].add(durable.Task{Key: "60", Kind: "k", Payload: []byte("ada"), PayloadVersion: 2,
			Delay: time.Millisecond})
		time.Sleep(10 * time.Second)
		calls := c.runs()
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
			if call.node == newer.name && version == 1 {
				want = "2:ada"
			}
			if version == 2 && call.node != newer.name || string(call.Payload) != want {
				t.Errorf("payload %q of version %d: %v", call.Payload, version, briefly([]nodeCall{call}))
			}
		}
		newer.shutdown()
		c.nodes = older
		older[1].add(durable.Task{Key: "left", Kind: "k", PayloadVersion: 2, Delay: time.Second})
		time.Sleep(time.Minute)
		if info := c.info("left"); info.Parked || info.Attempts > 0 || len(c.runs()) > 0 {
			t.Errorf("without a node that knows the payload the task is %+v", info)
		}
		c.join("note").handle("k", ok, version2)
		time.Sleep(time.Second)
		c.ran("left")
	})
}

// A process that is rolled back leaves new payloads alone, and the next one runs them.
func TestPayloadVersion_rolledBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", ok, version2)
		r.add(durable.Task{Key: "overdue", Kind: "k", Delay: time.Second},
			durable.Task{Key: "later", Kind: "k", Delay: time.Hour})
		r.crash()
		r.handle("k", ok)
		time.Sleep(time.Minute)
		r.start()
		time.Sleep(2 * time.Hour)
		if calls, s := r.runs(), r.Stats(); len(calls) > 0 || s.Unhandled != 2 || s.Parked != 0 {
			t.Errorf("the older process: %v, %+v", brief(calls), s)
		}
		r.crash()
		r.handle("k", ok, version2)
		r.start()
		time.Sleep(time.Second)
		if calls := r.runs(); len(calls) != 2 {
			t.Errorf("the next process: %v", brief(calls))
		}
	})
}

func TestWithPayloadVersion_wrong(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		upgrade := func(payload []byte, _ int) ([]byte, error) { return payload, nil }
		for name, o := range map[string]durable.KindOption{
			"version 1":    durable.WithPayloadVersion(1, upgrade),
			"version 1001": durable.WithPayloadVersion(1001, upgrade),
			"no upgrade":   durable.WithPayloadVersion(2, nil), "timeout 0": durable.WithTimeout(0),
			"timeout -1": durable.WithTimeout(-1),
		} {
			if err := r.Handle("k", ok, o); err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
		if err := durable.HandleJSON[int](r.Scheduler, "k", nil); err == nil {
			t.Error("nil is a handler")
		}
		for _, version := range []int{-1, 1001} {
			err := r.AddTask(ctx, durable.Task{Key: "a", Kind: "note", Delay: 1, PayloadVersion: version})
			if err == nil {
				t.Errorf("version %d is accepted", version)
			}
		}
	})
}

// A kind that looks like another with the version of a payload is refused.
func TestKind_withTheMarkOfAVersion_isRefused(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		s := c.nodes[0]
		if err := s.Handle("k\x1f2", ok); err == nil {
			t.Error("Handle takes it")
		}
		err := s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "k\x1f2", Delay: time.Second})
		if !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("AddTask returns %v", err)
		}
	})
}
