// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The history of a kind: it keeps its last 10,000 attempts for a week. Another process reads them.
func ExampleWithHistory() {
	ctx := context.Background()
	engine := memory.New().Shared() // in production: postgres.Open
	node, err := durable.New(ctx, engine, durable.WithNodeName("shop-1"), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	err = node.Handle("mail", func(_ context.Context, run durable.Run) error {
		if run.Attempt == 1 {
			return errors.New("connection refused")
		}
		run.Complete("sent")
		return nil
	}, durable.WithRetry(3, time.Millisecond, time.Millisecond), durable.WithHistory(10_000, 7*24*time.Hour),
		durable.WithHistoryNotes(durable.MaxHistoryNote)) // 256 bytes of each would be kept otherwise
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(node.AddTask(ctx, durable.Task{Key: "mail:42", Kind: "mail"}), node.Start()); err != nil {
		log.Fatal(err)
	}
	for node.Len() > 0 { // until the last run is over
		time.Sleep(time.Millisecond)
	}
	if err := node.Shutdown(ctx); err != nil { // writes the rest of the history
		log.Fatal(err)
	}

	office, err := durable.Connect(ctx, engine, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = office.Shutdown(ctx) }()
	past, err := office.History(ctx, durable.HistoryQuery{Key: "mail:42", Limit: 10}) // newest first
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range past.Runs {
		fmt.Println(r.Key, "attempt", r.Attempt.Attempt, r.Outcome(), "on", r.Node+":", r.Failure+r.Note)
	}
	// Output:
	// mail:42 attempt 2 succeeded on shop-1: sent
	// mail:42 attempt 1 failed on shop-1: connection refused
}

// How the runs of a kind have gone since yesterday, page by page.
func ExampleScheduler_History() {
	ctx := context.Background()
	s := withPast()
	defer func() { _ = s.Shutdown(ctx) }()
	var well, again, lost, late int
	yesterday := time.Now().Add(-24 * time.Hour)
	for q := (durable.HistoryQuery{Kind: "mail", Limit: 2}); ; {
		page, err := s.History(ctx, q)
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range page.Runs {
			if r.Ended.Before(yesterday) {
				break
			}
			if r.Started.Sub(r.Due) > time.Minute {
				late++
			}
			switch r.Outcome() {
			case durable.OutcomeSucceeded:
				well++
			case durable.OutcomeFailed, durable.OutcomeSnoozed: // another attempt follows
				again++
			case durable.OutcomeParked, durable.OutcomeGivenUp, durable.OutcomeCancelled, durable.OutcomeExpired:
				lost++
			}
		}
		if q.After = page.Next; q.After == "" || page.Runs[len(page.Runs)-1].Ended.Before(yesterday) {
			break
		}
	}
	fmt.Println(well, "well,", again, "with another attempt,", lost, "lost,", late, "late")
	fmt.Println("all outcomes:", strings.Join(durable.Outcomes(), ", "))
	// Output:
	// 2 well, 0 with another attempt, 1 lost, 0 late
	// all outcomes: succeeded, failed, parked, given up, cancelled, snoozed, expired
}

// withPast returns a scheduler of the kind mail, which has run three tasks.
func withPast() *durable.Scheduler {
	ctx := context.Background()
	kept := memory.New()
	s, err := durable.New(ctx, kept.Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool, 3)
	err = s.Handle("mail", func(_ context.Context, run durable.Run) error {
		defer func() { done <- true }()
		if run.Key == "mail:3" {
			return durable.Park(errors.New("no address"))
		}
		return nil
	}, durable.WithHistory(durable.MaxHistory, 24*time.Hour))
	for _, key := range []string{"mail:1", "mail:2", "mail:3"} {
		err = errors.Join(err, s.AddTask(ctx, durable.Task{Key: key, Kind: "mail"}))
	}
	if err := errors.Join(err, s.Start()); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		<-done
	}
	if err := s.Shutdown(ctx); err != nil { // it writes the history
		log.Fatal(err)
	}
	if s, err = durable.New(ctx, kept.Engine(), durable.WithLogger(testkit.Quiet())); err != nil {
		log.Fatal(err)
	}
	return s
}
