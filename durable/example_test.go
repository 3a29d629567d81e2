// SPDX-License-Identifier: MIT

package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A task is added by one process of a program, and runs in the next.
func Example() {
	ctx := context.Background()
	kept := memory.New() // in a program: pebble.Open of package durable/pebble, on disk
	s, err := durable.New(ctx, kept.Engine())
	if err != nil {
		log.Fatal(err)
	}
	recheck := func(context.Context, durable.Run) error { return nil }
	if err := s.Handle("order.recheck", recheck); err != nil {
		log.Fatal(err)
	}
	err = s.AddTask(ctx, durable.Task{
		Key: "order:42", Kind: "order.recheck", Payload: []byte("3 pots of tea"), Delay: 50 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}

	s, err = durable.New(ctx, kept.Engine())
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	err = s.Handle("order.recheck", func(_ context.Context, run durable.Run) error {
		fmt.Printf("%s, attempt %d: %s\n", run.Key, run.Attempt, run.Payload)
		close(done)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	<-done
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order:42, attempt 1: 3 pots of tea
}

// The options of a scheduler. The engine belongs to it, and Shutdown closes the engine.
func ExampleNew() {
	ctx := context.Background()
	own := memory.New().Engine()
	s, err := durable.New(ctx, own,
		durable.WithTick(100*time.Millisecond),
		durable.WithPoolSize(32),
		durable.WithCatchUp(100), // overdue tasks a second, after downtime
		durable.WithLogger(logrus.WithField("store", "orders")),
	)
	if err != nil {
		log.Fatal(errors.Join(err, own.Close()))
	}
	fmt.Println(s.Len(), "tasks")
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: 0 tasks
}

// AddTask adds all of its tasks or none.
func ExampleScheduler_AddTask() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	err = s.Handle("mail", func(context.Context, durable.Run) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	add := func(tasks ...durable.Task) {
		err := s.AddTask(ctx, tasks...)
		var taken *durable.DuplicateKeysError
		switch {
		case err == nil:
			fmt.Println("added", len(tasks))
		case errors.As(err, &taken):
			fmt.Println("taken:", taken.Keys, errors.Is(err, durable.ErrDuplicateTaskKey))
		case errors.Is(err, durable.ErrUnknownKind), errors.Is(err, durable.ErrInvalidTask):
			fmt.Println("a mistake:", err)
		case errors.Is(err, durable.ErrStopped):
			fmt.Println("too late:", err)
		}
	}
	ada := durable.Task{Key: "ada", Kind: "mail", Delay: time.Hour}
	bob := durable.Task{Key: "bob", Kind: "mail", At: time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC)}
	add(ada, bob)
	add(ada, durable.Task{Key: "eve", Kind: "mail", Interval: time.Hour, Times: durable.Forever})
	add(durable.Task{Key: "eve", Kind: "letter", Interval: time.Hour})
	add(durable.Task{Key: "eve", Kind: "mail", Times: 2})
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	add(ada)
	// Output:
	// added 2
	// taken: [ada] true
	// a mistake: durable: unknown kind "letter", of task "eve"
	// a mistake: durable: invalid task: "eve" is to run more than once and has no Interval or Cron
	// too late: durable: stopped: AddTask of "ada"
}

// The errors for oversized tasks name what is too large.
func ExampleScheduler_AddTask_limits() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	err = s.Handle("mail", func(context.Context, durable.Run) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	largest := make([]byte, durable.MaxPayload)
	fmt.Println(s.AddTask(ctx, durable.Task{Key: strings.Repeat("k", durable.MaxKey+1), Kind: "mail"}))
	fmt.Println(s.AddTask(ctx, durable.Task{Key: "k", Kind: strings.Repeat("m", durable.MaxKind+1)}))
	fmt.Println(s.AddTask(ctx, durable.Task{Key: "k", Kind: "mail", Payload: append(largest, 0)}))

	var batch []durable.Task
	for i := range durable.MaxBatch / durable.MaxPayload {
		batch = append(batch, durable.Task{Key: fmt.Sprint(i), Kind: "mail", Payload: largest, Delay: time.Hour})
	}
	fmt.Println(s.AddTask(ctx, batch...)) // no room for the keys
	// Output:
	// durable: invalid task: key of 1025 bytes; 1024 are allowed
	// durable: invalid task: kind of 257 bytes; 256 are allowed
	// durable: invalid task: payload of "k" has 1048577 bytes; 1048576 are allowed
	// durable: invalid task: more than 67108864 bytes of tasks at once
}

// The verbs have the names of those in package timewheel, with a context and an error.
func ExampleScheduler_Get() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	err = s.Handle("bill", func(context.Context, durable.Run) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	bill := durable.Task{Key: "ada", Kind: "bill", Payload: []byte("5 a month"), Interval: 720 * time.Hour, Times: 12}
	if err := s.AddTask(ctx, bill); err != nil {
		log.Fatal(err)
	}
	bill.Payload = []byte("6 a month")
	if err := s.SetTask(ctx, bill); err != nil { // in place of the first
		log.Fatal(err)
	}
	if err := s.Reschedule(ctx, "ada", 24*time.Hour); err != nil {
		log.Fatal(err)
	}

	info, ok, err := s.Get(ctx, "ada")
	if err != nil || !ok {
		log.Fatal(err)
	}
	fmt.Printf("%s, %d times, in a day: %v\n", info.Payload, info.Times, time.Until(info.Next) <= 24*time.Hour)
	left, err := s.GetTaskTimes(ctx, "bob")
	fmt.Println("bob:", left, err)
	fmt.Println("bob:", errors.Is(s.RemoveTask(ctx, "bob"), durable.ErrTaskKeyNotFound))
	for info, err := range s.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Key, "is removed:", s.RemoveTask(ctx, info.Key))
	}
	exist, err := s.Exist(ctx, "ada")
	fmt.Println(exist, err, s.Len())

	stats := s.Stats()
	fmt.Println(stats.Added, "added,", stats.Removed, "removed,", stats.Pending, "pending")
	// Output:
	// 6 a month, 12 times, in a day: true
	// bob: 0 <nil>
	// bob: true
	// ada is removed: <nil>
	// false <nil> 0
	// 2 added, 2 removed, 0 pending
}

