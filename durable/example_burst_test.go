// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A document is indexed when its author pauses for a moment, and at most a second after the first change (debounce).
func ExampleScheduler_SetTask_debounce() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	done := make(chan struct{})
	index := func(_ context.Context, run durable.Run) error {
		fmt.Printf("%s is indexed as of %s\n", run.Key, run.Payload)
		close(done)
		return nil
	}
	if err := errors.Join(s.Handle("index", index), s.Start()); err != nil {
		log.Fatal(err)
	}
	for _, change := range []string{"change 1", "change 2", "change 3"} {
		err := s.SetTask(ctx, durable.Task{Key: "doc:7", Kind: "index", Payload: []byte(change),
			Delay: 100 * time.Millisecond, MaxDelay: time.Second})
		if err != nil {
			log.Fatal(err)
		}
	}
	<-done
	// Output: doc:7 is indexed as of change 3
}

// A change is the payload of a task that indexes a document.
type change struct{ Revision int }

// The same with a typed kind: the document is indexed as of its last revision.
func ExampleKind_Set() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	done := make(chan struct{})
	index, err := durable.KindOf(s, "index", func(_ context.Context, run durable.Run, c change) error {
		fmt.Printf("%s is indexed as of revision %d\n", run.Key, c.Revision)
		close(done)
		return nil
	})
	if err := errors.Join(err, s.Start()); err != nil {
		log.Fatal(err)
	}
	atMost := func(t *durable.Task) { t.MaxDelay = time.Second }
	for revision := range 3 {
		err := index.Set(ctx, "doc:7", change{revision}, durable.In(100*time.Millisecond), atMost)
		if err != nil {
			log.Fatal(err)
		}
	}
	<-done
	// Output: doc:7 is indexed as of revision 2
}

// A report is sent at most once in ten minutes, however many events there are (throttle). No event is lost: one that
// arrives while the report is being sent triggers the next report.
func ExampleScheduler_SetTask_throttle() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	if err := s.Handle("report", func(context.Context, durable.Run) error { return nil }); err != nil {
		log.Fatal(err)
	}
	var due []time.Time
	for range 3 {
		err := s.SetTask(ctx, durable.Task{Key: "report", Kind: "report",
			Delay: 10 * time.Minute, MaxDelay: 10 * time.Minute})
		if err != nil {
			log.Fatal(err)
		}
		info, _, err := s.Get(ctx, "report")
		if err != nil {
			log.Fatal(err)
		}
		due = append(due, info.Next)
	}
	fmt.Println(due[1].Equal(due[0]), due[2].Equal(due[0]))
	// Output: true true
}

// The clean-ups of many customers would all be due at midnight. They are spread over the following hour (jitter).
func ExampleScheduler_SetTask_jitter() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	if err := s.Handle("clean", func(context.Context, durable.Run) error { return nil }); err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"clean:ada", "clean:ben"} {
		err := s.SetTask(ctx, durable.Task{Key: key, Kind: "clean", Cron: "@daily", Jitter: time.Hour,
			Times: durable.Forever})
		if err != nil {
			log.Fatal(err)
		}
		info, _, err := s.Get(ctx, key)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(key, info.Next.UTC().Format("15:04:05"))
	}
	// Output:
	// clean:ada 00:13:13
	// clean:ben 00:52:30
}
