// SPDX-License-Identifier: MIT

package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A test of a program's behaviour after a crash.
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

	next := open(store.Reopen()) // the store of the next process
	fmt.Println(next.Exist(ctx, "ada"))
	for _, s := range []*durable.Scheduler{first, next} {
		if err := s.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output: true <nil>
}

// A test of a program's behaviour when the disk is full.
func ExampleStore_SetFault() {
	ctx := context.Background()
	store := memstore.New()
	s, err := durable.New(store, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	err = s.Handle("greet", func(context.Context, durable.Run) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	store.SetFault(errors.New("no space left on device"))
	err = s.AddTask(ctx, durable.Task{Key: "ada", Kind: "greet", Delay: time.Hour})
	fmt.Println(errors.Is(err, durable.ErrBroken))
	fmt.Println(s.Shutdown(ctx))

	next := store.Reopen() // after a restart there is room
	fmt.Println(next.Len())
	// Output:
	// true
	// durable: the store has failed: no space left on device
	// 0
}
