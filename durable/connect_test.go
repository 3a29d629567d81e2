// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// connect returns a scheduler over a separate link that is not a node of the cluster.
func connect(k *kit.Kit) (*durable.Scheduler, *enginetest.Link) {
	k.T.Helper()
	link := enginetest.NewLink(k.Engine)
	s, err := durable.Connect(ctx, link, durable.WithLease(lease), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		k.T.Fatal(err)
	}
	return s, link
}

// A program that only adds tasks needs their kinds, as a node does, including the version of their payloads.
func TestConnect_addsTasksOfTheKindsThatItWasGiven(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		s, _ := connect(k)
		task := durable.Task{Key: "a", Kind: "note", Delay: sec}
		for _, add := range []func() error{
			func() error { return s.AddTask(ctx, task) },
			func() error { return s.SetTask(ctx, task) },
		} {
			if err := add(); !errors.Is(err, durable.ErrUnknownKind) {
				t.Errorf("a task of a kind that has no handler there: %v", err)
			}
		}
		never := func(context.Context, durable.Run) error {
			t.Error("a handler is called that Connect was given")
			return nil
		}
		upgrade := func(payload []byte, _ int) ([]byte, error) { return payload, nil }
		k.Must(s.Handle("note", never, durable.WithPayloadVersion(2, upgrade)))
		k.Must(s.AddTask(ctx, task))
		added, _, err := one(k.Engine, "a")
		k.After(time.Minute) // the node has a handler of the first form, and does not even claim the task
		left, _, failed := one(k.Engine, "a")
		if err = errors.Join(err, failed); err != nil || left.Revision != added.Revision {
			t.Errorf("%+v, %v", left, err)
		}
		if i := k.Info("a"); i.PayloadVersion != 2 || len(k.Runs()) != 0 {
			t.Errorf("%+v", i)
		}
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}

// It supports every verb and is not a member, so no node shares the catch-up with it.
func TestConnect_doesEveryVerb_andIsNoMember(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		s, link := connect(k)
		var asked []string
		link.SetFaults(func(method string) enginetest.Fault {
			asked = append(asked, method)
			return enginetest.Fault{}
		})
		steps := []func() error{
			func() error {
				return s.Handle("note", func(context.Context, durable.Run) error { return nil })
			},
			func() error {
				return s.AddTask(ctx, durable.Task{Key: "runs", Kind: "note", Delay: sec},
					durable.Task{Key: "removed", Kind: "note", Delay: sec},
					durable.Task{Key: "paused", Kind: "note", Delay: sec})
			},
			func() error { return s.RemoveTask(ctx, "removed") },
			func() error { return s.Pause(ctx, "paused") },
			func() error { return s.Reschedule(ctx, "runs", 2*sec) },
		}
		for i, do := range steps {
			if err := do(); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
		}
		members, err := membersOf(k.Engine)
		if err != nil || len(members) != 1 || members[0].Name != "node 1" {
			t.Errorf("the members are %+v, %v", members, err)
		}
		all, err := s.Nodes(ctx)
		if err != nil || len(all) != 1 || all[0].Self {
			t.Errorf("the nodes are %+v, %v", all, err)
		}
		if err := s.Start(); err == nil {
			t.Error("it starts")
		}
		calls := k.RunsAfter(time.Minute)
		if len(calls) != 1 || calls[0].Key != "runs" || calls[0].Node != "node 1" || calls[0].At < 2*sec {
			t.Errorf("the runs are %v", calls)
		}
		if found, err := s.Find(ctx, durable.Query{State: durable.Paused}); err != nil || len(found.Tasks) != 1 {
			t.Errorf("paused are %+v, %v", found, err)
		}
		if stats := s.Stats(); stats.Node.LeaseAge != 0 || stats.Node.Lease != 0 || stats.Node.Away {
			t.Errorf("%+v", stats.Node)
		}
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := s.RemoveTask(ctx, "paused"); !errors.Is(err, durable.ErrStopped) {
			t.Errorf("after Shutdown: %v", err)
		}
		for _, method := range []string{"Join", "Renew", "Claim", "Confirm", "Reap", "Leave"} {
			if slices.Contains(asked, method) {
				t.Errorf("it has called %s", method)
			}
		}
	})
}

