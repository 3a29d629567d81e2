// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// One mail is sent at a time, and at most a hundred per second. The shops take turns, however many mails one of them
// sends.
func ExampleWithConcurrency() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	var all sync.WaitGroup
	all.Add(6)
	err = s.Handle("mail", func(_ context.Context, run durable.Run) error {
		fmt.Println(run.Key)
		all.Done()
		return nil
	}, durable.WithConcurrency(1), durable.WithRate(100, time.Second, 10))
	if err != nil {
		log.Fatal(err)
	}
	due := time.Now()
	for _, mail := range []struct{ shop, key string }{
		{"a", "a1"}, {"a", "a2"}, {"a", "a3"}, {"a", "a4"}, {"b", "b1"}, {"b", "b2"},
	} {
		task := durable.Task{Key: mail.key, Kind: "mail", Group: mail.shop, At: due}
		if err := s.AddTask(ctx, task); err != nil {
			log.Fatal(err)
		}
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	all.Wait()
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// a1
	// a2
	// a3
	// a4
	// b1
	// b2
}

// All nodes share the provider's limit.
func ExampleWithClusterRate() {
	s, err := durable.New(context.Background(), memory.New().Shared())
	if err != nil {
		log.Fatal(err)
	}
	err = s.Handle("mail", func(context.Context, durable.Run) error { return nil },
		durable.WithClusterConcurrency(50), durable.WithClusterRate(1000, time.Minute, 20))
	for _, k := range s.Kinds() {
		var limit durable.Limit = k.Cluster
		fmt.Println(limit.Concurrency, "at a time,", limit.Rate, "within", limit.Per, "and", limit.Burst, "at once;",
			k.Waiting, "wait")
	}
	if err := errors.Join(err, s.Shutdown(context.Background())); err != nil {
		log.Fatal(err)
	}
	// Output: 50 at a time, 1000 within 1m0s and 20 at once; 0 wait
}
