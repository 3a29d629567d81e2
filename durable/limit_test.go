// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// gateMost is how many tasks a gate holds.
const gateMost = 1024

// A kind with more tasks due than its limit allows takes little memory, and its overdue tasks delay those of no
// other kind.
func TestLimit_ofAKindThatIsOverdue_delaysNoOther(t *testing.T) {
	const tasks = 5 * gateMost
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.add(durable.Task{Key: "other", Kind: "note", Delay: hour / 2}) // due after all of the limited kind
		r.overdue(tasks, "slow")
		r.handle("slow", sleeper(sec), durable.WithConcurrency(2), durable.WithMissed(durable.MissedAll))
		r.start()
		r.add(durable.Task{Key: "live", Kind: "note", Delay: sec})
		testkit.Settle(2 * sec)
		late := r.late(r.runs(), "note")
		if len(late) != 2 || late[0] > 2*tick {
			t.Errorf("the other kind was late by %v", late)
		}
		for range 20 {
			testkit.Settle(10 * sec)
			if s := r.Stats(); s.Limited == 0 || s.Limited > gateMost || s.Running != 2 || s.Pending < gateMost {
				t.Fatalf("%+v", s)
			}
		}
		testkit.Settle(tasks * sec / 2)
		if calls := r.runs(); len(calls) < tasks-10 || r.Len() != 0 {
			t.Errorf("%d ran, and %d are left", len(calls), r.Len())
		}
	}, durable.WithPoolSize(4))
}

// A handler that comes after Start, with a limit, gets all that has waited for it, once.
func TestLimit_ofAHandlerThatComesLate(t *testing.T) {
	const tasks = 3 * gateMost
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.overdue(tasks, "late")
		r.start()
		testkit.Settle(hour)
		r.unhandled(tasks)
		r.handle("late", sleeper(tick), durable.WithConcurrency(8))
		testkit.Settle(hour)
		r.unhandled(0)
		if calls := r.runs(); len(calls) != tasks || r.Len() != 0 {
			t.Errorf("%d ran, and %d are left", len(calls), r.Len())
		}
	})
}

// Whatever is added, moved, removed or crashes while tasks of a kind with a limit are left in the store, each task
// runs once, and not before it is due. What is running when the process ends runs again.
func TestLimit_whileTasksChange(t *testing.T) {
	const keys, steps = 6 * gateMost, 20_000
	inOneBubble(t, func(t *testing.T, r *rig) {
		draw := rand.New(rand.NewPCG(1, 2))
		handle := func() {
			for _, kind := range []string{"a", "b"} {
				r.handle(kind, sleeper(tick), durable.WithConcurrency(20), durable.WithRate(2000, sec, 50))
			}
		}
		handle()
		due := make(map[string]time.Time)    // of what is to run
		began := make(map[durable.Token]int) // after how many crashes
		crashes := 0
		ran := func() {
			for _, c := range r.runs() {
				at, ok := due[c.Key]
				before, again := began[c.Token]
				if began[c.Token] = crashes; again && before < crashes {
					continue
				}
				if started := r.begin.Add(c.at); !ok || started.Before(at.Add(-2*tick)) {
					t.Fatalf("%v ran at %v, and is due at %v", c.Key, started, at)
				}
				delete(due, c.Key)
			}
		}
		delay := func() time.Duration { return time.Duration(draw.Int64N(int64(20 * sec))) }
		for step := range steps {
			key := fmt.Sprint(draw.IntN(keys))
			d := delay()
			at := time.Now().Add(d)
			switch draw.IntN(8) {
			case 0:
				if err := r.RemoveTask(ctx, key); err == nil {
					ran()
					delete(due, key)
				}
			case 1:
				if err := r.Reschedule(ctx, key, d); err == nil {
					ran()
					due[key] = at
				}
			default:
				task := durable.Task{Key: key, Kind: string('a' + byte(draw.IntN(2))), Delay: max(d, 1)}
				if err := r.AddTask(ctx, task); err == nil {
					ran()
					due[key] = at
				}
			}
			if step%5000 == 4999 {
				ran()
				r.crash("note")
				crashes++
				handle()
				testkit.Settle(time.Duration(draw.Int64N(int64(5 * sec))))
				r.start()
			}
			if step%100 == 0 {
				time.Sleep(tick)
			}
		}
		testkit.Settle(hour)
		ran()
		if len(due) != 0 || r.Len() != 0 {
			t.Errorf("%d have not run, and %d are left", len(due), r.Len())
		}
	})
}

func TestLimit_wrong(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		for name, o := range map[string]durable.KindOption{
			"concurrency 0 is not positive":                         durable.WithConcurrency(0),
			"concurrency -1 is not positive":                        durable.WithClusterConcurrency(-1),
			"rate of 0 within 1s with bursts of 1: all must":        durable.WithRate(0, sec, 1),
			"rate of 1 within 0s with bursts of 1: all must":        durable.WithRate(1, 0, 1),
			"rate of 1 within 1s with bursts of 0: all must be pos": durable.WithClusterRate(1, sec, 0),
		} {
			err := r.Handle("k", func(context.Context, durable.Run) error { return nil }, o)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}
