// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// hangs is a handler that ends with its context.
func hangs(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() }

// starving returns the tasks of a backlog, oldest first: more tasks of a kind that hangs than a scheduler holds in
// memory, then tasks of a kind that takes a second, and of a kind that takes no time.
func starving(hanging int) (tasks []durable.Task) {
	for i := range hanging {
		tasks = append(tasks, durable.Task{Key: fmt.Sprint("hang", i), Kind: "hang", Delay: time.Second})
	}
	for i := range 20 {
		tasks = append(tasks, durable.Task{Key: fmt.Sprint("slow", i), Kind: "slow", Delay: 2 * time.Second})
	}
	for i := range 1000 {
		tasks = append(tasks, durable.Task{Key: fmt.Sprint("quick", i), Kind: "quick", Delay: 3 * time.Second})
	}
	return tasks
}

// ranOf counts the runs by kind.
func ranOf(kinds map[string]int, run durable.Run) { kinds[run.Kind]++ }

// Half of the workers hang, and the others run the kinds that do not, however many older tasks the hanging kind has.
func TestCatchUp_kindThatHangs_starvesNoOther(t *testing.T) {
	for _, hanging := range []int{40, 20_000} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
				for _, kind := range []string{"hang", "slow", "quick"} {
					k.Handle(kind, sleeper(0))
				}
				k.Add(starving(hanging)...)
				k.Crash()
				k.After(hour)
				defer k.Crash() // the runs that hang end
				k.Handle("hang", hangs)
				k.Handle("slow", sleeper(sec))
				k.Handle("quick", sleeper(0))
				k.Start()
				k.After(20 * sec)
				kinds := make(map[string]int)
				for _, c := range k.Runs() {
					ranOf(kinds, c.Run)
				}
				if kinds["hang"] != 4 || kinds["slow"] != 20 || kinds["quick"] != 1000 {
					t.Errorf("these have run: %v", kinds)
				}
				k.Add(durable.Task{Key: "now", Kind: "note"})
				if calls := k.RunsAfter(sec); len(calls) != 1 {
					t.Errorf("what falls due now has not run: %v", calls)
				}
			}, durable.WithPoolSize(8), durable.WithCatchUp(100_000))
		})
	}
}

func TestCatchUp_kindThatHangsOnNodes_starvesNoOther(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			kit.OnNodes(t, nodes, func(t *testing.T, k *kit.Kit) {
				a := k.Nodes[0]
				end := make(chan struct{})
				defer close(end)
				k.Handle("hang", func(context.Context, durable.Run) error { <-end; return nil })
				k.Handle("slow", sleeper(sec))
				k.Handle("quick", sleeper(0))
				k.Must(a.PauseAll(ctx))
				k.After(5 * sec)
				a.Add(starving(20_000)...)
				k.After(hour)
				k.Must(a.ResumeAll(ctx))
				k.After(15 * sec)
				kinds := make(map[string]int)
				for _, call := range k.Runs() {
					ranOf(kinds, call.Run)
				}
				if kinds["hang"] != 4*nodes || kinds["slow"] != 20 || kinds["quick"] != 1000 {
					t.Errorf("these have run: %v", kinds)
				}
				a.Add(durable.Task{Key: "now", Kind: "note"})
				k.After(sec)
				k.Ran("now")
			}, durable.WithPoolSize(8), durable.WithCatchUp(100_000))
		})
	}
}

// Two kinds that hang leave a worker free between them, and the end of their backlog is not known.
func TestCatchUp_twoKindsThatHang_leaveAWorkerFree(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, r *kit.Kit) {
		for kind, n := range map[string]int{"hang": 40, "hang too": 40, "quick": 1000} {
			r.Handle(kind, sleeper(0))
			for i := range n {
				r.Add(durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: time.Second})
			}
		}
		r.Crash()
		r.After(hour)
		defer r.Crash() // the runs that hang end
		r.Handle("hang", hangs)
		r.Handle("hang too", hangs)
		r.Handle("quick", sleeper(0))
		r.Start()
		for range 20 {
			r.After(sec)
			if n := r.Stats().Running; n > 7 {
				t.Fatalf("%d workers are busy", n)
			}
			r.Add(durable.Task{Key: fmt.Sprint("now", r.Stats().Added), Kind: "note"})
		}
		r.After(sec)
		got := make(map[string]int)
		for _, c := range r.Runs() {
			ranOf(got, c.Run)
		}
		if got["hang"]+got["hang too"] != 7 || got["note"] != 20 || got["quick"] < 300 {
			t.Errorf("these have run: %v", got)
		}
		c, err := r.CatchUp(ctx)
		if err != nil || !c.Done.IsZero() || len(c.Kinds) != 3 {
			t.Fatalf("%+v, %v", c, err)
		}
		for _, k := range c.Kinds {
			if k.Done.IsZero() != (k.Kind != "quick") {
				t.Errorf("%s is to be done at %v", k.Kind, k.Done)
			}
		}
	}, durable.WithPoolSize(8), durable.WithCatchUp(30))
}
