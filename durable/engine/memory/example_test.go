// SPDX-License-Identifier: MIT

package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A write names the version on which it relies.
func ExampleKV() {
	ctx, kv := context.Background(), memory.New()
	commit := func(value string, version int64) {
		tx := engine.Tx{
			If:  []engine.Check{{Key: "counter", Version: version}},
			Put: []engine.Entry{{Key: "counter", Value: []byte(value)}},
		}
		done, err := kv.Commit(ctx, tx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(value, done[0])
	}
	commit("one", 0) // there is none
	found, err := kv.Get(ctx, "counter", "another")
	if err != nil {
		log.Fatal(err)
	}
	commit("two", found[0].Version)
	commit("three", found[0].Version) // it has changed
	for e, err := range kv.Scan(ctx, "a", "z") {
		fmt.Printf("%s is %s, %v\n", e.Key, e.Value, err)
	}
	fmt.Println("any size:", kv.Limits() == engine.Limits{})
	// Output:
	// one true
	// two true
	// three false
	// counter is two, <nil>
	// any size: true
}

// A test sets the clock, and restarts the KV.
func ExampleKV_Step() {
	ctx, kv := context.Background(), memory.New()
	kv.Step(time.Hour)
	kv.Restart()
	now, up, err := kv.Now(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Until(time.Unix(0, now)).Round(time.Minute), time.Duration(now-up) < time.Minute)
	// Output: 1h0m0s true
}

// A type assertion finds the optional features of a KV.
func ExampleNoClock() {
	kv := memory.New()
	for _, kv := range []engine.KV{kv, memory.NoClock(kv), memory.Exclusive(kv)} {
		_, clock := kv.(engine.Clock)
		_, exclusive := kv.(engine.Exclusive)
		fmt.Println("clock:", clock, "exclusive:", exclusive)
	}
	// Output:
	// clock: true exclusive: false
	// clock: false exclusive: false
	// clock: true exclusive: true
}

func ExampleLimited() {
	kv := memory.Limited(engine.Limits{Value: 100_000, Operations: 128})
	_, err := kv.Commit(context.Background(), engine.Tx{Put: []engine.Entry{{Key: "k", Value: make([]byte, 200_000)}}})
	fmt.Println(errors.Is(err, engine.ErrTooLarge), err)
	// Output: true durable: larger than the engine allows: value of 200000 bytes; 100000 are allowed
}

// A task that one process has added runs in the next one. The disk of a third is full.
func ExampleKV_Engine() {
	ctx := context.Background()
	open := func(on *memory.KV) *durable.Scheduler {
		s, err := durable.New(ctx, on.Engine(), durable.WithLogger(testkit.Quiet()))
		if err != nil {
			log.Fatal(err)
		}
		err = s.Handle("greet", func(context.Context, durable.Run) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	kv := memory.New()
	first := open(kv)
	if err := first.AddTask(ctx, durable.Task{Key: "ada", Kind: "greet", Delay: time.Hour}); err != nil {
		log.Fatal(err)
	}

	crashed := kv.Clone()
	next := open(crashed)
	fmt.Println(next.Exist(ctx, "ada"))

	crashed.SetFault(errors.New("no space left on device"))
	err := next.RemoveTask(ctx, "ada")
	fmt.Println(errors.Is(err, durable.ErrBroken))
	fmt.Println(next.Shutdown(ctx))
	if err := first.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true <nil>
	// true
	// durable: the store has failed: kv: the effect of a commit is unknown: no space left on device
}

// Two nodes share an engine. After a restart of it, no lease has expired until its whole length has passed.
func ExampleKV_Shared() {
	ctx, kv := context.Background(), memory.New()
	e := kv.Shared()
	for _, name := range []string{"node 1", "node 2"} {
		if _, _, err := e.Join(ctx, name, time.Hour); err != nil {
			log.Fatal(err)
		}
	}
	kv.Step(2 * time.Hour)
	kv.Restart()
	fmt.Println(e.Reap(ctx))
	kv.Step(time.Hour + 1)
	names, err := e.Reap(ctx)
	fmt.Println(len(names), err)
	// Output:
	// [] <nil>
	// 2 <nil>
}
