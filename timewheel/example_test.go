// SPDX-License-Identifier: MIT

package timewheel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/pool"
	"github.com/seed581295f1/timewheel/timewheel"
)

// The stock of an unpaid order is released.
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

// Values from a configuration file may be invalid. New returns an error where NewTimeWheel panics.
func ExampleNew() {
	for _, size := range []int{-1, 100} {
		tw, err := timewheel.New(10*time.Millisecond, 1024,
			timewheel.WithPoolSize(size),
			timewheel.WithLayout(timewheel.Hierarchical))
		if err != nil {
			fmt.Println(err)
			continue
		}
		tw.Start()
		fmt.Println("running:", tw.IsRunning(), "with", tw.Stats().Workers, "workers")
		tw.Stop()
		fmt.Println("running:", tw.IsRunning())
	}
	// Output:
	// timewheel: pool size -1 is not positive
	// running: true with 100 workers
	// running: false
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

// A program may handle each error of AddTask differently.
func ExampleTimeWheel_AddTask_errors() {
	tw := timewheel.NewTimeWheel(time.Second, 60, timewheel.WithMaxPending(1))
	add := func(key string, delay time.Duration) {
		err := tw.AddTask(&timewheel.Task{Key: key, Delay: delay, Job: func(*timewheel.Task) {}})
		switch {
		case errors.Is(err, timewheel.ErrInvalidTask):
			fmt.Println("refuse the request:", err)
		case errors.Is(err, timewheel.ErrDuplicateTaskKey):
			fmt.Println("do nothing, it was added before:", err)
		case errors.Is(err, timewheel.ErrFull):
			fmt.Println("try again later:", err)
		case errors.Is(err, timewheel.ErrStopped):
			fmt.Println("leave it to the next process:", err)
		}
	}
	add("order-1", -time.Minute)
	add("order-1", time.Minute)
	add("order-1", time.Minute)
	add("order-2", time.Minute)
	tw.Stop()
	add("order-3", time.Minute)
	// Output:
	// refuse the request: timewheel: invalid task: delay -1m0s of "order-1" is negative
	// do nothing, it was added before: timewheel: duplicate task key: "order-1"
	// try again later: timewheel: too many pending tasks: 1 of 1; "order-2" is not added
	// leave it to the next process: timewheel: stopped: AddTask of "order-3"
}

func ExampleTimeWheel_Get() {
	tw := timewheel.NewTimeWheel(time.Second, 60)
	defer tw.Stop()

	for key, times := range map[string]int{"reminder": 3, "backup": timewheel.Forever} {
		task := &timewheel.Task{Key: key, Interval: time.Hour, Times: times, Job: func(*timewheel.Task) {}}
		if err := tw.AddTask(task); err != nil {
			fmt.Println(err)
		}
	}
	if info, ok := tw.Get("reminder"); ok {
		fmt.Println(info.Key, "runs", info.Times, "times, every", info.Interval)
		fmt.Println("within the hour:", time.Until(info.Next) <= time.Hour)
	}
	fmt.Println("the backup runs forever:", tw.GetTaskTimes("backup") == timewheel.Forever)
	// Output:
	// reminder runs 3 times, every 1h0m0s
	// within the hour: true
	// the backup runs forever: true
}

// A customer leaves, and all their tasks are removed.
func ExampleTimeWheel_All() {
	tw := timewheel.NewTimeWheel(time.Second, 60)
	defer tw.Stop()

	for _, key := range []string{"ada/trial", "grace/trial", "ada/invoice"} {
		task := &timewheel.Task{Key: key, Delay: time.Hour, Job: func(*timewheel.Task) {}}
		if err := tw.AddTask(task); err != nil {
			fmt.Println(err)
		}
	}
	for info := range tw.All() {
		if strings.HasPrefix(info.Key, "ada/") {
			_ = tw.RemoveTask(info.Key) // unless it has just run
		}
	}
	fmt.Println(tw.Exist("ada/trial"), tw.Exist("ada/invoice"), tw.Exist("grace/trial"))
	// Output: false false true
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
	fmt.Println(set("second version", time.Millisecond)) // replaces the first
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

// Tasks that remain when the process ends can be saved and added again by the next process.
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
	fmt.Println(timeout.Reset(time.Millisecond)) // the timer was active
	fmt.Println(<-fired)
	fmt.Println(timeout.Stop()) // the timer has fired
	// Output:
	// tea is ready
	// true
	// timeout
	// false
}

// A long job ends early when the wheel is stopped.
func ExampleTask_Context() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()

	began, ended := make(chan bool), make(chan error)
	err := tw.AddTask(&timewheel.Task{
		Key:   "report",
		Delay: time.Millisecond,
		Job: func(task *timewheel.Task) {
			began <- true
			<-task.Context().Done() // as a database query with this context would
			ended <- task.Context().Err()
		},
	})
	if err != nil {
		fmt.Println(err)
	}
	<-began
	tw.Stop()
	fmt.Println(<-ended)
	// Output: context canceled
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
	cancel() // the deadline has passed
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
	<-observed // found the first run in progress
	close(release)
	<-observed
	fmt.Println(tw.Stats().Started, "runs")
	// Output:
	// the report is written
	// 3 runs
}

