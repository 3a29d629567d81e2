// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A message is delivered twice, as queues do. The second delivery adds nothing, although the task of the first has run.
func ExampleWithOnce() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Shutdown(ctx)
	ran := make(chan string)
	remind := func(_ context.Context, run durable.Run) error { ran <- run.Key; return nil }
	if err := errors.Join(s.Handle("remind", remind, durable.WithOnce(time.Hour)), s.Start()); err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		err := s.AddTask(ctx, durable.Task{Key: "order-41", Kind: "remind", Once: "message 7"})
		var repeated *durable.RepeatedError
		switch {
		case errors.As(err, &repeated):
			fmt.Println("added before:", repeated.Keys, errors.Is(err, durable.ErrRepeated))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("runs:", <-ran)
		}
	}
	stored, replaced, err := s.Put(ctx, durable.Task{Key: "order-42", Kind: "remind", Delay: time.Hour})
	fmt.Println("stored:", stored.Key, stored.State, replaced, err)
	_, err = s.AddNew(ctx, durable.Task{Key: "order-42", Kind: "remind"})
	fmt.Println("in use:", errors.Is(err, durable.ErrDuplicateTaskKey))
	remembered, _, err := s.Get(ctx, durable.OncePrefix+"message 7")
	fmt.Println(remembered.Kind == durable.OnceKind, err)
	// Output:
	// runs: order-41
	// added before: [order-41] true
	// stored: order-42 scheduled false <nil>
	// in use: true
	// true <nil>
}
