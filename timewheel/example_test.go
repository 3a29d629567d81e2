// SPDX-License-Identifier: MIT

package timewheel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/timewheel"
)

// An order that is not paid gives its stock back.
func Example() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 1024)
	tw.Start()
	defer tw.Stop()

	expired := make(chan string)
	expire := func(task *timewheel.Task) { expired <- task.Key }
	for _, order := range []string{"order-1", "order-2"} {
		task := &timewheel.Task{Key: order, Interval: 20 * time.Millisecond, Job: expire}
		if order == "order-1" {
			task.Interval = 30 * time.Minute
		}
		if err := tw.AddTask(task); err != nil {
			fmt.Println(err)
		}
	}
	if err := tw.RemoveTask("order-1"); err != nil { // it was paid
		fmt.Println(err)
	}
	fmt.Println(<-expired, "was not paid")
	fmt.Println(tw.Len(), "orders are open")
	// Output:
	// order-2 was not paid
	// 0 orders are open
}

func ExampleTimeWheel_AddTask() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()
	defer tw.Stop()

	left := make(chan int)
	task := &timewheel.Task{
		Key:      "poll",
		Delay:    time.Millisecond,     // before the first run
		Interval: 5 * time.Millisecond, // before each further one
		Times:    3,
		Job:      func(task *timewheel.Task) { left <- task.Times },
	}
	fmt.Println(tw.AddTask(task))
	fmt.Println(tw.AddTask(task)) // the key is taken
	fmt.Println(<-left, <-left, <-left)
	fmt.Println(tw.Exist("poll"))
	// Output:
	// <nil>
	// timewheel: duplicate task key: "poll"
	// 2 1 0
	// false
}

func ExampleTimeWheel_SetTask() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()
	defer tw.Stop()

	done := make(chan string)
	set := func(version string, after time.Duration) error {
		return tw.SetTask(&timewheel.Task{
			Key:      "save",
			Interval: after,
			Job:      func(*timewheel.Task) { done <- version },
		})
	}
	fmt.Println(set("first version", time.Hour))
	fmt.Println(set("second version", time.Millisecond)) // in place of the first
	fmt.Println(<-done)
	// Output:
	// <nil>
	// <nil>
	// second version
}

func ExampleTimeWheel_RemoveTask() {
	tw := timewheel.NewTimeWheel(time.Second, 60)
	defer tw.Stop()

	task := &timewheel.Task{Key: "session", Interval: time.Hour, Job: func(*timewheel.Task) {}}
	if err := tw.AddTask(task); err != nil {
		fmt.Println(err)
	}
	fmt.Println(tw.RemoveTask("session"))
	err := tw.RemoveTask("session")
	fmt.Println(err)
	fmt.Println(errors.Is(err, timewheel.ErrTaskKeyNotFound))
	// Output:
	// <nil>
	// timewheel: task key not found: "session"
	// true
}

// A connection that is idle for too long is dropped. Each read pushes its deadline back.
func ExampleTimeWheel_Reschedule() {
	const idle = 20 * time.Millisecond
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()
	defer tw.Stop()

	var lastRead time.Time
	dropped := make(chan time.Time)
	task := &timewheel.Task{
		Key:      "connection",
		Interval: time.Hour,
		Job:      func(*timewheel.Task) { dropped <- time.Now() },
	}
	if err := tw.AddTask(task); err != nil {
		fmt.Println(err)
	}
	for range 3 {
		lastRead = time.Now()
		if err := tw.Reschedule("connection", idle); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("idle for long enough:", (<-dropped).Sub(lastRead) >= idle)
	// Output: idle for long enough: true
}

// What a wheel has not done when the process ends can be written down, and be added again by the next one.
func ExampleTimeWheel_Drain() {
	tw := timewheel.NewTimeWheel(time.Second, 60)
	for i, key := range []string{"last", "second", "first"} {
		task := &timewheel.Task{Key: key, Interval: time.Duration(3-i) * time.Hour, Job: func(*timewheel.Task) {}}
		if err := tw.AddTask(task); err != nil {
			fmt.Println(err)
		}
	}
	tw.Stop()

	next := timewheel.NewTimeWheel(time.Second, 60)
	defer next.Stop()
	n, err := tw.Drain(func(task *timewheel.Task) {
		fmt.Println(task.Key, task.Interval)
		if err := next.AddTask(task); err != nil {
			fmt.Println(err)
		}
	})
	fmt.Println(n, err)
	fmt.Println(tw.Len(), next.Len())
	// Output:
	// first 1h0m0s
	// second 2h0m0s
	// last 3h0m0s
	// 3 <nil>
	// 0 3
}

func ExampleTimeWheel_AfterFunc() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()
	defer tw.Stop()

	fired := make(chan string)
	timeout := tw.AfterFunc(time.Hour, func() { fired <- "timeout" })
	tw.AfterFunc(time.Millisecond, func() { fired <- "tea is ready" })
	fmt.Println(<-fired)
	fmt.Println(timeout.Reset(time.Millisecond)) // it was active
	fmt.Println(<-fired)
	fmt.Println(timeout.Stop()) // it has fired
	// Output:
	// tea is ready
	// true
	// timeout
	// false
}

