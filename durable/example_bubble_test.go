// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/timewheel/timewheeltest"
)

// startInBubble starts a scheduler for the test and records its runs.
func startInBubble(t *testing.T, s *durable.Scheduler, err error, note func(key string)) *durable.Scheduler {
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	handler := func(_ context.Context, run durable.Run) error {
		note(run.Key)
		return nil
	}
	if err := s.Handle("invoice", handler); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// planned returns the keys of the tasks, in due order.
func planned(t *testing.T, s *durable.Scheduler) (keys []string) {
	for info, err := range s.All(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// In a test file this is func TestInvoices(t *testing.T): twelve days of a durable scheduler with its own engine in
// memory.
func testOwnEngineInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		var sent atomic.Int32
		s, err := durable.New(ctx, memory.New().Engine())
		s = startInBubble(t, s, err, func(string) { sent.Add(1) })
		const day = 24 * time.Hour
		err = s.AddTask(ctx,
			durable.Task{Key: "ada", Kind: "invoice", Interval: day, Times: 12},
			durable.Task{Key: "bob", Kind: "invoice", Delay: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if keys := planned(t, s); len(keys) != 2 || keys[0] != "bob" || keys[1] != "ada" {
			t.Errorf("planned are %q", keys)
		}
		timewheeltest.Advance(time.Hour + time.Second)
		if n := sent.Load(); n != 1 {
			t.Errorf("%d invoices were sent, want 1", n)
		}
		timewheeltest.Advance(12 * day)
		if n, keys := sent.Load(), planned(t, s); n != 13 || len(keys) != 0 {
			t.Errorf("%d invoices were sent, want 13, and planned are %q", n, keys)
		}
	})
}

// In a test file this is func TestTakeOver(t *testing.T): two nodes, one of which is cut off from the engine.
func testClusterInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, engine := context.Background(), memory.New().Shared()
		sentBy := make(chan string, 10)
		link := enginetest.NewLink(engine) // of the first node
		s, err := durable.New(ctx, link, durable.WithNodeName("first"))
		first := startInBubble(t, s, err, func(string) { sentBy <- "first" })
		s, err = durable.New(ctx, engine, durable.WithNodeName("second"))
		startInBubble(t, s, err, func(string) { sentBy <- "second" })
		task := durable.Task{Key: "ada", Kind: "invoice", Delay: time.Minute}
		if err := first.AddTask(ctx, task); err != nil {
			t.Fatal(err)
		}
		link.SetDown(true)
		timewheeltest.Advance(2 * time.Minute)
		if n := len(sentBy); n != 1 {
			t.Fatalf("the invoice was sent %d times", n)
		}
		if node := <-sentBy; node != "second" {
			t.Errorf("the invoice was sent by %q", node)
		}
		link.SetDown(false)
	})
}

// Twelve days of a durable scheduler on a store in memory, in a test.
func Example_testOnAnOwnEngine() {
	var t *testing.T // the test's
	testOwnEngineInBubble(t)
}

// Two nodes in a test, one of which is cut off from the engine.
func Example_testOfACluster() {
	var t *testing.T // the test's
	testClusterInBubble(t)
}
