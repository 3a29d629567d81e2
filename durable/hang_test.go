// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// hangs is a handler that ends with its context.
func hangs(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() }

// starving are the tasks of a backlog, oldest first: more of a kind that hangs than a scheduler holds in memory, those
// of a kind that takes a second, and those of one that takes no time.
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

// Half of the workers hang, and others run the kinds that do not, however many tasks of the kind that hangs are older.
func TestCatchUp_kindThatHangs_starvesNoOther(t *testing.T) {
	for _, hanging := range []int{40, 20_000} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			inOneBubble(t, func(t *testing.T, r *rig) {
				for _, kind := range []string{"hang", "slow", "quick"} {
					r.handle(kind, sleeper(0))
				}
				r.add(starving(hanging)...)
				r.crash()
				time.Sleep(hour)
				defer r.crash() // the runs that hang end
				r.handle("hang", hangs)
				r.handle("slow", sleeper(sec))
				r.handle("quick", sleeper(0))
				r.start()
				time.Sleep(20 * sec)
				kinds := make(map[string]int)
				for _, c := range r.runs() {
					ranOf(kinds, c.Run)
				}
				if kinds["hang"] != 4 || kinds["slow"] != 20 || kinds["quick"] != 1000 {
					t.Errorf("these have run: %v", kinds)
				}
				r.add(durable.Task{Key: "now", Kind: "note"})
				time.Sleep(sec)
				if calls := r.runs(); len(calls) != 1 {
					t.Errorf("what falls due now has not run: %v", brief(calls))
				}
			}, durable.WithPoolSize(8), durable.WithCatchUp(100_000))
		})
	}
}

func TestCatchUp_kindThatHangsOnNodes_starvesNoOther(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			inCluster(t, nodes, func(t *testing.T, c *cluster) {
				a := c.nodes[0]
				end := make(chan struct{})
				defer close(end)
				c.handle("hang", func(*member) durable.Handler {
					return func(context.Context, durable.Run) error { <-end; return nil }
				})
				c.handle("slow", func(*member) durable.Handler { return sleeper(sec) })
				c.handle("quick", func(*member) durable.Handler { return sleeper(0) })
				c.must(a.PauseAll(ctx))
				time.Sleep(5 * sec)
				a.add(starving(20_000)...)
				time.Sleep(hour)
				c.must(a.ResumeAll(ctx))
				time.Sleep(15 * sec)
				kinds := make(map[string]int)
				for _, call := range c.runs() {
					ranOf(kinds, call.Run)
				}
				if kinds["hang"] != 4*nodes || kinds["slow"] != 20 || kinds["quick"] != 1000 {
					t.Errorf("these have run: %v", kinds)
				}
				a.add(durable.Task{Key: "now", Kind: "note"})
				time.Sleep(sec)
				c.ran("now")
			}, durable.WithPoolSize(8), durable.WithCatchUp(100_000))
		})
	}
}

// Two kinds that hang leave a worker free between them, and the end of their backlog is not known.
func TestCatchUp_twoKindsThatHang_leaveAWorkerFree(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		for kind, n := range map[string]int{"hang": 40, "hang too": 40, "quick": 1000} {
			r.handle(kind, sleeper(0))
			for i := range n {
				r.add(durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: time.Second})
			}
		}
		r.crash()
		time.Sleep(hour)
		defer r.crash() // the runs that hang end
		r.handle("hang", hangs)
		r.handle("hang too", hangs)
		r.handle("quick", sleeper(0))
		r.start()
		for range 20 {
			time.Sleep(sec)
			if n := r.Stats().Running; n > 7 {
				t.Fatalf("%d workers are busy", n)
			}
			r.add(durable.Task{Key: fmt.Sprint("now", r.Stats().Added), Kind: "note"})
		}
		time.Sleep(sec)
		got := make(map[string]int)
		for _, c := range r.runs() {
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
