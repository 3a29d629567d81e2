// SPDX-License-Identifier: MIT

// Shutdown shows how a program can stop without losing tasks. Running jobs get time to finish, and are then asked to
// give up. An interrupt (Ctrl-C) asks them to give up at once. Waiting tasks are removed from the wheel, so that the
// program can store them elsewhere.
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
			time.Sleep(300 * time.Millisecond) // short work
			out.Print("short: done")
		}},
		{Key: "long", Interval: 100 * time.Millisecond, Job: func(task *timewheel.Task) {
			defer ended.Done()
			begun.Done()
			<-task.Context().Done() // work that would otherwise never end
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

	// After this, no new run starts. Shutdown waits for the running jobs, for one second at most or until an interrupt.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := tw.Shutdown(ctx); err != nil {
		out.Print(err)
		tw.Stop() // cancels Task.Context, so that the remaining jobs give up
	}
	ended.Wait()

	// Drain returns the tasks that have not run, in due order.
	n, err := tw.Drain(func(task *timewheel.Task) {
		out.Printf("kept for the next start: %s, due in %v", task.Key, task.Delay.Round(time.Hour))
	})
	if err != nil {
		return fmt.Errorf("draining: %w", err)
	}
	out.Printf("%d tasks kept, %d in the wheel", n, tw.Len())
	return nil
}