// While the printer is out of order its jobs do not run, and none is lost.
func ExampleTimeWheel_Pause() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()
	defer tw.Stop()

	printed := make(chan string)
	err := tw.AddTask(&timewheel.Task{
		Key:   "print",
		Delay: 20 * time.Millisecond,
		Job:   func(task *timewheel.Task) { printed <- task.Key },
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(tw.Pause("print"))
	info, _ := tw.Get("print")
	fmt.Println("paused:", info.Paused, "and", tw.Stats().Paused, "in all")
	fmt.Println(tw.Resume("print")) // due after the remainder of the 20 ms
	fmt.Println(<-printed)
	// Output:
	// <nil>
	// paused: true and 1 in all
	// <nil>
	// print
}

// A file may be deleted once no job is writing to it.
func ExampleTimeWheel_RemoveWait() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()
	defer tw.Stop()

	writing, written := make(chan bool), false
	err := tw.AddTask(&timewheel.Task{
		Key:      "write",
		Delay:    time.Millisecond,
		Interval: time.Hour,
		Times:    timewheel.Forever,
		Job: func(*timewheel.Task) {
			writing <- true
			written = true
		},
	})
	if err != nil {
		fmt.Println(err)
	}
	<-writing
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := tw.RemoveWait(ctx, "write"); err != nil {
		fmt.Println(err)
	}
	fmt.Println("written:", written)
	// Output: written: true
}

// All tasks of one customer are postponed, and then removed.
func ExampleTimeWheel_RemovePrefix() {
	tw := timewheel.NewTimeWheel(time.Second, 60)
	defer tw.Stop()

	for _, key := range []string{"ada/trial", "grace/trial", "ada/invoice"} {
		task := &timewheel.Task{Key: key, Delay: time.Hour, Job: func(*timewheel.Task) {}}
		if err := tw.AddTask(task); err != nil {
			fmt.Println(err)
		}
	}
	ctx := context.Background()
	fmt.Println(tw.ReschedulePrefix(ctx, "ada/", 2*time.Hour))
	for info := range tw.AllPrefix("grace/") {
		fmt.Println(info.Key)
	}
	fmt.Println(tw.RemovePrefix(ctx, "ada/"))
	for _, info := range tw.GetMany("ada/trial", "ada/invoice", "grace/trial") {
		fmt.Println(info.Key, "is left")
	}
	// Output:
	// 2 <nil>
	// grace/trial
	// 2 <nil>
	// grace/trial is left
}

// A deadline by the calendar. It holds even if the machine is suspended until shortly before.
func ExampleTimeWheel_AddAt() {
	tw := timewheel.NewTimeWheel(time.Second, 60)
	defer tw.Stop()

	now := time.Now()
	midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, time.Local)
	report := &timewheel.Task{Key: "report", Job: func(*timewheel.Task) {}}
	fmt.Println(tw.AddAt(midnight, report))
	fmt.Println(tw.SetAt(midnight.Add(8*time.Hour), report)) // replaces the first
	info, _ := tw.Get("report")
	fmt.Println("due at eight:", info.Next.Sub(midnight.Add(8*time.Hour)).Abs() < time.Second)
	// Output:
	// <nil>
	// <nil>
	// due at eight: true
}

func ExampleJobFunc() {
	failed := make(chan string)
	tw := timewheel.NewTimeWheel(time.Millisecond, 60,
		timewheel.WithErrorHandler(func(task *timewheel.Task, err error) {
			failed <- fmt.Sprintf("%s: %v", task.Key, err)
		}))
	tw.Start()
	defer tw.Stop()

	err := tw.AddTask(&timewheel.Task{
		Key:   "mail",
		Delay: time.Millisecond,
		Job: timewheel.JobFunc(func(ctx context.Context) error {
			if err := ctx.Err(); err != nil { // the wheel was stopped
				return err
			}
			return errors.New("no connection")
		}),
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-failed)
	// Output: mail: no connection
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

// Wheels can share one pool. Any type with this Submit method will do.
func ExampleWithExecutor() {
	jobs, err := pool.New(8)
	if err != nil {
		fmt.Println(err)
		return
	}
	var shared timewheel.Executor = jobs
	ran := make(chan string)
	for _, tick := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
		tw := timewheel.NewTimeWheel(tick, 60, timewheel.WithExecutor(shared))
		tw.Start()
		defer tw.Stop()
		tw.AfterFunc(0, func() { ran <- tick.String() })
		fmt.Println("ran on the wheel of", <-ran)
	}
	fmt.Println(jobs.Close(context.Background())) // the wheels do not close it
	// Output:
	// ran on the wheel of 1ms
	// ran on the wheel of 5ms
	// <nil>
}

func ExampleWithLayout() {
	for _, layout := range []timewheel.Layout{timewheel.Hashed, timewheel.Hierarchical} {
		tw := timewheel.NewTimeWheel(time.Minute, 60, timewheel.WithLayout(layout))
		hand := tw.Hand()
		fmt.Println(hand.Layout, hand.Slots, hand.Tick)
		tw.Stop()
	}
	// Output:
	// hashed 60 1m0s
	// hierarchical 60 1m0s
}

func ExampleWithSlog() {
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug, ReplaceAttr: withoutTime,
	}))
	tw := timewheel.NewTimeWheel(time.Second, 60, timewheel.WithSlog(log.With("wheel", "orders")))
	tw.Start()
	tw.Stop()
	// Output:
	// level=DEBUG msg="timewheel: started" wheel=orders
	// level=DEBUG msg="timewheel: stopped" wheel=orders
}

