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

// The tasks of one customer, found by the prefix of their keys.
func ExampleScheduler_RemovePrefix() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	err = s.Handle("remind", func(context.Context, durable.Run) error { return nil })
	for _, key := range []string{"ada:1", "ada:2", "ada:3", "ben:1"} {
		err = errors.Join(err, s.AddTask(ctx, durable.Task{Key: key, Kind: "remind", Delay: time.Hour}))
	}
	if err != nil {
		log.Fatal(err)
	}
	infos, err := s.GetMany(ctx, "ben:1", "ada:2", "ada:9")
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range infos {
		fmt.Println(i.Key, i.Kind)
	}
	fmt.Println(s.ReschedulePrefix(ctx, "ada:", 2*time.Hour))
	for i, err := range s.AllPrefix(ctx, "ada:", "ada:1") { // after that key
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(i.Key, time.Until(i.Next) > time.Hour)
	}
	fmt.Println(s.RemovePrefix(ctx, "ada:"))
	fmt.Println(s.RemovePrefix(ctx, "ada:"))
	// Output:
	// ben:1 remind
	// ada:2 remind
	// 3 <nil>
	// ada:2 true
	// ada:3 true
	// 3 <nil>
	// 0 <nil>
}
