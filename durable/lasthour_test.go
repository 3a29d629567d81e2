// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"

	"github.com/sirupsen/logrus"
)

// hoursOf returns the last hours on a scheduler, each as its node, the minutes of its start and its end since the test began, and
// for each kind its minutes with the runs that succeeded and failed.
func hoursOf(k *kit.Kit, on *kit.Node) (all []string) {
	k.T.Helper()
	hours, err := on.LastHour(ctx)
	k.Must(err)
	since := func(at time.Time) int { return int(at.Sub(k.Begin) / time.Minute) }
	for _, h := range hours {
		text := fmt.Sprint(h.Node, " ", since(h.Started), "-")
		if !h.Ended.IsZero() {
			text += fmt.Sprint(since(h.Ended))
		}
		for _, kind := range h.Kinds {
			text += " " + kind.Kind + ":"
			for _, m := range kind.Minutes {
				text += fmt.Sprint(" ", since(m.At), "=", m.Succeeded, "+", m.Failed)
				if m.Overdue >= 0 {
					text += fmt.Sprint("+", m.Overdue)
				}
			}
		}
		all = append(all, text)
	}
	return all
}

// hourNotes returns how many processes have a note.
func hourNotes(k *kit.Kit, on engine.Engine) (n int) {
	for _, err := range on.Walk(ctx, engine.Range{Order: engine.Notes, From: "hour/", To: "hour0"}) {
		k.Must(err)
		n++
	}
	return n
}

// minutely adds a task that runs on this node alone in the middle of each of the next minutes.
func minutely(n *kit.Node, kind string, times int, h durable.Handler) {
	n.Handle(kind, h, durable.WithRetry(1, time.Second, time.Second))
	n.Add(durable.Task{Key: kind, Kind: kind, Delay: 30 * time.Second, Interval: time.Minute, Times: times})
}

// sameHours fails the test unless the last hours are these, on each scheduler.
func sameHours(k *kit.Kit, want ...string) {
	k.T.Helper()
	for _, n := range k.Nodes {
		if got := hoursOf(k, n); !slices.Equal(got, want) {
			k.T.Errorf("%s has the last hours\n%s, want\n%s", n.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// The numbers of two nodes stay when the nodes are gone. One of them shuts down, and returns under its name. The other one is
// killed, so it has no end. A program that runs nothing reads all of them.
func TestLastHour_ofNodesThatComeAndGo(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		office := k.Use(durable.Connect(ctx, k.Engine, durable.WithLogger(testkit.Quiet())))
		a := k.Join(nil, durable.WithNodeName("a")).Start()
		b := k.Join(nil, durable.WithNodeName("b")).Start()
		minutely(a, "mail", 100, ok)
		minutely(b, "fails", 100, func(context.Context, durable.Run) error { return kit.ErrFail })
		sameHours(k)
		k.After(2*time.Minute + 20*time.Second)
		sameHours(k, "a 0- mail: 0=1+0 1=1+0", "b 0- fails: 0=0+1 1=0+1")

		k.After(20 * time.Second)
		a.End()
		b.Link.SetFaults(func(string) enginetest.Fault { return enginetest.Fault{Fail: true} })
		b.Kill()
		k.Nodes = []*kit.Node{office}
		sameHours(k, "a 0-2 mail: 0=1+0 1=1+0 2=1+0", "b 0- fails: 0=0+1 1=0+1")

		k.After(2 * time.Minute)
		a = k.Join(nil, durable.WithNodeName("a")).Start()
		a.Handle("mail", ok)
		k.After(2 * time.Minute)
		sameHours(k, "a 0-2 mail: 0=1+0 1=1+0 2=1+0", "a 4- mail: 4=1+0 5=1+0", "b 0- fails: 0=0+1 1=0+1")

		k.After(time.Hour)
		hours, err := office.LastHour(ctx)
		k.Must(err)
		if len(hours) != 1 || len(hours[0].Kinds[0].Minutes) != 60 {
			t.Errorf("an hour later there is %+v", hours)
		}
	})
}

// An own engine keeps the numbers across a restart and a crash.
func TestLastHour_acrossARestart(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		const name = "shop"
		k.Opts = []durable.Option{durable.WithNodeName(name)}
		k.Open(k.KV).Start()
		minutely(k.Node, "mail", 2, ok)
		k.After(100 * time.Second)
		k.End()
		k.Nodes = nil
		k.KV = k.KV.Clone()
		k.Open(k.KV).Start()
		minutely(k.Node, "more", 2, ok)
		k.After(100 * time.Second)
		k.Crash()
		sameHours(k, "shop 0-1 mail: 0=1+0 1=1+0", "shop 1- more: 2=1+0")
		k.End()
		if _, err := k.LastHour(ctx); err == nil {
			t.Error("there is a last hour after Shutdown")
		}
		k.Nodes = nil
	})
}

// An hourWrites counts the writes of the last hour.
type hourWrites struct {
	engine.Engine
	n *atomic.Int64
}

func (w hourWrites) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if strings.HasPrefix(batches[0][0].Key, "hour/") {
		w.n.Add(1)
	}
	return w.Engine.Commit(ctx, by, batches)
}

