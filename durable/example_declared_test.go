// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A Report is the payload of a task.
type Report struct{ To string }

// The program declares its repeating tasks when it starts. The next version of the program drops one and adds another.
// A process of the old version that starts late changes nothing.
func ExampleScheduler_Schedule() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	reports, err := durable.KindOf[Report](s, "report", nil) // or with a handler
	if err := errors.Join(err, s.Declare("sweep")); err != nil {
		log.Fatal(err)
	}
	report := func(key, to string, when durable.TaskOption) durable.Task {
		task, err := reports.Task("cron/"+key, Report{To: to}, when)
		if err != nil {
			log.Fatal(err)
		}
		return task
	}
	sales := report("sales", "ada@example.com", durable.ByCalendar("CRON_TZ=Europe/Berlin 0 7 * * MON"))
	old := durable.TaskSet{Prefix: "cron/", Version: 41, Tasks: []durable.Task{
		sales, report("stock", "bob@example.com", durable.Every(time.Hour)),
	}}
	next := durable.TaskSet{Prefix: "cron/", Version: 42, Tasks: []durable.Task{
		sales, report("returns", "bob@example.com", durable.ByCalendar("@daily")),
		{Key: "cron/sweep", Kind: "sweep", Interval: time.Hour}, // without a payload
	}}
	for _, set := range []durable.TaskSet{old, next, old} {
		r, err := s.Schedule(ctx, set)
		if err != nil {
			log.Fatal(err)
		}
		if r.Newer > 0 {
			fmt.Println("version", r.Newer, "is newer")
			continue
		}
		fmt.Printf("added %d, removed %d, left %d alone\n", r.Added, r.Removed, r.Unchanged)
	}
	var sets []durable.SetInfo
	if sets, err = s.Sets(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("of", sets[0].Prefix, "version", sets[0].Version, "is applied")
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// added 2, removed 0, left 0 alone
	// added 2, removed 1, left 1 alone
	// version 42 is newer
	// of cron/ version 42 is applied
}

// A node is drained before its machine is restarted: it finishes its runs, and the other nodes take over its tasks.
func ExampleScheduler_Drain() {
	ctx := context.Background()
	engine := memory.New().Shared() // or an engine of package durable/postgres
	host := "web-1"
	node, err := durable.New(ctx, engine, durable.WithNodeName(host[:min(len(host), durable.MaxNodeName)]))
	if err != nil {
		log.Fatal(err)
	}
	operator, err := durable.Connect(ctx, engine)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(node.Start(), operator.Drain(ctx, "web-1")); err != nil {
		log.Fatal(err)
	}
	for drained := false; !drained; time.Sleep(10 * time.Millisecond) {
		nodes, err := operator.Nodes(ctx)
		if err != nil {
			log.Fatal(err)
		}
		drained = nodes[0].Drained && nodes[0].Running == 0
	}
	fmt.Println("web-1 can be stopped")
	fmt.Println(operator.Undrain(ctx, "web-1"))
	fmt.Println(errors.Is(operator.Drain(ctx, "web-2"), durable.ErrUnknownNode))
	for _, s := range []*durable.Scheduler{operator, node} {
		if err := s.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// web-1 can be stopped
	// <nil>
	// true
}

// A middleware that measures one kind counts a postponed run as neither a success nor a failure.
func ExampleIsSnooze() {
	count := make(map[string]int)
	counts := func(next durable.Handler) durable.Handler {
		return func(ctx context.Context, run durable.Run) error {
			err := next(ctx, run)
			switch {
			case durable.IsSnooze(err):
				count["postponed"]++
			case err != nil:
				count["failed"]++
			default:
				count["done"]++
			}
			return err
		}
	}
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithPoolSize(1))
	if err != nil {
		log.Fatal(err)
	}
	calls, err := durable.KindOf(s, "call", func(_ context.Context, run durable.Run, number string) error {
		if time.Since(run.Due) < 20*time.Millisecond {
			return durable.Snooze(20 * time.Millisecond)
		}
		return nil
	}, durable.WithKindMiddleware(counts))
	err = errors.Join(err, s.Start(), calls.Add(ctx, "ada", "555-0100", durable.At(time.Now())))
	if err != nil {
		log.Fatal(err)
	}
	for s.Len() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(calls.Name(), count)
	// Output: call map[done:1 postponed:1]
}

// The options of a task set its due time, its number of runs, its group and its trace context.
func ExampleTaskOption() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	reports, err := durable.KindOf[string](s, "report", nil)
	if err != nil {
		log.Fatal(err)
	}
	urgent := func(t *durable.Task) { t.MaxDelay = time.Minute } // any other field
	err = errors.Join(
		reports.Add(ctx, "stock", "all", durable.Every(time.Hour), durable.In(time.Minute), durable.Times(24)),
		reports.Add(ctx, "sales", "all", durable.ByCalendar("CRON_TZ=Europe/Berlin 0 7 * * MON"), durable.Jittered(10*time.Minute),
			durable.Until(time.Date(2199, 12, 31, 23, 0, 0, 0, time.UTC))),
		reports.Add(ctx, "code", "555-0100", durable.Expires(5*time.Minute), durable.InGroup("acme"), durable.Traced("00-4bf9")),
		reports.Set(ctx, "index", "doc:7", durable.In(time.Second), urgent),
	)
	if err != nil {
		log.Fatal(err)
	}
	stock, _, err := s.Get(ctx, "stock")
	fmt.Println(stock.Interval, stock.Times, err)
	sales, _, err := s.Get(ctx, "sales")
	fmt.Println(sales.Times == durable.Forever, sales.Until.UTC(), err)
	code, _, err := s.Get(ctx, "code")
	fmt.Println(code.Expires, code.Group, code.Trace, err)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1h0m0s 24 <nil>
	// true 2199-12-31 23:00:00 +0000 UTC <nil>
	// 5m0s acme 00-4bf9 <nil>
}

// The payload of a task is read back with its type.
func ExampleKind_Payload() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine())
	if err != nil {
		log.Fatal(err)
	}
	reports, err := durable.KindOf[Report](s, "report", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := reports.Add(ctx, "stock", Report{To: "ada@example.com"}, durable.In(time.Hour)); err != nil {
		log.Fatal(err)
	}
	info, _, err := s.Get(ctx, "stock")
	if err != nil {
		log.Fatal(err)
	}
	report, err := reports.Payload(info)
	fmt.Println(report.To, err)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: ada@example.com <nil>
}
