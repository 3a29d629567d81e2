// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// busy starts a run of the key on a cluster. The run takes a minute, whatever its context. busy returns its node.
func busy(k *kit.Kit, key string) *kit.Node {
	k.T.Helper()
	k.Handle("busy", func(context.Context, durable.Run) error { time.Sleep(time.Minute); return nil })
	k.Nodes[0].Add(durable.Task{Key: key, Kind: "busy", Delay: time.Second})
	k.After(3 * time.Second)
	on := k.Ran(key)[0].Node
	for _, m := range k.Nodes {
		if m.Name == on {
			return m
		}
	}
	return nil
}

// unasked fails the test if there is a question, or an answer to one.
func unasked(k *kit.Kit) {
	k.T.Helper()
	if left, err := notesOf(k.Engine, ""); err != nil || len(left) > 0 {
		k.T.Errorf("there are the notes %+v, %v", left, err)
	}
}

// A run on a node that is cut off counts as ended once that node has been reaped, not before.
func TestRemoveTaskWait_ofARunOnADeadNode_endsWithItsLease(t *testing.T) {
	kit.OnNodes(t, 3, func(t *testing.T, k *kit.Kit) {
		dead, asks := busy(k, "a"), k.Nodes[0]
		if asks == dead {
			asks = k.Nodes[1]
		}
		dead.Link.SetDown(true)
		defer dead.Link.SetDown(false)
		began := time.Now()
		if _, err := asks.RemoveTaskWait(ctx, "a"); err != nil {
			t.Errorf("RemoveTaskWait: %v", err)
		}
		if waited := time.Since(began); waited < lease/2 || waited > 3*lease {
			t.Errorf("it has waited for %v of a lease of %v", waited, lease)
		}
	})
}

// The result is right even if the caller gives up, or asks over a link that loses answers.
func TestRemoveTaskWait_lostAnswers(t *testing.T) {
	kit.OnNodes(t, 3, func(t *testing.T, k *kit.Kit) {
		on, asks := busy(k, "a"), k.Nodes[0]
		if asks == on {
			asks = k.Nodes[1]
		}
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var running *durable.RunningError
		if ran, err := asks.RemoveTaskWait(within, "a"); !ran || !errors.As(err, &running) || running.Node != on.Name {
			t.Errorf("RemoveTaskWait on %s: %v, %v", on.Name, ran, err)
		}
		for _, m := range k.Nodes {
			m.Link.SetDown(true)
		}
		if _, err := asks.Cancel(ctx, "a"); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("Cancel without an engine: %v", err)
		}
		ended := make(chan error)
		for _, m := range k.Nodes {
			m.Link.SetDown(false)
		}
		go func() {
			ran, err := asks.RemoveTaskWait(ctx, "a")
			if err == nil && !ran {
				err = errors.New("it says that there was no run")
			}
			ended <- err
		}()
		k.After(2 * time.Second)
		asks.Link.SetDown(true) // while it waits
		k.After(lease / 4)
		asks.Link.SetDown(false)
		if err := <-ended; err != nil {
			t.Errorf("RemoveTaskWait over a link that was down: %v", err)
		}
	})
}

// A scheduler that is not a member also asks the nodes.
func TestRemoveTaskWait_connected(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		busy(k, "a")
		s, err := durable.Connect(ctx, k.Engine, durable.WithLogger(testkit.Quiet()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
		if ran, err := s.Cancel(ctx, "a"); !ran || err != nil {
			t.Errorf("Cancel: %v, %v", ran, err)
		}
		began := time.Now()
		if ran, err := s.RemoveTaskWait(ctx, "a"); !ran || err != nil || time.Since(began) < 30*time.Second {
			t.Errorf("RemoveTaskWait after %v: %v, %v", time.Since(began), ran, err)
		}
	})
}

