// SPDX-License-Identifier: MIT

package kv_test

import (
	"context"
	"fmt"
	"log"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
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
	s, err := durable.New(ctx, e)
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

// The tasks in an exclusive KV, read without an engine.
func ExamplePartOf() {
	ctx, on := context.Background(), memory.New()
	e := on.Engine()
	w := engine.Write{Record: engine.Record{Key: "ada", Due: 100, Data: []byte("what a scheduler writes")}, Kind: "greet", If: engine.Always}
	if _, err := e.Commit(ctx, 0, []engine.Batch{{w}}); err != nil {
		log.Fatal(err)
	}
	if err := e.Close(); err != nil {
		log.Fatal(err)
	}
	for entry, err := range on.Scan(ctx, "", "z") {
		if err != nil {
			log.Fatal(err)
		}
		if tasks, is := kv.TasksOf(entry); is {
			fmt.Println("tasks:", tasks)
		}
		if key, whole, is := kv.IsPart(entry.Key); is {
			var p kv.Part
			if p, err = kv.PartOf(entry); err != nil {
				log.Fatal(err)
			}
			fmt.Println(key, whole, p.Due, string(p.Data))
		}
	}
	// Output:
	// tasks: 1
	// ada true 100 what a scheduler writes
	// ada false 100
}
