// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
)

// A task is added in one life of a program, and runs in the next.
func Example() {
	ctx := context.Background()
	store := memstore.New() // or pebble.Open of package durable/pebble, on the disk
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
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}

	s, err = durable.New(store.Reopen())
	if err != nil {
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
