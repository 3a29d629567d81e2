// SPDX-License-Identifier: MIT

package kv_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A scheduler on a KV.
func ExampleNew() {
	ctx := context.Background()
	e, err := kv.New(ctx, memory.New()) // in a service: a KV on a database
	if err != nil {
		log.Fatal(err)
	}
	s, err := durable.Join(ctx, e)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	err = s.Handle("greet", func(_ context.Context, run durable.Run) error {
		fmt.Printf("hello %s\n", run.Payload)
		close(done)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	if err := s.AddTask(ctx, durable.Task{Key: "ada", Kind: "greet", Payload: []byte("Ada")}); err != nil {
		log.Fatal(err)
	}
	<-done
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: hello Ada
}