// A run may be attempted again after it has done its work, by this process or the next. Its token stays the same, so
// the handler can recognize it.
func ExampleScheduler_Handle() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithTick(time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()

	paid := make(map[durable.Token]bool) // in a real program a table, written together with the payment
	done := make(chan bool)
	var pay durable.Handler = func(_ context.Context, run durable.Run) error {
		if paid[run.Token] {
			fmt.Printf("attempt %d: %s is paid already\n", run.Attempt, run.Key)
			close(done)
			return nil
		}
		paid[run.Token] = true
		fmt.Printf("attempt %d: %s is paid\n", run.Attempt, run.Key)
		return errors.New("the connection broke after that")
	}
	if err := s.Handle("pay", pay, durable.WithRetry(5, time.Millisecond, time.Minute)); err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	if err := s.AddTask(ctx, durable.Task{Key: "ada", Kind: "pay", Delay: time.Millisecond}); err != nil {
		log.Fatal(err)
	}
	<-done
	// Output:
	// attempt 1: ada is paid
	// attempt 2: ada is paid already
}

// Tasks that are due every minute, and a process that restarts after three and a half minutes.
func ExampleWithMissed() {
	ctx := context.Background()
	kept := memory.New()
	before, err := durable.New(ctx, kept.Engine())
	if err != nil {
		log.Fatal(err)
	}
	kinds := map[string]durable.Missed{
		"back up": durable.MissedOnce, // one backup now makes up for all missed ones
		"remind":  durable.MissedSkip, // a reminder at the wrong time is worse than none
		"bill":    durable.MissedAll,  // each one counts
	}
	for kind := range kinds {
		err := before.Handle(kind, func(context.Context, durable.Run) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		err = before.AddTask(ctx, durable.Task{
			Key: kind, Kind: kind, At: time.Now().Add(-210 * time.Second),
			Interval: time.Minute, Times: durable.Forever,
		})
		if err != nil {
			log.Fatal(err)
		}
	}

	s, err := durable.New(ctx, kept.Clone().Engine()) // as after a crash of the first process
	if err != nil {
		log.Fatal(err)
	}
	runs := make(chan string)
	for kind, missed := range kinds {
		err := s.Handle(kind, func(_ context.Context, run durable.Run) error {
			runs <- run.Key
			return nil
		}, durable.WithMissed(missed))
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	count := make(map[string]int)
	for range 1 + 4 {
		count[<-runs]++
	}
	fmt.Println(count)
	for _, s := range []*durable.Scheduler{before, s} {
		if err := s.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output: map[back up:1 bill:4]
}

// Records of a scheduler, read without a scheduler.
func ExampleInfoOf() {
	record := engine.Record{Key: "ada", Due: 100, Data: []byte("no task")}
	switch info, err := durable.InfoOf(record); {
	case err == nil:
		fmt.Println(info.Key, "is a task of the kind", info.Kind)
	case errors.Is(err, durable.ErrVersion):
		fmt.Println("a later version of durable wrote it")
	case errors.Is(err, durable.ErrCorrupt):
		fmt.Println("it is damaged")
	}
	// Output: a later version of durable wrote it
}

// A leased KV belongs to this machine while the machine holds a lease.
type leased struct {
	engine.KV
	lost chan struct{}
}

func (leased) Exclusive()                {}
func (l leased) Failed() <-chan struct{} { return l.lost }
func (leased) Err() error                { return errors.New("another machine has the lease") }

// An engine of one process can fail between two calls. The scheduler then stops running tasks at once.
func ExampleScheduler_Err() {
	ctx := context.Background()
	on := leased{memory.New(), make(chan struct{})}
	var _ engine.FailureReporter = on
	own, err := kv.New(ctx, on)
	if err != nil {
		log.Fatal(err)
	}

	quiet := logrus.New() // the failure is logged in any case
	quiet.SetOutput(io.Discard)
	s, err := durable.New(ctx, own, durable.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Err())
	close(on.lost)
	for !errors.Is(s.RemoveTask(ctx, "ada"), durable.ErrBroken) { // a verb may run before the failure is reported
		time.Sleep(time.Millisecond)
	}
	fmt.Println(s.Err())
	fmt.Println(s.Shutdown(ctx) != nil)
	// Output:
	// <nil>
	// durable: the store has failed: another machine has the lease
	// true
}

// All tasks of a scheduler are moved to another one, with their attempts and tokens. The engine of package durable/pebble
// can be copied as a whole, and the one in memory cannot.
func ExampleScheduler_Restore() {
	ctx := context.Background()
	own := memory.New().Engine()
	from, err := durable.New(ctx, own)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = from.Shutdown(ctx) }()
	if err := from.Handle("mail", func(context.Context, durable.Run) error { return nil }); err != nil {
		log.Fatal(err)
	}
	if err := from.AddTask(ctx, durable.Task{Key: "ada", Kind: "mail", Delay: time.Hour}); err != nil {
		log.Fatal(err)
	}

	to, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = to.Shutdown(ctx) }()
	for task, err := range own.Walk(ctx, engine.Range{Order: engine.ByKey}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("restored:", to.Restore(ctx, task.Record))
	}
	was, _, _ := from.Get(ctx, "ada")
	is, _, _ := to.Get(ctx, "ada")
	fmt.Println("the same token:", was.Token == is.Token)

	var file bytes.Buffer
	fmt.Println("no backup:", errors.Is(from.Backup(ctx, &file), errors.ErrUnsupported))
	// Output:
	// restored: <nil>
	// the same token: true
	// no backup: true
}

// The bank is down, and trying its tasks is pointless. The next process and every other node also leave these tasks
// alone.
func ExampleScheduler_PauseKind() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	if err := s.PauseKind(ctx, "charge", durable.By("ann", "the bank is down")); err != nil {
		log.Fatal(err)
	}
	if err := s.PauseAll(ctx); err != nil { // before a migration, say
		log.Fatal(err)
	}
	var paused durable.Pauses
	if paused, err = s.Paused(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(paused.All, paused.Kinds, paused.Has("mail"), paused.By["charge"].Why)
	if err := s.ResumeAll(ctx); err != nil {
		log.Fatal(err)
	}
	if paused, err = s.Paused(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(paused.All, paused.Kinds, paused.Has("mail"))
	if err := s.ResumeKind(ctx, "charge"); err != nil { // tasks that fell due during the pause run as after downtime
		log.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true [charge] true the bank is down
	// false [charge] false
}

// A task is paused while a service that it needs is down. Its kind limits how long an attempt may take, and how old a
// missed run may be.
func ExampleScheduler_Pause() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	report := func(context.Context, durable.Run) error { return nil }
	err = s.Handle("report", report, durable.WithTimeout(time.Minute), durable.WithMissedAge(12*time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	task := durable.Task{Key: "report:daily", Kind: "report", Cron: "0 9 * * *"}
	if err := s.AddTask(ctx, task); err != nil {
		log.Fatal(err)
	}
	reports := durable.Query{Kind: "report"}
	n, err := s.Bulk(ctx, reports, durable.DoPause) // all of them
	fmt.Println("paused:", n, err)
	n, err = s.Bulk(ctx, reports, durable.DoResume)
	fmt.Println("resumed:", n, err)
	if err := s.Pause(ctx, task.Key); err != nil { // this one alone
		log.Fatal(err)
	}
	paused, err := s.Find(ctx, durable.Query{State: durable.Paused})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range paused.Tasks {
		fmt.Println(t.Key, "is", t.State)
		if err := s.Resume(ctx, t.Key); err != nil {
			log.Fatal(err)
		}
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// paused: 1 <nil>
	// resumed: 1 <nil>
	// report:daily is paused
}