// Cancel finds a run whose start is being confirmed. The run starts cancelled, even if that takes a second try.
func TestCancel_ofARunThatIsBeingConfirmed(t *testing.T) {
	const slow = 4 * sec / 5 // longer than it takes another node to read the question, and not given up
	for name, faults := range map[string][]enginetest.Fault{
		"slow":        {{Delay: slow}, {Delay: slow}, {Delay: slow}},
		"failed":      {{Delay: slow, Fail: true}},
		"lost answer": {{Delay: slow, Lose: true}},
		"too slow":    {{Delay: 2 * lease}},
	} {
		t.Run(name, func(t *testing.T) {
			kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
				caught := make(chan error, 1)
				k.Nodes[0].Handle("k", func(ctx context.Context, _ durable.Run) error { // no other node may claim its tasks
					caught <- context.Cause(ctx)
					return nil
				})
				for i, asks := range k.Nodes {
					key := fmt.Sprint(i)
					k.Nodes[0].Add(durable.Task{Key: key, Kind: "k", Delay: sec})
					k.Nodes[0].Link.Next("Confirm", append(faults[:1:1], faults...)...) // the first one is ahead
					k.After(sec + 10*tick)
					if ran, err := asks.Cancel(ctx, key); !ran || err != nil {
						t.Errorf("Cancel on %s: %v, %v", asks.Name, ran, err)
					}
					if cause := <-caught; !errors.Is(cause, durable.ErrCancelled) {
						t.Errorf("after Cancel on %s the cause is %v", asks.Name, cause)
					}
				}
			})
		})
	}
}

// After Shutdown the engine may be closed: neither verb calls it.
func TestRemoveTaskWait_afterShutdown_isStopped(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		link := enginetest.NewLink(memory.New().Shared())
		node := k.Use(durable.New(ctx, link, durable.WithLogger(testkit.Quiet()))).Scheduler
		store := k.Use(durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))).Scheduler
		k.Must(node.Shutdown(ctx), store.Shutdown(ctx))
		link.SetFaults(func(method string) enginetest.Fault {
			t.Errorf("the engine is asked to %s", method)
			return enginetest.Fault{}
		})
		for name, s := range map[string]*durable.Scheduler{"node": node, "store": store} {
			if _, err := s.Cancel(ctx, "a"); !errors.Is(err, durable.ErrStopped) {
				t.Errorf("%s: Cancel: %v", name, err)
			}
			if _, err := s.RemoveTaskWait(ctx, "a"); !errors.Is(err, durable.ErrStopped) {
				t.Errorf("%s: RemoveTaskWait: %v", name, err)
			}
		}
	})
}

// If no node is left to reap the others, a scheduler that is not a member does.
func TestRemoveTaskWait_connected_whenAllNodesAreDead_ends(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		dead := busy(k, "a")
		s, _ := connect(k)
		defer func() {
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
		dead.Link.SetDown(true)
		defer dead.Link.SetDown(false)
		within, cancel := context.WithTimeout(ctx, 3*lease)
		defer cancel()
		if _, err := s.RemoveTaskWait(within, "a"); err != nil {
			t.Errorf("RemoveTaskWait: %v", err)
		}
	})
}

// The error wraps that of the context, whatever its cause.
func TestRemoveTaskWait_ofAContextWithACause_wrapsTheErrorOfTheContext(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		busy(k, "a")
		for _, m := range k.Nodes {
			within, cancel := context.WithTimeoutCause(ctx, time.Second, errors.New("a cause"))
			_, err := m.RemoveTaskWait(within, "a")
			cancel()
			var running *durable.RunningError
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &running) {
				t.Errorf("RemoveTaskWait on %s: %v", m.Name, err)
			}
		}
	})
}

// A slowAnswers engine ends no walk over questions, and accepts no answer, before the context is done.
type slowAnswers struct{ engine.Engine }

func (e slowAnswers) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		for s, err := range e.Engine.Walk(ctx, over) {
			if !yield(s, err) {
				return
			}
			if over.Order == engine.Notes && strings.HasPrefix(s.Key, "question/") {
				<-ctx.Done()
				yield(engine.Stored{}, ctx.Err())
				return
			}
		}
	}
}

func (e slowAnswers) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if w := batches[0][0]; w.Note && w.If != engine.IfAbsent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return e.Engine.Commit(ctx, by, batches)
}

// However long the engine takes to accept answers, a node knows the pauses and starts due tasks.
func TestRemoveTaskWait_slowAnswers_holdNoStartBack(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		for range 2 {
			k.Join(func(to engine.Engine) engine.Engine { return slowAnswers{to} }, durable.WithLease(20*sec)).Start()
		}
		for i := range 20 {
			k.Nodes[0].Add(durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Duration(i+1) * sec})
		}
		within, cancel := context.WithTimeout(ctx, 30*sec)
		defer cancel()
		if _, err := k.Nodes[0].Cancel(within, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Cancel: %v", err)
		}
		calls := k.Runs()
		if len(calls) != 20 {
			t.Errorf("there are %d runs", len(calls))
		}
		for _, run := range calls {
			if run.Late > sec {
				t.Errorf("the run of %q is %v late", run.Key, run.Late)
			}
		}
	})
}

