// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// The relay bears more than the code asks of it, and a backlog may run faster than usual. Neither needs a deployment.
func ExampleScheduler_TuneLimits() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	mail := func(context.Context, durable.Run) error { return nil }
	if err := s.Handle("mail", mail, durable.WithClusterRate(100, time.Minute, 10)); err != nil {
		log.Fatal(err)
	}
	more := durable.KindLimits{Kind: "mail", Cluster: durable.Limit{Rate: 500}} // per minute, as in the code
	if err := s.TuneLimits(ctx, more, durable.By("ann", "the new relay")); err != nil {
		log.Fatal(err)
	}
	if err := s.TunePoolSize(ctx, 64); err != nil {
		log.Fatal(err)
	}
	if err := s.TuneCatchUp(ctx, 500); err != nil {
		log.Fatal(err)
	}
	var set durable.Tuning
	if set, err = s.Tuned(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(set.PoolSize, set.CatchUp, set.Limits[0].Kind, set.By["kind mail"].Why)
	if err := s.TuneLimits(ctx, durable.KindLimits{Kind: "mail"}); err != nil { // as in the code again
		log.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: 64 500 mail the new relay
}