func ExampleTimeWheel_Shutdown() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()

	began, release := make(chan struct{}), make(chan struct{})
	tw.AfterFunc(0, func() {
		close(began)
		<-release
	})
	<-began

	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no patience at all
	fmt.Println(tw.Shutdown(ctx))

	close(release)
	fmt.Println(tw.Shutdown(context.Background())) // waits for the run
	// Output:
	// timewheel: shutdown: still running: 1: context canceled
	// <nil>
}

func ExampleSkipIfRunning() {
	observed := make(chan timewheel.Run)
	tw := timewheel.NewTimeWheel(time.Millisecond, 60,
		timewheel.WithObserver(func(run timewheel.Run) { observed <- run }))
	tw.Start()
	defer tw.Stop()

	release := make(chan struct{})
	err := tw.AddTask(&timewheel.Task{
		Key:      "report",
		Interval: time.Millisecond,
		Times:    3,
		Job: timewheel.SkipIfRunning(func(*timewheel.Task) {
			<-release
			fmt.Println("the report is written")
		}),
	})
	if err != nil {
		fmt.Println(err)
	}
	<-observed // the second run and the third
	<-observed // have found the first going on
	close(release)
	<-observed
	fmt.Println(tw.Stats().Started, "runs")
	// Output:
	// the report is written
	// 3 runs
}

func ExampleWithMaxPending() {
	tw := timewheel.NewTimeWheel(time.Second, 60, timewheel.WithMaxPending(2))
	defer tw.Stop()

	for _, key := range []string{"a", "b", "c"} {
		err := tw.AddTask(&timewheel.Task{Key: key, Interval: time.Hour, Job: func(*timewheel.Task) {}})
		if errors.Is(err, timewheel.ErrFull) {
			fmt.Println(key, "has to come later")
		}
	}
	// Output: c has to come later
}

func ExampleWithPanicHandler() {
	quiet := logrus.New() // a panic is logged in any case
	quiet.SetOutput(io.Discard)
	panics := make(chan string)
	tw := timewheel.NewTimeWheel(time.Millisecond, 60,
		timewheel.WithLogger(quiet),
		timewheel.WithPanicHandler(func(task *timewheel.Task, value any, stack []byte) {
			panics <- fmt.Sprintf("%s: %v", task.Key, value)
		}))
	tw.Start()
	defer tw.Stop()

	err := tw.AddTask(&timewheel.Task{
		Key:      "print",
		Interval: time.Millisecond,
		Times:    2,
		Job:      func(*timewheel.Task) { panic("no paper") },
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-panics)
	fmt.Println(<-panics) // a repeating task runs again after a panic
	// Output:
	// print: no paper
	// print: no paper
}

func ExampleWithObserver() {
	const tick = time.Millisecond
	runs := make(chan timewheel.Run)
	tw := timewheel.NewTimeWheel(tick, 60,
		timewheel.WithObserver(func(run timewheel.Run) { runs <- run }))
	tw.Start()
	defer tw.Stop()

	err := tw.AddTask(&timewheel.Task{Key: "k", Interval: 5 * tick, Job: func(*timewheel.Task) {}})
	if err != nil {
		fmt.Println(err)
	}
	run := <-runs
	fmt.Println("run of", run.Key)
	fmt.Println("early:", run.Started.Before(run.Due))
	fmt.Println("the loop, a worker and the job took no negative time:",
		run.Handed.Sub(run.Due) >= 0 && run.Started.Sub(run.Handed) >= 0 && run.Ended.Sub(run.Started) >= 0)
	// Output:
	// run of k
	// early: false
	// the loop, a worker and the job took no negative time: true
}

func ExampleTimeWheel_Stats() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()
	defer tw.Stop()

	ran := make(chan bool)
	tw.AfterFunc(time.Millisecond, func() { ran <- true })
	tw.AfterFunc(time.Hour, func() { ran <- true })
	tw.AfterFunc(time.Hour, func() { ran <- true }).Stop()
	<-ran

	s := tw.Stats()
	fmt.Println(s.Added, "added =", s.Finished, "finished +", s.Removed, "removed +", s.Pending, "pending")
	fmt.Println(s.Due, "due =", s.Started, "started +", s.Missed, "missed +", s.Waiting, "waiting +",
		s.Withdrawn, "withdrawn")
	// Output:
	// 3 added = 1 finished + 1 removed + 1 pending
	// 1 due = 1 started + 0 missed + 0 waiting + 0 withdrawn
}
