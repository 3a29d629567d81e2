// SPDX-License-Identifier: MIT

package durable_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/sirupsen/logrus"
)

func unhandled(k *kit.Kit, want int) {
	k.T.Helper()
	k.After(12 * sec) // it is counted every ten seconds
	if n := k.Stats().Unhandled; n != want {
		k.T.Errorf("%d tasks are unhandled, want %d", n, want)
	}
}

// A kind that a release forgot: its tasks wait unchanged for a process that handles it.
func TestUnhandled_untilTheNextProcess_waits(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "overdue", Kind: "note", Delay: sec}, durable.Task{Key: "due", Kind: "note", Delay: 2 * hour},
			durable.Task{Key: "far", Kind: "note", Delay: 5 * hour}, durable.Task{Key: "handled", Kind: "fail", Delay: sec})
		k.Crash("note")
		k.After(hour)
		k.Start()
		k.After(2 * hour)
		for _, key := range []string{"overdue", "due"} {
			if i := k.Info(key); i.State == durable.Parked || i.Attempts != 0 || i.Failure != "" || i.Next.After(time.Now()) {
				t.Errorf("the task is %+v", i)
			}
		}
		unhandled(k, 2)
		if s := k.Stats(); s.ParkedTotal != 1 || s.Pending != 4 || s.Waiting != 0 { // the task that failed ten times
			t.Errorf("the accounts are %+v", s)
		}
		k.Runs()
		k.Crash()
		k.Start()
		calls := k.RunsAfter(sec)
		if len(calls) != 2 || calls[0].Key != "overdue" || calls[1].Key != "due" || calls[0].Attempt != 1 {
			t.Errorf("these ran: %v", calls)
		}
		unhandled(k, 0)
		k.After(3 * hour)
		ranAt(k, "far", 5*hour)
	}, durable.WithPoolSize(1))
}

// Tasks that waited for a handler registered after Start run as overdue: oldest first, at the rate.
func TestUnhandled_untilHandle_runsAsOverdue(t *testing.T) {
	testkit.NotForRaces(t)
	const tasks, rate = 1500, 100
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		overdue(k, tasks, "late")
		k.Start()
		k.Add(durable.Task{Key: "live", Kind: "note", Interval: sec, Times: durable.Forever})
		k.After(10 * sec)
		unhandled(k, tasks)
		k.Must(k.RemoveTask(ctx, "late7"))
		k.Must(k.Reschedule(ctx, "late8", hour))
		k.Must(k.SetTask(ctx, durable.Task{Key: "late9", Kind: "note", Delay: 2 * hour}))
		unhandled(k, tasks-3)
		k.Runs()
		k.Handle("late", sleeper(0))
		began := time.Since(k.Begin)
		k.After(5 * sec)
		if n := k.Stats().Unhandled; n != 0 {
			t.Errorf("with a handler %d are unhandled", n)
		}
		k.After(20 * sec)
		n, due := 0, time.Time{}
		for _, c := range k.Runs() {
			if c.Kind != "late" {
				continue
			}
			n++
			if most := rate*((c.At-began).Seconds()+0.11) + 1; float64(n) > most {
				t.Fatalf("%d overdue tasks ran in %v", n, c.At-began)
			}
			if c.Due.Before(due) || c.Key == "late7" || c.Key == "late8" || c.Key == "late9" {
				t.Errorf("%s, due at %v, ran after what was due at %v", c.Key, c.Due, due)
			}
			due = c.Due
		}
		if n != tasks-3 {
			t.Errorf("%d ran, want %d", n, tasks-3)
		}
		unhandled(k, 0)
		k.After(hour)
		k.Must(k.RemoveTask(ctx, "live"))
		k.Runs()
		k.After(2 * hour)
		if n := k.Len(); n != 0 {
			t.Errorf("%d are left", n)
		}
	}, durable.WithCatchUp(rate), durable.WithPoolSize(1))
}

