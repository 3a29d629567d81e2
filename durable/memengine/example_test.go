// SPDX-License-Identifier: MIT

package memengine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/memengine"
)

// add returns a write that adds a task due at the given time.
func add(key string, due int64) engine.Write {
	return engine.Write{
		Record: engine.Record{Key: key, Due: due, Data: []byte("data")},
		Kind:   "greet",
		If:     engine.IfAbsent,
	}
}

func count(ctx context.Context, e engine.Engine) int {
	kinds, err := engine.Count(ctx, e)
	if err != nil {
		log.Fatal(err)
	}
	n := 0
	for _, k := range kinds {
		n += k.Tasks
	}
	return n
}

// A node that is cut off from the engine, and calls that take effect although their answers are lost.
func Example() {
	ctx := context.Background()
	e := memengine.New()
	link := memengine.NewLink(e) // given to the node instead of e

	link.SetDown(true)
	_, err := link.Commit(ctx, 0, []engine.Batch{{add("ada", 1)}})
	fmt.Println(errors.Is(err, memengine.ErrFault), count(ctx, e))

	link.SetDown(false)
	link.Next("Commit", memengine.Fault{Delay: time.Millisecond, Lose: true})
	_, err = link.Commit(ctx, 0, []engine.Batch{{add("ada", 1)}})
	fmt.Println(errors.Is(err, memengine.ErrFault), count(ctx, e))

	link.SetFaults(func(method string) memengine.Fault { return memengine.Fault{Fail: method == "Count"} })
	_, err = link.Count(ctx)
	fmt.Println(err)
	// Output:
	// true 0
	// true 1
	// memengine: fault: Count failed
}

// A member that lost its lease, a restart of the engine, and a change of its clock.
func Example_leases() {
	ctx := context.Background()
	e := memengine.New()
	for _, name := range []string{"node 1", "node 2", "node 3"} {
		if _, _, err := e.Join(ctx, name, time.Hour); err != nil {
			log.Fatal(err)
		}
	}
	reap := func() {
		names, err := e.Reap(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q\n", names)
	}
	e.Expire("node 1")
	reap()
	e.Step(2 * time.Hour)
	e.Restart() // no member is reaped until its lease has passed
	reap()
	// Output:
	// ["node 1"]
	// []
}

// A transaction of the program locks one task, adds another, and is committed late.
func Example_transaction() {
	ctx := context.Background()
	e := memengine.New()
	tx := e.Begin()
	if err := tx.Lock(ctx, "ada"); err != nil {
		log.Fatal(err)
	}
	if unmet, err := tx.Write(ctx, add("bob", 1)); err != nil || len(unmet) > 0 {
		log.Fatal(unmet, err)
	}
	results, err := e.Commit(ctx, 0, []engine.Batch{{add("ada", 1)}, {add("cleo", 1)}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Busy, results[1].Busy, count(ctx, e))
	if err := tx.Commit(); err != nil { // or tx.Rollback()
		log.Fatal(err)
	}
	tx.Rollback() // does nothing then
	fmt.Println(count(ctx, e))
	// Output:
	// true false 1
	// 2
}
