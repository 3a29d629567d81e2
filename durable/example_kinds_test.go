// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A letter has one recipient in version 1, and any number of recipients in version 2.
type (
	oldLetter struct{ To string }
	letter    struct{ To []string }
)

// upgradeLetter converts a payload from version 1 to version 2.
func upgradeLetter(payload []byte, _ int) ([]byte, error) {
	var old oldLetter
	if err := json.Unmarshal(payload, &old); err != nil {
		return nil, err
	}
	return json.Marshal(letter{[]string{old.To}})
}

// The payload of the kind has changed. Tasks added by the earlier version of the program still run.
func ExampleWithPayloadVersion() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	sent := make(chan []string)
	letters, err := durable.KindOf(s, "letter", func(_ context.Context, _ durable.Run, l letter) error {
		sent <- l.To
		return nil
	}, durable.WithPayloadVersion(2, upgradeLetter))
	if err := errors.Join(err, s.Start()); err != nil {
		log.Fatal(err)
	}
	err = s.AddTask(ctx, durable.Task{
		Key: "old", Kind: "letter", Payload: []byte(`{"To":"ada"}`), PayloadVersion: 1, Delay: time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-sent)
	if err := letters.Add(ctx, "new", letter{[]string{"ada", "bob"}}, durable.In(time.Millisecond)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-sent)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// [ada]
	// [ada bob]
}

// On the 29th of March 2026 the clocks of Berlin are set from 2:00 to 3:00.
func ExampleNext() {
	from := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	next, err := durable.Next("CRON_TZ=Europe/Berlin 30 2 * * *", from, 3)
	if err != nil {
		log.Fatal(err)
	}
	for _, at := range next {
		fmt.Println(at)
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}

// The first Monday of a month, as crontabs have it for cron(8) and in a form of its own, and the last workday.
func ExampleNext_daysOfAMonth() {
	from := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for _, spec := range []string{"5 12 */100,1-7 * 1", "5 12 * * MON#1", "0 18 LW * *"} {
		next, err := durable.Next(spec, from, 2)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(next[0].Format("Mon Jan 2 15:04"), "and", next[1].Format("Mon Jan 2 15:04"))
	}
	// Output:
	// Mon Dec 7 12:05 and Mon Jan 4 12:05
	// Mon Dec 7 12:05 and Mon Jan 4 12:05
	// Mon Nov 30 18:00 and Thu Dec 31 18:00
}

// A declined card is not tried again, and a busy bank says when to retry.
func ExamplePark() {
	charge := func(card string) error {
		switch card {
		case "stolen":
			return durable.Park(errors.New("the card was stolen"))
		case "busy":
			return durable.RetryAfter(time.Minute, errors.New("the bank is busy"))
		}
		return nil
	}
	fmt.Println(charge("stolen"))
	fmt.Println(fmt.Errorf("order 42: %w", charge("busy")))
	// Output:
	// the card was stolen
	// order 42: the bank is busy
}

// A run that finds nothing to do completes with a note.
func ExampleRun_Complete() {
	ctx := context.Background()
	noted := make(chan string)
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()),
		durable.WithObserver(func(a durable.Attempt) { noted <- a.Note }))
	if err != nil {
		log.Fatal(err)
	}
	charge := func(_ context.Context, run durable.Run) error {
		run.Complete("paid already")
		return nil
	}
	err = errors.Join(s.Handle("charge", charge), s.Start(),
		s.AddTask(ctx, durable.Task{Key: "order:42", Kind: "charge", Delay: time.Millisecond}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-noted)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: paid already
}

// An order is cancelled while its payment is being made. RemoveTaskWait asks the payment to stop, and returns when it
// has ended.
func ExampleScheduler_RemoveTaskWait() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	begun := make(chan bool)
	pay := func(ctx context.Context, _ durable.Run) error {
		begun <- true
		<-ctx.Done()
		fmt.Println("the payment ends:", errors.Is(context.Cause(ctx), durable.ErrCancelled))
		return ctx.Err()
	}
	err = errors.Join(s.Handle("pay", pay), s.Start(),
		s.AddTask(ctx, durable.Task{Key: "order:42", Kind: "pay", Delay: time.Millisecond}))
	if err != nil {
		log.Fatal(err)
	}
	<-begun
	brief, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	var running *durable.RunningError
	if _, err = s.RemoveTaskWait(brief, "order:42"); errors.As(err, &running) {
		fmt.Println("still running:", running.Key)
	}
	if _, err = s.Cancel(ctx, "order:42"); err != nil {
		log.Fatal(err)
	}
	_, err = s.RemoveTaskWait(ctx, "order:42")
	if err != nil && !errors.Is(err, durable.ErrTaskKeyNotFound) { // the run had already ended
		log.Fatal(err)
	}
	fmt.Println("nothing runs")
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// still running: order:42
	// the payment ends: true
	// nothing runs
}
