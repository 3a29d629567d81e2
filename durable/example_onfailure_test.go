// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// When a payment is refused for good, the stock that was held for it is released, by a task of its own. It is added in the commit
// that parks the payment, so it is there even if the process ends just then.
func ExampleWithOnFailure() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Shutdown(ctx)
	released := make(chan string)
	pay := func(context.Context, durable.Run) error { return durable.Park(errors.New("card expired")) }
	release := func(_ context.Context, run durable.Run) error { released <- string(run.Payload); return nil }
	err = errors.Join(
		s.Handle("release", release),
		s.Handle("pay", pay, durable.WithOnFailure(func(failed durable.Info) durable.Task {
			return durable.Task{
				Key: "release:" + failed.Token.String(), Kind: "release",
				Payload: []byte(failed.Key + ": " + failed.Failure),
			}
		})),
		s.Start(),
		s.AddTask(ctx, durable.Task{Key: "order-41", Kind: "pay"}),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-released)
	failed, _, err := s.Get(ctx, "order-41")
	fmt.Println(failed.State, err)
	// Output:
	// order-41: card expired
	// parked <nil>
}
