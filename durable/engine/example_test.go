// SPDX-License-Identifier: MIT

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// How a node uses an engine: a task is added, claimed, started and removed.
func ExampleEngine() {
	ctx := context.Background()
	var e engine.Engine = memory.New().Shared()
	id, now, err := e.Join(ctx, "node", time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	commit := func(w engine.Write) engine.Result {
		results, err := e.Commit(ctx, id, []engine.Batch{{w}})
		if err != nil {
			log.Fatal(err)
		}
		return results[0]
	}
	add, err := author.Add(durable.Task{Key: "k", Kind: "greet", Delay: time.Second}, now)
	if err != nil {
		log.Fatal(err)
	}
	var done engine.Written = commit(add).Written[0]
	fmt.Println("added:", done.Revision > 0, "replaced:", done.Replaced)
	fmt.Println("not free:", commit(add).Unmet)

	later := now + int64(time.Minute)
	got, err := e.Claim(ctx, engine.ClaimRequest{
		By: id, Kinds: []string{"greet"}, After: now, Until: later, Most: 10, Readable: 255,
	})
	if err != nil {
		log.Fatal(err)
	}
	var task engine.Stored = got.Tasks[0]
	claims := []engine.Claim{{Key: task.Key, Revision: task.Revision}}
	held, _, err := e.Confirm(ctx, id, claims, time.Second)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("may start:", held)

	move, err := author.Reschedule(task, time.Minute, now)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("may begin, and is not moved:", commit(move).Wait > 0)
	move.Begun = task.Revision
	fmt.Println("has begun, and is moved:", len(commit(move).Written) == 1)
	for _, cond := range []engine.Condition{
		engine.IfAbsent, engine.IfUnchanged, engine.IfPresent, engine.Always,
	} {
		r := commit(engine.Write{Record: engine.Record{Key: "k"}, If: cond, Revision: task.Revision})
		fmt.Println("removed:", len(r.Unmet) == 0)
	}

	if err := e.Leave(ctx, id); err != nil {
		log.Fatal(err)
	}
	_, _, err = e.Renew(ctx, id, nil)
	fmt.Println("gone:", errors.Is(err, engine.ErrMemberGone))
	// Output:
	// added: true replaced: false
	// not free: [k]
	// may start: [true]
	// may begin, and is not moved: true
	// has begun, and is moved: true
	// removed: false
	// removed: false
	// removed: true
	// removed: true
	// gone: true
}

// An engine draws the ID of a member. It depends on nothing that is lost when the engine is restored to an older state.
func ExampleNewMemberID() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	a, b := engine.NewMemberID(now.UnixNano()), engine.NewMemberID(now.UnixNano())
	later := engine.NewMemberID(now.Add(time.Second).UnixNano())
	fmt.Println(a != b, later > a, later > b)
	// Output:
	// true true true
}
