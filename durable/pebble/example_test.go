// SPDX-License-Identifier: MIT

package pebble_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// A task is added by one process of a program, and runs in the next.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	dir = filepath.Join(dir, "tasks")

	e, err := pebble.Open(ctx, dir)
	if err != nil {
		log.Fatal(err)
	}
	s, err := durable.New(ctx, e)
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
	if err := s.Shutdown(ctx); err != nil { // which closes the engine
		log.Fatal(err)
	}

	if e, err = pebble.Open(ctx, dir); err != nil {
		log.Fatal(err)
	}
	if s, err = durable.New(ctx, e); err != nil {
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

// Reasons for which a store may fail to open.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for range 2 {
		e, err := pebble.Open(ctx, filepath.Join(dir, "tasks"))
		switch {
		case err == nil:
			fmt.Println("open")
			defer func() { _ = e.Close() }()
		case errors.Is(err, pebble.ErrLocked):
			fmt.Println("another process or scheduler has it")
		case errors.Is(err, durable.ErrVersion):
			fmt.Println("a later version wrote it")
		case errors.Is(err, durable.ErrCorrupt):
			fmt.Println("the disk has damaged it: see Salvage")
		default:
			log.Fatal(err)
		}
	}
	// Output:
	// open
	// another process or scheduler has it
}

// The tasks are copied while the scheduler runs. The copy is unpacked into an empty directory, and opened.
func ExampleOpen_backup() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	copied := filepath.Join(dir, "copy")
	open := func(path string) *durable.Scheduler {
		e, err := pebble.Open(ctx, path)
		if err != nil {
			log.Fatal(err)
		}
		s, err := durable.New(ctx, e)
		if err != nil {
			log.Fatal(err)
		}
		err = s.Handle("order.recheck", func(context.Context, durable.Run) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	s := open(filepath.Join(dir, "tasks"))
	err = s.AddTask(ctx, durable.Task{Key: "order:42", Kind: "order.recheck", Payload: []byte("tea"), Delay: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	var archive bytes.Buffer // or a file
	if err := s.Backup(ctx, &archive); err != nil {
		log.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}

	if err := os.Mkdir(copied, 0o700); err != nil {
		log.Fatal(err)
	}
	for in := tar.NewReader(&archive); ; { // like tar -x
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, head.Name), data, 0o600)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	s = open(copied)
	order, _, err := s.Get(ctx, "order:42")
	fmt.Printf("%s: %s, %v\n", order.Key, order.Payload, err)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order:42: tea, <nil>
}

// Tasks are saved from a store that can no longer be opened, and added to a new one.
func ExampleSalvage() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "durable")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	damaged, repaired := filepath.Join(dir, "damaged"), filepath.Join(dir, "repaired")
	open := func(path string) *durable.Scheduler {
		e, err := pebble.Open(ctx, path)
		if err != nil {
			log.Fatal(err)
		}
		s, err := durable.New(ctx, e)
		if err != nil {
			log.Fatal(err)
		}
		err = s.Handle("order.recheck", func(context.Context, durable.Run) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	s := open(damaged)
	err = s.AddTask(ctx, durable.Task{Key: "order:42", Kind: "order.recheck", Payload: []byte("tea"), Delay: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}

	s = open(repaired)
	report, err := pebble.Salvage(damaged, func(t pebble.Salvaged) error {
		switch t.Doubt {
		case pebble.NoDoubt:
		case pebble.MaybeRemoved, pebble.MaybeStale:
			fmt.Println("to be looked at:", t.String())
		}
		fmt.Printf("%s: %s\n", t.Key, t.Payload)
		return s.SetTask(ctx, durable.Task{
			Key: t.Key, Kind: t.Kind, Payload: t.Payload, At: t.Next, Interval: t.Interval, Times: t.Times,
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, damage := range report.Damage {
		fmt.Println("cannot be read:", damage)
	}
	fmt.Printf("%d of %d tasks, %d lost\n", report.Tasks, report.Expected, len(report.Lost))
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order:42: tea
	// 1 of 1 tasks, 0 lost
}

// A server with 1,024 file descriptors leaves the store enough of them.
func ExampleMaxDescriptors() {
	const limit = 1024
	connections := limit - pebble.MaxDescriptors(limit) - 50 // for the log, the listener and what else is open
	fmt.Println(connections)
	// Output: 674
}
