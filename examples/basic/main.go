// SPDX-License-Identifier: MIT

// Basic shows the three most common uses of a timing wheel: run a job once, run it several times, and cancel it. The
// program takes 0.3 s. It finishes even after an interrupt (Ctrl-C); a second interrupt ends it at once.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

func main() {
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(interrupted, stop)
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	tw, err := timewheel.New(10*time.Millisecond, 512)
	if err != nil {
		return err
	}
	tw.Start()
	defer tw.Stop()

	// Jobs run on the wheel's goroutines, which may share a Logger.
	out := log.New(w, "", 0)
	var runs sync.WaitGroup
	runs.Add(4)
	job := func(task *timewheel.Task) {
		defer runs.Done()
		out.Printf("%s runs, %d to come", task.Key, task.Times)
	}

	tea := timewheel.Task{Key: "tea", Interval: 250 * time.Millisecond, Job: job}             // once
	bell := timewheel.Task{Key: "bell", Interval: 100 * time.Millisecond, Times: 3, Job: job} // 3 times
	alarm := timewheel.Task{Key: "alarm", Interval: time.Second, Job: job}
	for _, task := range []timewheel.Task{tea, bell, alarm} {
		if err := tw.AddTask(&task); err != nil {
			return err
		}
	}

	if err := tw.RemoveTask("alarm"); err != nil {
		return err
	}
	out.Printf("alarm is there: %t, tea is there: %t", tw.Exist("alarm"), tw.Exist("tea"))
	runs.Wait()
	if err := tw.RemoveTask("tea"); err != nil {
		out.Printf("too late: %v", err)
	}
	return nil
}
