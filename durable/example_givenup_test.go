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
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A report that fails for the last time is given up, and runs again in its next period. A transfer is parked instead,
// because the next one must not start before an operator has looked at this one.
func ExampleWithParkRepeating() {
	ctx := context.Background()
	ended := make(chan durable.Attempt, 2)
	s, err := durable.New(ctx, memory.New().Shared(), durable.WithLogger(testkit.Quiet()),
		durable.WithObserver(func(a durable.Attempt) { ended <- a }))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	down := func(context.Context, durable.Run) error { return errors.New("the database is down") }
	once := durable.WithRetry(1, time.Second, time.Second)
	hourly := func(key string) durable.Task {
		return durable.Task{Key: key, Kind: key, Delay: time.Millisecond, Interval: time.Hour, Times: durable.Forever}
	}
	err = errors.Join(
		s.Handle("report", down, once),
		s.Handle("transfer", down, once, durable.WithParkRepeating()),
		s.AddTask(ctx, hourly("report"), hourly("transfer")),
		s.Start())
	if err != nil {
		log.Fatal(err)
	}
	for range 2 { // the observer is called for these attempts once their end is stored
		<-ended
	}
	for _, key := range []string{"report", "transfer"} {
		i, _, err := s.Get(ctx, key)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(key, i.State, i.GivenUp, i.Failure)
	}
	for _, k := range s.Kinds() {
		fmt.Println(k.Kind, k.ParkRepeating, k.GivenUp, k.GivenUpAgain, k.ParkedTotal)
	}
	// Output:
	// report scheduled 1 the database is down
	// transfer parked 0 the database is down
	// report false 1 0 0
	// transfer true 0 0 1
}