// Its delays follow the engine's clock, which it reads repeatedly.
func TestConnect_asksForTheEnginesTime(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		k.KV.Step(-time.Hour)
		s, link := connect(k)
		defer func() {
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
		k.Must(s.Handle("note", func(context.Context, durable.Run) error { return nil }))
		adds := func(key string, ahead time.Duration) {
			t.Helper()
			k.Must(s.AddTask(ctx, durable.Task{Key: key, Kind: "note", Delay: time.Minute}))
			due := time.Now().Add(ahead + time.Minute)
			if i, ok, err := s.Get(ctx, key); err != nil || !ok || i.Next.Sub(due).Abs() > 10*time.Millisecond {
				t.Errorf("%s is due at %v, %v, want %v", key, i.Next, err, due)
			}
		}
		adds("a", -time.Hour)
		k.KV.Step(3 * time.Hour)
		k.After(lease)
		adds("b", 2*time.Hour)

		link.SetDown(true)
		k.After(lease)
		if _, _, err := s.Get(ctx, "a"); !errors.Is(err, durable.ErrUnavailable) || !s.Stats().Node.Away {
			t.Errorf("of an engine that is away: %v", err)
		}
		link.SetDown(false)
		k.After(lease)
		if s.Stats().Node.Away {
			t.Error("the engine answers, and is away")
		}
	})
}

// It knows the paused kinds, whichever scheduler has paused them.
func TestConnect_knowsWhatIsPaused(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		node := k.Nodes[0]
		k.Must(node.AddTask(ctx, durable.Task{Key: "a", Kind: "note", Delay: hour}))
		paused := func(s *durable.Scheduler) bool {
			t.Helper()
			census, err := s.Counts(ctx)
			if err != nil || len(census.Kinds) != 1 {
				t.Fatalf("%+v, %v", census, err)
			}
			return census.Kinds[0].KindPaused
		}
		k.Must(node.PauseKind(ctx, "note"))
		s, _ := connect(k)
		if !paused(s) {
			t.Error("a kind that was paused before is not paused")
		}
		k.Must(node.ResumeKind(ctx, "note"))
		k.After(2 * sec)
		if paused(s) {
			t.Error("a kind that was resumed is paused")
		}
		k.Must(s.PauseAll(ctx))
		k.After(2 * sec)
		if !paused(s) || !paused(node.Scheduler) {
			t.Error("it has paused all kinds, and this one is not paused")
		}
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
}

// It does not know how a kind treats its missed runs.
func TestConnect_resumes_withoutSkipping(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		node := k.Nodes[0]
		node.Handle("skips", sleeper(0), durable.WithMissed(durable.MissedSkip))
		for key, resume := range map[string]bool{"node": false, "client": true} {
			s := node.Scheduler
			if resume {
				s, _ = connect(k)
			}
			err := errors.Join(
				node.AddTask(ctx, durable.Task{Key: key, Kind: "skips", Interval: time.Minute, Times: durable.Forever}),
				s.Pause(ctx, key))
			k.After(3*time.Minute + 30*sec)
			err = errors.Join(err, s.Resume(ctx, key))
			k.After(5 * sec)
			i, ok, err2 := node.Get(ctx, key)
			if want := map[bool]uint64{false: 3, true: 2}[resume]; err != nil || err2 != nil || !ok || i.Missed != want {
				t.Errorf("resumed by the %s: %+v, %v, %v; %d missed periods are expected", key, i, err, err2, want)
			}
			err = node.RemoveTask(ctx, key)
			if resume {
				err = errors.Join(err, s.Shutdown(ctx))
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func TestConnect_toNothing(t *testing.T) {
	if _, err := durable.Connect(ctx, nil); err == nil {
		t.Error("there is a scheduler without an engine")
	}
	synctest.Test(t, func(t *testing.T) {
		link := enginetest.NewLink(memory.New().Shared())
		link.SetDown(true)
		if _, err := durable.Connect(ctx, link); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("to an engine that is away: %v", err)
		}
	})
}
