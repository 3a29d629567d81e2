// SPDX-License-Identifier: MIT

// This program is built with a durable scheduler, installed as by a user.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

func main() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan string)
	err = s.Handle("greet", func(_ context.Context, run durable.Run) error {
		ran <- run.Key
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	if err := s.AddTask(ctx, durable.Task{Key: "hello", Kind: "greet", Delay: 10 * time.Millisecond}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a run of the durable scheduler:", <-ran)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
}