func ExampleWithPanicHandler() {
	quiet := logrus.New() // a panic is always logged
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
		run.Dispatched.Sub(run.Due) >= 0 && run.Started.Sub(run.Dispatched) >= 0 && run.Ended.Sub(run.Started) >= 0)
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

// Occupancy shows where the tasks of a wheel wait: here, sixty slots of one minute in four sectors.
func ExampleTimeWheel_Occupancy() {
	tw := timewheel.NewTimeWheel(time.Minute, 60)
	defer tw.Stop()

	for key, delay := range map[string]time.Duration{
		"tea": 5 * time.Minute, "cake": 20 * time.Minute, "bread": 25 * time.Minute, "jam": 50 * time.Minute,
	} {
		if err := tw.AddTask(&timewheel.Task{Key: key, Delay: delay, Job: func(*timewheel.Task) {}}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("the hand is at slot", tw.Hand().Slot)
	for i, sector := range tw.Occupancy(4) {
		fmt.Printf("quarter %d: %d slots, %d tasks\n", i+1, sector.Slots, sector.Tasks)
	}
	for _, info := range tw.Upcoming(2) {
		fmt.Println("soon:", info.Key)
	}
	// Output:
	// the hand is at slot 0
	// quarter 1: 15 slots, 1 tasks
	// quarter 2: 15 slots, 2 tasks
	// quarter 3: 15 slots, 0 tasks
	// quarter 4: 15 slots, 1 tasks
	// soon: tea
	// soon: cake
}

// A service that is asked for more work at night gives it more workers.
func ExampleTimeWheel_ResizePool() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60, timewheel.WithPoolSize(1))
	tw.Start()
	defer tw.Stop()

	began, release := make(chan string), make(chan bool)
	job := func(task *timewheel.Task) {
		began <- task.Key
		<-release
	}
	for _, key := range []string{"a", "b"} {
		if err := tw.AddTask(&timewheel.Task{Key: key, Delay: 1, Job: job}); err != nil {
			fmt.Println(err)
		}
	}
	<-began
	fmt.Println(tw.Stats().Running, "of", tw.Stats().Workers)
	if err := tw.ResizePool(2); err != nil {
		fmt.Println(err)
	}
	<-began
	fmt.Println(tw.Stats().Running, "of", tw.Stats().Workers)
	close(release)
	// Output:
	// 1 of 1
	// 2 of 2
}

func ExampleTimeWheel_LongestRuns() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 60)
	tw.Start()
	defer tw.Stop()

	began, release := make(chan bool), make(chan bool)
	err := tw.AddTask(&timewheel.Task{
		Key:   "import",
		Delay: time.Millisecond,
		Job: func(*timewheel.Task) {
			began <- true
			<-release
		},
	})
	if err != nil {
		fmt.Println(err)
	}
	<-began
	for _, run := range tw.LongestRuns(10) {
		fmt.Println(run.Key, "is running")
	}
	close(release)
	// Output: import is running
}

// A wheel and a task as a log line or a debugger shows them.
func ExampleStats_String() {
	tw := timewheel.NewTimeWheel(10*time.Millisecond, 512)
	defer tw.Stop()
	fmt.Println(tw.AddTask(&timewheel.Task{Key: "order-1", Delay: time.Hour, Job: func(*timewheel.Task) {}}))
	fmt.Println(tw.Stats().String())
	if info, ok := tw.Get("order-1"); ok {
		text, _, _ := strings.Cut(info.String(), " due ")
		fmt.Println(text)
	}
	// Output:
	// <nil>
	// 1 tasks pending; 0 runs waiting, 0 running on at most 1024 workers; tasks: 1 added, 0 finished, 0 removed; runs: 0 due, 0 started, 0 missed, 0 withdrawn, 0 panicked
	// "order-1":
}
