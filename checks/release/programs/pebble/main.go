// SPDX-License-Identifier: MIT

// This program is built with a durable scheduler and its engine on disk, both installed as by a user.
package main

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

func main() {
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	e, err := pebble.Open(ctx, filepath.Join(dir, "tasks"))
	if err != nil {
		log.Fatal(err)
	}
	s, err := durable.New(ctx, e)
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
	fmt.Println("a run of the durable scheduler on the disk:", <-ran)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
}