// A process writes once a minute, and not at all while it is idle. One that has run nothing and ends within the first minute
// writes nothing, and neither does a program that runs nothing.
func TestLastHour_idle_writesNothing(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		k.Join(nil).Start().End()
		k.Nodes = nil
		k.Join(nil) // is not started
		var writes atomic.Int64
		n := k.Join(func(to engine.Engine) engine.Engine { return hourWrites{to, &writes} }).Start()
		minutely(n, "mail", 3, ok)
		k.After(time.Hour)
		if n := writes.Load(); n != 3 {
			t.Errorf("%d writes in an hour with three runs", n)
		}
		if n := hourNotes(k, k.Engine); n != 1 {
			t.Errorf("%d notes", n)
		}
	})
}

// The kinds with the most runs have their own numbers, and the others are added up.
func TestLastHour_ofManyKinds_isBounded(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		n := k.Join(nil, durable.WithNodeName("a")).Start()
		for i := range 20 {
			kind := fmt.Sprintf("kind %02d", i)
			n.Handle(kind, ok)
			for j := range i + 1 {
				n.Add(durable.Task{Key: fmt.Sprint(kind, j), Kind: kind, Delay: 30 * time.Second, Interval: time.Minute, Times: 2})
			}
		}
		k.After(2*time.Minute + 20*time.Second)
		hours, err := n.LastHour(ctx)
		k.Must(err)
		for minute := range 2 {
			var runs []uint64
			for _, kind := range hours[0].Kinds {
				runs = append(runs, kind.Minutes[minute].Succeeded)
			}
			want := []uint64{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4 + 3 + 2 + 1}
			if !slices.Equal(runs, want) || hours[0].Kinds[16].Kind != "" {
				t.Errorf("the runs of minute %d are %d, want %d", minute, runs, want)
			}
		}
	})
}

// The overdue tasks of a minute are known if they were counted.
func TestLastHour_overdueTasks(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		n := k.Join(nil, durable.WithNodeName("a"), durable.WithPoolSize(2)).Start()
		end := make(chan struct{})
		n.Handle("slow", func(context.Context, durable.Run) error { <-end; return nil })
		for i := range 5 {
			n.Add(durable.Task{Key: fmt.Sprint(i), Kind: "slow", Delay: time.Second})
		}
		k.After(time.Minute + 20*time.Second)
		sameHours(k, "a 0-")
		behind, err := n.CatchUp(ctx)
		k.Must(err)
		if behind.Left == 0 {
			t.Fatal("no task is overdue")
		}
		k.After(time.Minute)
		sameHours(k, fmt.Sprint("a 0- slow: 1=0+0+", behind.Left))
		close(end)
		k.After(time.Minute)
		sameHours(k, fmt.Sprint("a 0- slow: 1=0+0+", behind.Left, " 2=5+0+0"))
	})
}

// What nothing was written to for an hour is deleted by another process, whatever its clock was then. So is what cannot be
// read.
func TestLastHour_ofOldProcesses_isDeleted(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		put := func(name, data string) {
			_, err := k.Engine.Commit(ctx, 0, []engine.Batch{{{Record: engine.Record{Key: "hour/" + name, Data: []byte(data)}, Note: true, If: engine.Always}}})
			k.Must(err)
		}
		now := time.Now().Unix() / 60
		put("ahead", fmt.Sprintf(`{"version":1,"minute":%d,"node":"ahead"}`, now+100))
		put("old", fmt.Sprintf(`{"version":1,"minute":%d,"node":"old"}`, now-100))
		put("later", fmt.Sprintf(`{"version":2,"minute":%d,"node":7}`, now-1))
		put("damaged", `{"version":1`)
		n := k.Join(nil, durable.WithNodeName("a")).Start()
		sameHours(k)
		k.After(80 * time.Second)
		if got := hourNotes(k, k.Engine); got != 1 {
			t.Errorf("there are %d notes, want only that of this process", got)
		}
		put("next", fmt.Sprintf(`{"version":1,"minute":%d,"node":"next"}`, now))
		k.After(61 * time.Minute)
		if got := hourNotes(k, k.Engine); got != 0 { // its own one is as old, too
			t.Errorf("there are %d notes, want none", got)
		}
		n.Handle("k", ok)
		n.Add(durable.Task{Key: "a", Kind: "k"})
		k.After(80 * time.Second)
		sameHours(k, "a 0- k: 62=1+0")
	})
}

// While the engine does not answer, the minutes are kept and written later, and nothing is logged about it. Shutdown waits for
// a second at most.
func TestLastHour_withoutAnAnswer(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	for _, fault := range []enginetest.Fault{{Fail: true}, {Delay: time.Hour}} {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			k.Share()
			n := k.Join(nil, durable.WithNodeName("a"), durable.WithLogger(log)).Start()
			minutely(n, "mail", 5, ok)
			fails := func(method string) enginetest.Fault {
				if method == "Commit Notes" {
					return fault
				}
				return enginetest.Fault{}
			}
			n.Link.SetFaults(fails)
			k.After(140 * time.Second)
			sameHours(k)
			n.Link.SetFaults(nil)
			k.After(time.Minute)
			sameHours(k, "a 0- mail: 0=1+0 1=1+0 2=1+0")
			n.Link.SetFaults(fails)
			began := time.Now()
			k.Must(n.Shutdown(ctx))
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("Shutdown takes %v", took)
			}
			k.Nodes = nil
		})
	}
	if out.Len() > 0 {
		t.Errorf("the log has\n%s", out.String())
	}
}
