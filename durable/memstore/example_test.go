// SPDX-License-Identifier: MIT

package memstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
)

// A test of what a program does after a crash.
func Example() {
	ctx := context.Background()
	open := func(store *memstore.Store) *durable.Scheduler {
		s, err := durable.New(store)
		if err != nil {
			log.Fatal(err)
		}
		err = s.Handle("greet", func(context.Context, durable.Run) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	store := memstore.New()
	first := open(store)
	if err := first.AddTask(ctx, durable.Task{Key: "ada", Kind: "greet", Delay: time.Hour}); err != nil {
		log.Fatal(err)
	}

	next := open(store.Reopen()) // what the next process finds
	fmt.Println(next.Exist(ctx, "ada"))
	for _, s := range []*durable.Scheduler{first, next} {
		if err := s.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output: true <nil>
}
