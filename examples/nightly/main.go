// SPDX-License-Identifier: MIT

// Nightly runs reports at half past two in Berlin, every night. It is for programs that use cron today. It shows a
// calendar around both changes of the clock, and the outcome of a night in which every attempt fails. The program
// declares its schedule: a restart changes nothing, and a deployment changes only the tasks that differ.
//
//	go run ./examples/nightly                           a night a second, in a temporary directory
//	go run ./examples/nightly -dir tasks                the same in a directory, so the tasks survive the program
//	go run ./examples/nightly -dir tasks                started again: the schedule is left alone
//	go run ./examples/nightly -dir tasks -release 2     the next release changes it
//	go run ./examples/nightly -dir tasks -release 1     an old process that starts late does not
//	go run ./examples/nightly -db URL                   in PostgreSQL, where several machines can share the nights
//	go run ./examples/nightly -dir nights -night 0      the real nights, until Ctrl-C
//
// All but the last end after three nights, a few seconds. The second night is bad. The test goes through bad nights and
// both changes of the clock with their real dates, ten nights in about three seconds:
//
//	go test -v -run Nights ./examples/nightly
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	_ "time/tzdata" // so that every machine knows Berlin

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

const (
	halfPastTwo = "CRON_TZ=Europe/Berlin 30 2 * * *"
	threeSharp  = "CRON_TZ=Europe/Berlin 0 3 * * *"
	mondays     = "CRON_TZ=Europe/Berlin 0 3 * * MON"

	prefix = "nightly/" // of the keys of all declared tasks, and of no other task
	sales  = prefix + "sales"
	layout = "Mon 2 Jan 2006 15:04:05 MST"
)

func main() {
	db := flag.String("db", "", "the `URL` of a PostgreSQL database, in place of a directory")
	dir := flag.String("dir", "", "the `directory` of the tasks; by default a temporary one")
	release := flag.Int64("release", 1, "the `number` of the release, 1 or 2")
	night := flag.Duration("night", time.Second, "the `time` from one night to the next; 0 means real nights")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Stdout, *db, *dir, *release, *night); err != nil {
		log.Fatal(err)
	}
}

