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

// What the processes have done in the last hour, including processes that have ended, for example in a deployment.
func ExampleScheduler_LastHour() {
	ctx := context.Background()
	engine := memory.New().Shared() // in production: postgres.Open
	node, err := durable.New(ctx, engine, durable.WithNodeName("shop-1"), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(node.Handle("mail", func(context.Context, durable.Run) error { return nil }),
		node.AddTask(ctx, durable.Task{Key: "mail:42", Kind: "mail"}), node.Start())
	if err != nil {
		log.Fatal(err)
	}
	for node.Len() > 0 { // until the last run is over
		time.Sleep(time.Millisecond)
	}
	if err := node.Shutdown(ctx); err != nil { // writes the last minute
		log.Fatal(err)
	}

	office, err := durable.Connect(ctx, engine, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = office.Shutdown(ctx) }()
	hours, err := office.LastHour(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range hours {
		var process durable.NodeHour = h
		fmt.Println(process.Node, "has started:", !process.Started.IsZero(), "and ended:", process.Ended.After(process.Started))
		for _, kind := range process.Kinds {
			var of durable.KindHour = kind
			for _, m := range of.Minutes {
				var minute durable.KindMinute = m
				fmt.Println(of.Kind+":", minute.Succeeded, "succeeded,", minute.Failed, "failed; recent:", time.Since(minute.At) < time.Hour,
					"overdue tasks are known:", minute.Overdue >= 0)
			}
		}
	}
	// Output:
	// shop-1 has started: true and ended: true
	// mail: 1 succeeded, 0 failed; recent: true overdue tasks are known: false
}