// A node that has lost its membership and is back as another member answers for its earlier runs.
func TestRemoveTaskWait_ofARunFromBeforeTheNodeRejoined_waitsForIt(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		var running atomic.Int64
		k.Handle("busy", func(context.Context, durable.Run) error {
			running.Add(1)
			defer running.Add(-1)
			time.Sleep(time.Minute)
			return nil
		})
		k.Nodes[0].Add(durable.Task{Key: "a", Kind: "busy", Delay: sec})
		k.After(3 * sec)
		on, asks := k.Nodes[0], k.Nodes[1]
		if k.Ran("a")[0].Node == asks.Name {
			on, asks = asks, on
		}
		on.Link.SetDown(true)
		k.After(3 * lease)
		on.Link.SetDown(false)
		k.After(lease)
		if n := running.Load(); n != 2 {
			t.Fatalf("%d runs are running: the other node has not taken over", n)
		}
		if _, err := asks.RemoveTaskWait(ctx, "a"); err != nil || running.Load() != 0 {
			t.Errorf("RemoveTaskWait: %v, and %d runs are running", err, running.Load())
		}
		asks.Add(durable.Task{Key: "a", Kind: "busy", Delay: sec})
		k.After(3 * sec)
		if _, err := on.RemoveTaskWait(ctx, "a"); err != nil || running.Load() != 0 {
			t.Errorf("RemoveTaskWait on the node that was away: %v, and %d runs are running", err, running.Load())
		}
	})
}

// Nothing is left of a question whose caller has given up: it neither cancels nor asks for a later run.
func TestRemoveTaskWait_givenUp_leavesNoQuestion(t *testing.T) {
	kit.OnNodes(t, 3, func(t *testing.T, k *kit.Kit) {
		on := busy(k, "a")
		for _, m := range k.Nodes {
			if m == on {
				continue
			}
			within, cancel := context.WithTimeout(ctx, sec)
			if _, err := m.RemoveTaskWait(within, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("RemoveTaskWait: %v", err)
			}
			cancel()
		}
		unasked(k)
	})
}

// Nothing is left of a question whose caller is ended by the Shutdown of its scheduler.
func TestRemoveTaskWait_atTheShutdown_leavesNoQuestion(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		on, asks := busy(k, "a"), k.Nodes[0]
		if asks == on {
			asks = k.Nodes[1]
		}
		k.Nodes = []*kit.Node{on}
		s, _ := connect(k)
		for _, s := range []*durable.Scheduler{s, asks.Scheduler} {
			ended := make(chan error, 1)
			go func() {
				_, err := s.RemoveTaskWait(ctx, "a")
				ended <- err
			}()
			k.After(sec)
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			var running *durable.RunningError
			if err := <-ended; !errors.Is(err, durable.ErrStopped) || !errors.As(err, &running) {
				t.Errorf("RemoveTaskWait: %v", err)
			}
			unasked(k)
		}
	})
}

// An engine that does not answer holds up Shutdown for a part of a lease.
func TestRemoveTaskWait_atTheShutdown_doesNotWaitForTheEngine(t *testing.T) {
	testkit.NotForRaces(t)
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		on, asks := busy(k, "a"), k.Nodes[0]
		if asks == on {
			asks = k.Nodes[1]
		}
		k.Nodes = []*kit.Node{on}
		go func() { _, _ = asks.RemoveTaskWait(ctx, "a") }()
		k.After(sec)
		asks.Link.Next("Commit Notes", enginetest.Fault{Delay: time.Hour})
		began := time.Now()
		asks.End()
		if took := time.Since(began); took > lease {
			t.Errorf("Shutdown took %v", took)
		}
		k.After(time.Hour)
	})
}

// A node that was shut down has no runs, whatever its handlers do.
func TestRemoveTaskWait_ofARunThatAShutdownGaveUp_endsWithTheNode(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		on, asks := busy(k, "a"), k.Nodes[0]
		if asks == on {
			asks = k.Nodes[1]
		}
		began := time.Now()
		go func() {
			within, cancel := context.WithTimeout(ctx, 2*sec)
			defer cancel()
			_ = on.Shutdown(within)
		}()
		k.Nodes = []*kit.Node{asks}   // to shut down at the end of the test
		defer time.Sleep(time.Minute) // for the handler
		_, err := asks.RemoveTaskWait(ctx, "a")
		if waited := time.Since(began); err != nil || waited < 2*sec || waited > 10*sec {
			t.Errorf("RemoveTaskWait after %v: %v", waited, err)
		}
	})
}
