// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// How to find failed tasks and their causes, and how to act on all of them.
func Example_operate() {
	ctx := context.Background()
	parked := make(chan durable.Attempt, 3)
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()), durable.WithObserver(func(a durable.Attempt) {
		if a.Parked {
			parked <- a
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	err = errors.Join(
		s.Handle("mail", func(_ context.Context, run durable.Run) error {
			return errors.New("dial 10.0.0." + run.Key[len("mail:"):] + ": connection refused")
		}, durable.WithRetry(1, time.Second, time.Minute)),
		s.AddTask(ctx, durable.Task{Key: "mail:1", Kind: "mail", Delay: time.Millisecond},
			durable.Task{Key: "mail:2", Kind: "mail", Delay: time.Millisecond},
			durable.Task{Key: "mail:3", Kind: "mail", Delay: time.Hour}),
		s.Start())
	if err != nil {
		log.Fatal(err)
	}
	<-parked
	<-parked
	for left := 2; left > 0; { // until then they are running: they are stored as parked a moment later
		found, err := s.Find(ctx, durable.Query{State: durable.Parked})
		if err != nil {
			log.Fatal(err)
		}
		left = 2 - len(found.Tasks)
	}
	failures, err := s.Failures(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range failures.Groups {
		fmt.Println(g.Kind, g.Text, g.Tasks)
	}
	q := durable.Query{State: durable.Parked, Prefix: "mail:", Failure: failures.Groups[0].Text}
	found, err := s.Find(ctx, q)
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range found.Tasks {
		fmt.Println(i.Key, i.State, i.Failed[0].Text)
	}
	n, err := s.Bulk(ctx, q, durable.DoNothing) // how many it would be
	fmt.Println(n, err)
	for more := true; more; more = q.After != "" { // in steps, as a page does; Bulk removes all of them in one call
		if n, q.After, err = s.BulkStep(ctx, q, durable.DoRemove); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(n)
	n, err = s.Bulk(ctx, q, durable.DoRunNow) // none is left
	fmt.Println(n, err)
	for _, k := range s.Kinds() {
		fmt.Println(k.Kind, k.Started, k.Failed, k.ParkedTotal)
	}
	behind, err := s.CatchUp(ctx)
	fmt.Println(behind.Left, err)
	for _, k := range behind.Kinds { // none is overdue
		fmt.Println(k.Kind, k.Left, time.Since(k.Oldest), time.Until(k.Done), time.Since(behind.At))
	}
	// Output:
	// mail dial #.#.#.#: connection refused 2
	// mail:1 parked dial 10.0.0.1: connection refused
	// mail:2 parked dial 10.0.0.2: connection refused
	// 2 <nil>
	// 2
	// 0 <nil>
	// mail 2 2 2
	// 0 <nil>
}

// Which shop floods the mail queue, and how long the others wait. Its mails are postponed until the night.
func ExampleScheduler_Groups() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	err = s.Handle("mail", func(context.Context, durable.Run) error { return nil }, durable.WithConcurrency(2))
	for i, shop := range []string{"acme", "acme", "acme", "zeta", "zeta", "acme"} {
		err = errors.Join(err, s.AddTask(ctx, durable.Task{Key: fmt.Sprint("mail:", i), Kind: "mail", Group: shop}))
	}
	if err != nil {
		log.Fatal(err)
	}
	groups, err := s.Groups(ctx, durable.Query{Kind: "mail", State: durable.Waiting})
	if err != nil {
		log.Fatal(err)
	}
	var first durable.GroupCounts = groups.Largest[0]
	others := groups.Others // groups that are not among the ten largest: none
	for _, g := range groups.Largest[1:] {
		others.Due += g.Due
	}
	fmt.Println(first.Group, "has", first.Due, "due mails, and the others have", others.Due)
	fmt.Println("waits since a moment ago:", time.Since(first.Oldest) < time.Minute)
	n, err := s.BulkReschedule(ctx, durable.Query{Kind: first.Kind, Group: first.Group}, func(int) time.Duration { return 12 * time.Hour })
	fmt.Println(n, err)
	// Output:
	// acme has 4 due mails, and the others have 2
	// waits since a moment ago: true
	// 4 <nil>
}

// How many tasks of each kind there are. A scheduler counts the existing tasks in the background after its start.
func ExampleScheduler_Counts() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	err = errors.Join(
		s.Handle("mail", func(context.Context, durable.Run) error { return nil }),
		s.AddTask(ctx, durable.Task{Key: "mail:1", Kind: "mail", Delay: time.Hour},
			durable.Task{Key: "mail:2", Kind: "mail", Delay: time.Hour}),
		s.Pause(ctx, "mail:2"))
	if err != nil {
		log.Fatal(err)
	}
	var census durable.Counts
	for ; !census.Whole; time.Sleep(time.Millisecond) {
		if census, err = s.Counts(ctx); err != nil {
			log.Fatal(err)
		}
	}
	for _, k := range census.Kinds {
		var mail durable.KindCounts = k
		fmt.Println(mail.Kind, mail.Tasks, mail.Paused, mail.Failing, mail.Parked)
	}
	// Output: mail 2 1 0 0
}

// The nodes of a cluster: the tasks that each holds, how long due tasks have waited for its workers, and the kind that
// most of its workers run.
func ExampleScheduler_Nodes() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Shared(), durable.WithNodeName("shop-1"), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	nodes, err := s.Nodes(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range nodes {
		var says durable.NodeReport = n.NodeReport
		var most durable.KindRuns = says.Busiest
		fmt.Println(n.Name, n.Self, n.Lease, n.Held, says.Running, says.OldestWait, most.Kind, most.Running, most.Longest)
		if len(says.Kinds) > 0 && !says.HasAllKinds() { // it has no handlers
			fmt.Println("and further kinds")
		}
		for _, t := range says.TakenOver { // none is here
			var lost durable.Takeover = t
			fmt.Println(lost.Node, "was lost", time.Since(lost.At), "ago")
		}
	}
	// Output: shop-1 true 5s 0 0 0s  0 0s
}

func ExampleState_String() {
	for _, s := range []durable.State{
		durable.AnyState, durable.Scheduled, durable.Retrying, durable.Waiting, durable.Running, durable.Parked,
	} {
		fmt.Println(s)
	}
	// Output:
	// any
	// scheduled
	// retrying
	// waiting
	// running
	// parked
}

// The name of a state comes from a flag or a form.
func ExampleParseState() {
	state, err := durable.ParseState("parked")
	fmt.Println(state, err)
	_, err = durable.ParseState("lost")
	fmt.Println(err)
	fmt.Println(durable.States())
	// Output:
	// parked <nil>
	// durable: state "lost" must be one of scheduled, retrying, waiting, running, parked, paused
	// [scheduled retrying waiting running parked paused]
}

// How a log line or a debugger shows a scheduler and a task.
func ExampleStats_String() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(s.Handle("mail", func(context.Context, durable.Run) error { return nil }),
		s.AddTask(ctx, durable.Task{Key: "ada", Kind: "mail", At: time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC)}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Stats().String())
	info, _, err := s.Get(ctx, "ada")
	text, _, _ := strings.Cut(info.String(), ", token")
	fmt.Println(text, err)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 tasks pending, 0 of them parked; 0 runs waiting, 0 running on at most 1024 workers; tasks: 1 added, 0 removed, 0 times parked; runs: 0 started, 0 retried, 0 succeeded, 0 failed; 1 changes in 1 commits
	// "ada" of kind "mail": scheduled, due 2100-01-01T09:00:00Z, runs left: 1, 0 bytes of payload version 1 <nil>
}

// A service hangs, and so do all runs that call it. They are cancelled, and their kind is paused until the service is
// back.
func ExampleScheduler_Bulk() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	begun := make(chan bool, 3)
	hang := func(ctx context.Context, _ durable.Run) error {
		begun <- true
		<-ctx.Done()
		return ctx.Err()
	}
	err = errors.Join(s.Handle("charge", hang), s.Start(), s.AddTask(ctx,
		durable.Task{Key: "charge:1", Kind: "charge"}, durable.Task{Key: "charge:2", Kind: "charge"}))
	if err != nil {
		log.Fatal(err)
	}
	<-begun
	<-begun
	if err := s.PauseKind(ctx, "charge"); err != nil { // otherwise the runs are tried again
		log.Fatal(err)
	}
	n, err := s.Bulk(ctx, durable.Query{Kind: "charge"}, durable.DoCancel)
	fmt.Println("cancelled:", n, err)
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// cancelled: 2 <nil>
}

