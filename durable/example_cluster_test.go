// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// Two nodes share an engine. The task runs on a node that is alive when it is due.
func ExampleNew_nodes() {
	ctx := context.Background()
	engine := memory.New().Shared() // in a service: postgres.Open(ctx, url)
	ran := make(chan string)
	var nodes []*durable.Scheduler
	for _, name := range []string{"one", "two"} {
		node, err := durable.New(ctx, engine, durable.WithNodeName(name), durable.WithLease(time.Second))
		if err != nil {
			log.Fatal(err)
		}
		err = node.Handle("order.recheck", func(_ context.Context, run durable.Run) error {
			ran <- fmt.Sprintf("%s on node %s", run.Key, name)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		if err := node.Start(); err != nil {
			log.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	task := durable.Task{Key: "order:42", Kind: "order.recheck", Delay: 10 * time.Millisecond}
	if err := nodes[0].AddTask(ctx, task); err != nil {
		log.Fatal(err)
	}
	if err := nodes[0].Shutdown(ctx); err != nil { // the other node takes over its tasks
		log.Fatal(err)
	}
	fmt.Println(<-ran)
	if err := nodes[1].Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: order:42 on node two
}

// A handler completes its run in a transaction of the program, together with changes to the program's own rows: both
// happen, or neither. Package durable/postgres has CompleteTx for that.
func ExampleRun_Completion() {
	ctx := context.Background()
	engine := enginetest.NewLocks(memory.New().Shared()) // an engine with transactions
	completed := make(chan error)
	node, err := durable.New(ctx, engine)
	if err != nil {
		log.Fatal(err)
	}
	err = node.Handle("order.recheck", func(ctx context.Context, run durable.Run) (err error) {
		defer func() { completed <- err }()
		tx := engine.Begin()
		defer tx.Rollback()
		unmet, err := tx.Write(ctx, run.Completion(time.Now().UnixNano()))
		if err != nil {
			return err
		}
		if len(unmet) > 0 { // the lease expired, and the task may be running elsewhere
			return durable.ErrFenced
		}
		return tx.Commit()
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := node.Start(); err != nil {
		log.Fatal(err)
	}
	err = node.AddTask(ctx, durable.Task{Key: "order:42", Kind: "order.recheck", Delay: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-completed)
	fmt.Println(node.Exist(ctx, "order:42"))
	if err := node.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// <nil>
	// false <nil>
}

// A program that only inspects and changes tasks, such as the command timewheel, is not a node.
func ExampleConnect() {
	ctx := context.Background()
	engine := memory.New().Shared() // or an engine of package durable/postgres
	node, err := durable.New(ctx, engine, durable.WithNodeName("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	err = node.Handle("mail", func(context.Context, durable.Run) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	err = node.AddTask(ctx, durable.Task{Key: "mail:1", Kind: "mail", Delay: time.Hour})
	if err != nil {
		log.Fatal(err)
	}

	operator, err := durable.Connect(ctx, engine)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(operator.RemoveTask(ctx, "mail:1"))
	nodes, err := operator.Nodes(ctx)
	fmt.Println(len(nodes), nodes[0].Name, err)

	for _, s := range []*durable.Scheduler{operator, node} {
		if err := s.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// <nil>
	// 1 web-1 <nil>
}

// refusing is an engine that may stop taking commits.
type refusing struct {
	engine.Engine
	full bool
}

func (r *refusing) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if r.full {
		return nil, fmt.Errorf("the disk is full: %w", engine.ErrNotDone)
	}
	return r.Engine.Commit(ctx, by, batches)
}

// A failing engine makes verbs return errors. It does not stop the scheduler.
func ExampleNew_away() {
	ctx := context.Background()
	e := &refusing{Engine: memory.New().Shared(), full: true}
	node, err := durable.New(ctx, e)
	if err != nil {
		log.Fatal(err)
	}
	err = node.Handle("greet", func(context.Context, durable.Run) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	err = node.AddTask(ctx, durable.Task{Key: "k", Kind: "greet", Delay: time.Hour})
	fmt.Println(errors.Is(err, durable.ErrUnavailable), errors.Is(err, engine.ErrNotDone), node.Err())
	if err := node.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: true true <nil>
}

// How long the calls of a node to its engine take, and possible causes of a slow engine. Package metrics exports both.
func ExampleNodeStats() {
	show := func(s *durable.Scheduler, e engine.Engine) {
		if n := s.Stats().Node; n != nil {
			fmt.Printf("%d calls, %d failed\n", n.Calls.Count, n.CallsFailed)
			printSlow(n.Calls)
		}
		if h, ok := e.(engine.HealthReporter); ok {
			var is engine.Health
			is, err := h.Health(context.Background())
			fmt.Println(is.OldestTransaction, is.DeadRows, is.Size, err)
		}
	}
	engine := memory.New().Shared()
	s, err := durable.New(context.Background(), engine)
	if err != nil {
		log.Fatal(err)
	}
	show(s, engine)
	if err := s.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: 1 calls, 0 failed
}

// printSlow prints how many calls took longer than about 10 ms.
func printSlow(t durable.Timing) {
	quick := uint64(0)
	for i := range durable.TimingBuckets {
		if durable.TimingBound(i) <= 10*time.Millisecond {
			quick += t.Buckets[i]
		}
	}
	if n := t.Count - quick; n > 0 {
		fmt.Printf("%d were slow\n", n)
	}
}