func TestUnhandled_isLoggedOnceForEachKind(t *testing.T) {
	log := testkit.Quiet()
	var lines []string
	log.AddHook(callingHook(func(e *logrus.Entry) {
		if e.Level == logrus.WarnLevel {
			lines = append(lines, fmt.Sprint(e.Data["kind"], " ", e.Data["tasks"]))
		}
	}))
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		for i := range 300 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: []string{"note", "fail"}[i%2], Delay: sec})
			k.Add(durable.Task{Key: fmt.Sprint("later", i), Kind: "note", Delay: hour})
		}
		k.Crash("note", "fail")
		k.After(10 * sec)
		k.Start()
		k.After(2 * hour)
		slices.Sort(lines)
		if got := strings.Join(lines, ", "); got != "fail 150, note 150" {
			t.Errorf("these were logged: %s", got)
		}
		unhandled(k, 600)
	}, durable.WithLogger(log))
}

// A node names each kind once for which no node has a handler, in the log. If the engine belongs to it alone, it counts
// the tasks, too.
func TestUnhandled_onNodes(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string]int{"own": 0, "one": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			log := testkit.Quiet()
			var mu sync.Mutex
			var lines []string
			log.AddHook(callingHook(func(e *logrus.Entry) {
				if tasks, ok := e.Data["tasks"]; ok && e.Level == logrus.WarnLevel {
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, fmt.Sprint(e.Data["kind"], " ", tasks))
				}
			}))
			kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
				if nodes == 0 {
					k.Engine = nil
					joinOwn(k, memory.Exclusive(memory.New()), durable.WithLogger(log))
					k.Start()
				}
				for range nodes {
					k.Join(nil, durable.WithLogger(log)).Start()
				}
				last := k.Nodes[len(k.Nodes)-1]
				k.Must(k.Declare("none"), k.Declare("paused"), k.Declare("last"), k.Declare("typed"))
				k.Must(k.PauseKind(ctx, "paused"))
				last.Handle("last", sleeper(6*hour), durable.WithConcurrency(1)) // the others wait for it
				last.Handle("typed", sleeper(0))
				for i := range 10 {
					for _, kind := range []string{"none", "paused", "last", "note"} {
						k.Add(durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: sec})
						k.Add(durable.Task{Key: fmt.Sprint("later ", kind, i), Kind: kind, Delay: hour})
					}
				}
				k.Add(durable.Task{Key: "typed", Kind: "typed", PayloadVersion: 2, Delay: sec})
				is := func(want int, said ...string) {
					t.Helper()
					k.After(2 * time.Minute)
					if nodes > 0 {
						want = 0
					}
					for range nodes - 1 { // each says it
						said = append(said, said...)
					}
					for _, n := range k.Nodes {
						if got := n.Stats().Unhandled; got != want {
							t.Errorf("%s counts %d tasks, want %d", n.Name, got, want)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					slices.Sort(lines)
					slices.Sort(said)
					if !slices.Equal(lines, said) {
						t.Errorf("these were logged: %q, want %q", lines, said)
					}
					lines = nil
				}
				if nodes == 2 { // the first node does not know for which versions the other has a handler
					k.Must(k.RemoveTask(ctx, "typed"))
					is(10, "none 10")
				} else {
					is(11, "none 10", "typed 1")
					k.Must(k.RemoveTask(ctx, "typed"))
				}
				k.After(hour)
				is(20)
				k.Must(k.RemoveTask(ctx, "none0"))
				is(19)
				k.Must(k.ResumeKind(ctx, "paused"))
				is(39, "paused 20")
				k.Nodes[0].Handle("none", sleeper(0))
				k.Nodes[0].Handle("paused", sleeper(0))
				is(0)
			})
		})
	}
}

// Until another member has reported its kinds, a node does not say that no node handles one.
func TestUnhandled_byAMemberThatHasNotReported(t *testing.T) {
	log := testkit.Quiet()
	var said atomic.Int32
	log.AddHook(callingHook(func(e *logrus.Entry) {
		if e.Data["kind"] == "none" {
			said.Add(1)
		}
	}))
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Must(k.Declare("none"))
		id, _, err := k.Engine.Join(ctx, "new", 10*hour)
		k.Must(err)
		k.Add(durable.Task{Key: "a", Kind: "none", Delay: sec})
		k.After(2 * time.Minute)
		if n := said.Load(); n != 0 {
			t.Errorf("it was said %d times", n)
		}
		_, _, err = k.Engine.Renew(ctx, id, []byte(`{"renewal":"1","kinds":["other"]}`))
		k.Must(err)
		k.After(2 * time.Minute)
		if n := said.Load(); n != 1 {
			t.Errorf("it was said %d times", n)
		}
	}, durable.WithLogger(log))
}