// Tasks that have accumulated while a service was away are spread over an hour, so that they do not overload the
// service.
func ExampleScheduler_BulkReschedule() {
	ctx := context.Background()
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(s.Handle("mail", func(context.Context, durable.Run) error { return nil }), s.AddTask(ctx,
		durable.Task{Key: "mail:1", Kind: "mail"}, durable.Task{Key: "mail:2", Kind: "mail"}))
	if err != nil {
		log.Fatal(err)
	}
	mails := durable.Query{Kind: "mail"}
	tasks, err := s.Bulk(ctx, mails, durable.DoNothing)
	if err != nil {
		log.Fatal(err)
	}
	n, err := s.BulkReschedule(ctx, mails, func(i int) time.Duration {
		return time.Duration(i) * time.Hour / time.Duration(tasks)
	})
	fmt.Println("moved:", n, err)
	for i, err := range s.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(i.Key, "in", time.Until(i.Next).Round(10*time.Minute))
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// moved: 2 <nil>
	// mail:1 in 0s
	// mail:2 in 30m0s
}

// A logger of package log/slog instead of logrus.
func ExampleWithSlog() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	s, err := durable.New(context.Background(), memory.New().Engine(), durable.WithSlog(log))
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Shutdown(context.Background()) }()
	done := make(chan bool)
	err = s.Handle("greet", func(_ context.Context, run durable.Run) error {
		defer close(done)
		run.Complete("said hello")
		return nil
	})
	if err == nil {
		err = s.Start()
	}
	if err == nil {
		err = s.AddTask(context.Background(), durable.Task{Key: "k", Kind: "greet"})
	}
	if err != nil {
		panic(err)
	}
	<-done
	// Output:
	// level=INFO msg="durable: a run is done" note="said hello" task=k
}
