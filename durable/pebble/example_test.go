// SPDX-License-Identifier: MIT

package pebble_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// A task is added in one life of a program, and runs in the next.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	dir = filepath.Join(dir, "tasks")

	store, err := pebble.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	s, err := durable.New(store)
	if err != nil {
		log.Fatal(err)
	}
	recheck := func(context.Context, durable.Run) error { return nil }
	if err := s.Handle("order.recheck", recheck); err != nil {
		log.Fatal(err)
	}
	err = s.AddTask(ctx, durable.Task{
		Key: "order:42", Kind: "order.recheck", Payload: []byte("3 pots of tea"), Delay: 50 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil { // which closes the store
		log.Fatal(err)
	}

	if store, err = pebble.Open(dir); err != nil {
		log.Fatal(err)
	}
	if s, err = durable.New(store); err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	err = s.Handle("order.recheck", func(_ context.Context, run durable.Run) error {
		fmt.Printf("%s, attempt %d: %s\n", run.Key, run.Attempt, run.Payload)
		close(done)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	<-done
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order:42, attempt 1: 3 pots of tea
}