// run ends after three nights, or when ctx is done.
func run(ctx context.Context, w io.Writer, db, dir string, release int64, night time.Duration) (err error) {
	e, closes, err := open(ctx, db, dir)
	if err != nil {
		return err
	}
	defer closes()
	p, err := newProgram(ctx, e, w, badSecondNight())
	if err != nil {
		return err
	}
	defer func() {
		// Runs in progress have ten seconds to end, also after an interrupt, when ctx is done.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, p.tasks.Shutdown(last))
	}()
	if err := errors.Join(p.deploy(ctx, release, night), p.printTasks(ctx), p.printCalendar()); err != nil {
		return err
	}
	if err := p.tasks.Start(); err != nil { // after deploy, so that no removed task runs
		return err
	}
	for n := 0; n < 3 || night == 0; n++ {
		select {
		case <-p.night:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// open returns the engine, and a function to call after Shutdown.
func open(ctx context.Context, db, dir string) (engine.Engine, func(), error) {
	if db != "" {
		e, err := postgres.Open(ctx, db, postgres.WithSchema("nightly"))
		return e, e.Close, err
	}
	if dir != "" {
		e, err := pebble.Open(ctx, dir)
		return e, func() {}, err
	}
	dir, err := os.MkdirTemp("", "nightly")
	if err != nil {
		return nil, nil, err
	}
	e, err := pebble.Open(ctx, dir)
	return e, func() { _ = os.RemoveAll(dir) }, err
}

type program struct {
	tasks  *durable.Scheduler
	out    *log.Logger
	berlin *time.Location
	night  chan struct{} // receives a value when a run of the sales report is complete or given up
}

func newProgram(ctx context.Context, e engine.Engine, w io.Writer, bad func(key string, night time.Time) bool) (*program, error) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return nil, err
	}
	p := &program{out: log.New(w, "", 0), berlin: berlin, night: make(chan struct{}, 1)}
	failures := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	p.tasks, err = durable.New(ctx, e, durable.WithObserver(p.observe),
		durable.WithSlog(failures)) // observe prints what the log would say about runs
	if err != nil {
		return nil, err
	}
	handler := func(_ context.Context, run durable.Run) error {
		// The night comes from the run and not from the clock: it is the same for every attempt, however late.
		night := run.Due.In(berlin)
		if bad(run.Key, night) {
			return errors.New("the books are closed") // the run is retried
		}
		run.Complete("done for " + night.Format("2 January"))
		return nil
	}
	// Three attempts. In your program, wait minutes between them.
	retry := durable.WithRetry(3, 100*time.Millisecond, time.Second)
	err = errors.Join(
		// After its last attempt a report is given up, and the next night has its own.
		p.tasks.Handle("report", handler, retry),
		// A payout is parked instead: the next one must not start before an operator has looked at this one. `timewheel
		// unpark` or Reschedule makes it run again.
		p.tasks.Handle("payout", handler, retry, durable.WithParkRepeating()))
	if err != nil {
		return nil, errors.Join(err, p.tasks.Shutdown(ctx))
	}
	return p, nil
}

// deploy declares the tasks of a release. Your program has one list, and the number of its build as the version.
func (p *program) deploy(ctx context.Context, release int64, night time.Duration) error {
	tasks := []durable.Task{
		{Key: sales, Kind: "report", Cron: halfPastTwo},
		{Key: prefix + "stock", Kind: "report", Cron: halfPastTwo},
		{Key: prefix + "payout", Kind: "payout", Cron: threeSharp},
	}
	if release > 1 {
		tasks[1].Key = prefix + "returns" // in place of stock
		tasks[2].Cron = mondays
	}
	for i := range tasks {
		if t := &tasks[i]; night > 0 { // the demonstration does not wait for its nights
			t.Interval = map[string]time.Duration{halfPastTwo: night, threeSharp: night, mondays: 7 * night}[t.Cron]
			t.Cron = ""
		}
	}
	r, err := p.tasks.Schedule(ctx, durable.TaskSet{Prefix: prefix, Version: release, Tasks: tasks})
	if err != nil {
		return err
	}
	p.out.Printf("release %d: %d added, %d changed, %d removed, %d left alone", release, r.Added, r.Changed, r.Removed,
		r.Unchanged)
	if r.Newer > 0 {
		p.out.Printf("release %d is newer", r.Newer)
	}
	return nil
}

// printTasks prints the tasks that are stored now.
func (p *program) printTasks(ctx context.Context) error {
	for info, err := range p.tasks.AllPrefix(ctx, prefix, "") {
		if err != nil {
			return err
		}
		state := "due " + info.Next.In(p.berlin).Format(layout)
		if info.State == durable.Parked {
			state = "parked: " + info.Failure
		}
		p.out.Printf("  %s is %s", info.Key, state)
	}
	return nil
}

// printCalendar prints when the reports are due. In the night in which 2:30 does not exist, they are due at 3:00. In the
// night in which it exists twice, they are due once, the first time.
func (p *program) printCalendar() error {
	forward := time.Date(2027, time.March, 26, 12, 0, 0, 0, p.berlin)
	back := time.Date(2027, time.October, 29, 12, 0, 0, 0, p.berlin)
	p.out.Print("due times of the next nights, and around both changes of the clock:")
	for _, after := range []time.Time{time.Now(), forward, back} {
		times, err := durable.Next(halfPastTwo, after, 3)
		if err != nil {
			return err
		}
		for _, t := range times {
			p.out.Print("  ", t.In(p.berlin).Format(layout))
		}
	}
	p.out.Print("the nights:")
	return nil
}

// observe prints how an attempt ended. The scheduler calls it after each.
func (p *program) observe(a durable.Attempt) {
	outcome := a.Note + a.Failure // one of them is empty
	if a.Parked {
		outcome += ", parked"
	}
	if a.GivenUp {
		outcome += ", given up"
	}
	p.out.Printf("  %s %s, attempt %d: %s", a.Started.In(p.berlin).Format(layout), a.Key, a.Attempt, outcome)
	if a.Key == sales && (a.Failure == "" || a.GivenUp) {
		select {
		case p.night <- struct{}{}:
		default: // the program is ending
		}
	}
}

// badSecondNight returns a function that reports whether a night is the second one in which a task runs.
func badSecondNight() func(key string, night time.Time) bool {
	var mu sync.Mutex
	last, nights := make(map[string]time.Time), make(map[string]int)
	return func(key string, night time.Time) bool {
		mu.Lock()
		defer mu.Unlock()
		if !last[key].Equal(night) {
			last[key], nights[key] = night, nights[key]+1
		}
		return nights[key] == 2
	}
}
