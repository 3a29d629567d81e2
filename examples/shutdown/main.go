// SPDX-License-Identifier: MIT

// Shutdown shows how a program ends without losing anything. Running jobs get time to end, and are then asked to give
// up; after an interrupt (Ctrl-C) at once. Waiting tasks are taken out of the wheel, to be kept elsewhere.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer) error {
	tw, err := timewheel.New(10*time.Millisecond, 512)
	if err != nil {
		return err
	}
	tw.Start()
	out := log.New(w, "", 0)
	var begun, ended sync.WaitGroup
	begun.Add(2)
	ended.Add(2)

	jobs := []timewheel.Task{
		{Key: "short", Interval: 100 * time.Millisecond, Job: func(*timewheel.Task) {
			defer ended.Done()
			begun.Done()
			time.Sleep(300 * time.Millisecond) // work that does not take long
			out.Print("short: done")
		}},
		{Key: "long", Interval: 100 * time.Millisecond, Job: func(task *timewheel.Task) {
			defer ended.Done()
			begun.Done()
			<-task.Context().Done() // work that would never end
			out.Print("long: gave up")
		}},
		{Key: "tonight", Interval: 8 * time.Hour, Job: func(*timewheel.Task) {}},
		{Key: "at noon", Interval: 2 * time.Hour, Job: func(*timewheel.Task) {}},
	}
	for _, task := range jobs {
		if err := tw.AddTask(&task); err != nil {
			return err
		}
	}
	begun.Wait()

	// No new run starts after this. Shutdown waits for the running jobs, for a second at most, or until an interrupt.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := tw.Shutdown(ctx); err != nil {
		out.Print(err)
		tw.Stop() // cancels Task.Context, so that the remaining jobs give up
	}
	ended.Wait()

	// Tasks that did not run are still there, in due order.
	n, err := tw.Drain(func(task *timewheel.Task) {
		out.Printf("kept for the next start: %s, due in %v", task.Key, task.Delay.Round(time.Hour))
	})
	if err != nil {
		return fmt.Errorf("draining: %w", err)
	}
	out.Printf("%d tasks kept, %d in the wheel", n, tw.Len())
	return nil
}
