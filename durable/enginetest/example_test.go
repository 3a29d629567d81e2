// SPDX-License-Identifier: MIT

package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
)

// The body of the test for an engine.
func ExampleTest() {
	var t *testing.T // of TestEngine(t *testing.T)

	enginetest.Test(t, func(t *testing.T) enginetest.Subject {
		kv := memory.New()
		engine := enginetest.NewLocks(kv.Shared()) // or an unused schema in a database
		return enginetest.Subject{
			Engine:  engine,
			Begin:   func(*testing.T) enginetest.Tx { return engine.Begin() },
			Restart: func(*testing.T) { kv.Restart() },
		}
	})
}

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
func ExampleLink() {
	ctx := context.Background()
	e := memory.New().Shared()
	link := enginetest.NewLink(e) // given to the node instead of e

	link.SetDown(true)
	_, err := link.Commit(ctx, 0, []engine.Batch{{add("ada", 1)}})
	fmt.Println(errors.Is(err, enginetest.ErrFault), count(ctx, e))

	link.SetDown(false)
	link.Next("Commit", enginetest.Fault{Delay: time.Millisecond, Lose: true})
	_, err = link.Commit(ctx, 0, []engine.Batch{{add("ada", 1)}})
	fmt.Println(errors.Is(err, enginetest.ErrFault), count(ctx, e))

	link.SetFaults(func(method string) enginetest.Fault { return enginetest.Fault{Fail: method == "Count"} })
	_, err = link.Count(ctx)
	fmt.Println(err)
	// Output:
	// true 0
	// true 1
	// enginetest: fault: Count failed
}

// A transaction of the program locks one task, adds another, and is committed late.
func ExampleLocks() {
	ctx := context.Background()
	e := enginetest.NewLocks(memory.New().Shared())
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
	e.RollBack()  // all transactions, as a restart does; there is none
	fmt.Println(count(ctx, e))
	// Output:
	// true false 1
	// 2
}
