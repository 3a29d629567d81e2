// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// The starts of a slot of 50 ms are confirmed together, 25 ms before it.
const aheadSlot, aheadLead = 50 * time.Millisecond, 25 * time.Millisecond

// An aheadEngine counts the confirmations and the starts in them. It calls confirmed before it answers.
type aheadEngine struct {
	engine.Engine
	calls, starts atomic.Int64
	took          time.Duration
	confirmed     func()
	answer        func(claims []engine.Claim) error
}

func (e *aheadEngine) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration) ([]bool, int64, error) {
	e.calls.Add(1)
	e.starts.Add(int64(len(claims)))
	held, now, err := e.Engine.Confirm(ctx, by, claims, within)
	time.Sleep(e.took)
	if e.confirmed != nil {
		e.confirmed()
	}
	if e.answer != nil {
		if err := e.answer(claims); err != nil {
			return nil, 0, err
		}
	}
	return held, now, err
}

// onAhead runs the test with a node whose confirmations are counted, and another one that runs nothing.
func onAhead(t *testing.T, test func(t *testing.T, k *kit.Kit, e *aheadEngine), opts ...durable.Option) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		e := new(aheadEngine)
		k.Join(func(to engine.Engine) engine.Engine { e.Engine = to; return e }).Start()
		k.Join(nil)
		k.After(sec)
		test(t, k, e)
	}, append(opts, durable.WithTick(time.Millisecond))...)
}

// soon returns n tasks that are due one after another within a slot.
func soon(kind string, n int) (tasks []durable.Task) {
	for i := range n {
		tasks = append(tasks, durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: sec/2 + time.Duration(i)*time.Millisecond})
	}
	return tasks
}

// Each run of a slot begins at its due time, although a confirmation takes 20 ms. All have been confirmed by one call,
// also if their kind has a limit.
func TestAhead_runsBeginWhenTheyAreDue(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		k.Handle("limited", ok, durable.WithClusterConcurrency(200))
		k.After(2 * lease)
		e.took = 20 * time.Millisecond
		for _, kind := range []string{"note", "limited"} {
			before := e.calls.Load()
			k.Nodes[0].Add(soon(kind, 40)...)
			calls := k.RunsAfter(sec)
			for _, c := range calls {
				if c.Late > time.Millisecond {
					t.Errorf("%v is %v late", c, c.Late)
				}
			}
			if n := e.calls.Load() - before; len(calls) != 40 || n != 1 {
				t.Errorf("%d runs of %q were confirmed by %d calls", len(calls), kind, n)
			}
		}
	})
}

// As many starts are confirmed ahead as there are free workers or places of a limit. The others are confirmed when their turn
// comes, and each run has its first attempt.
func TestAhead_noMoreThanCanBegin(t *testing.T) {
	for kind, most := range map[string]int64{"slow": 4, "limited": 3} {
		onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
			slow := func(context.Context, durable.Run) error { time.Sleep(200 * time.Millisecond); return nil }
			k.Handle("slow", slow)
			k.Handle("limited", slow, durable.WithConcurrency(3))
			k.Nodes[0].Add(soon(kind, 20)...)
			k.After(sec/2 - time.Millisecond)
			if n := e.starts.Load(); n != most {
				t.Errorf("%d starts of %q were confirmed ahead, want %d", n, kind, most)
			}
			calls := k.RunsAfter(10 * sec)
			for _, c := range calls {
				if c.Attempt != 1 || c.Late < 0 {
					t.Errorf("%v is attempt %d, %v after it was due", c, c.Attempt, c.Late)
				}
			}
			if len(calls) != 20 {
				t.Errorf("%d runs of %q", len(calls), kind)
			}
		}, durable.WithPoolSize(4))
	}
}

// Between its confirmation and its due time a task does not count as running. What forbids the run then is looked at before it
// begins, and the start that has been confirmed is no attempt.
func TestAhead_whatChangesBeforeTheRun(t *testing.T) {
	for name, change := range map[string]struct {
		do   func(k *kit.Kit)
		undo func(k *kit.Kit)
	}{
		"the kind is paused": {
			func(k *kit.Kit) { k.Must(k.Nodes[0].PauseKind(ctx, "once")) },
			func(k *kit.Kit) { k.Must(k.Nodes[0].ResumeKind(ctx, "once")) },
		},
		"the node is drained": {
			func(k *kit.Kit) { k.Must(k.Nodes[0].Drain(ctx, k.Nodes[0].Name)) },
			func(k *kit.Kit) { k.Must(k.Nodes[0].Undrain(ctx, k.Nodes[0].Name)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
				k.Handle("once", ok, durable.WithRetry(1, sec, sec))
				k.Nodes[0].Add(durable.Task{Key: "k", Kind: "once", Delay: sec / 2})
				k.After(sec/2 - aheadLead + 5*time.Millisecond)
				if i := k.Info("k"); e.starts.Load() != 1 || i.State != durable.Scheduled {
					t.Fatalf("after %d confirmations: %v", e.starts.Load(), i)
				}
				change.do(k)
				k.After(sec / 4)
				k.RanNothing()
				k.After(2 * sec)
				change.undo(k)
				calls := k.RunsAfter(4 * lease)
				if len(calls) != 1 || calls[0].Attempt != 1 {
					t.Errorf("the runs are %v", calls)
				}
			})
		})
	}
}

// If an answer shows that the machine has slept between a confirmation and the due time, or that the engine's clock was set back
// there, the node asks again. Nothing begins early.
func TestAhead_clocksThatJump_areAskedAgain(t *testing.T) {
	for name, by := range map[string]time.Duration{"asleep": sec, "set back": -sec} {
		t.Run(name, func(t *testing.T) {
			onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
				k.Nodes[0].Add(durable.Task{Key: "k", Kind: "note", Delay: sec/2 + 40*time.Millisecond},
					durable.Task{Key: "next", Kind: "note", Delay: sec/2 + 60*time.Millisecond}) // of the next slot
				k.After(sec/2 - aheadLead + 5*time.Millisecond)
				if n := e.starts.Load(); n != 1 {
					t.Fatalf("%d starts are confirmed ahead", n)
				}
				k.KV.Step(by)
				began := time.Since(k.Begin)
				calls := k.RunsAfter(3 * sec)
				if n := e.starts.Load(); len(calls) != 2 || n < 3 {
					t.Errorf("the runs are %v, after %d confirmations", calls, n)
				}
				for _, c := range calls {
					if by < 0 && c.At-began < sec {
						t.Errorf("%v begins %v after the clock was set back", c, c.At-began)
					}
				}
			})
		})
	}
}

// D2. A verb on another node that meets a confirmed start changes the task when the run can no longer begin. A verb on the node
// itself makes the start void, and waits for nothing. No run of the old task begins after a verb has returned nil.
func TestD2_verbsOfATaskConfirmedAhead(t *testing.T) {
	const within = 100 * time.Millisecond
	for _, kind := range []string{"quick", "slow"} {
		for node := range 2 {
			onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
				k.Handle("quick", ok)
				k.Handle("slow", func(context.Context, durable.Run) error { time.Sleep(sec); return nil })
				var at time.Time
				e.confirmed = func() { at = time.Now() }
				k.Nodes[0].Add(durable.Task{Key: "k", Kind: kind, Delay: sec / 2})
				k.After(sec/2 - aheadLead + 5*time.Millisecond)
				asked := time.Now()
				err := k.Nodes[node].RemoveTask(ctx, "k")
				took, returned := time.Since(asked), time.Since(k.Begin)
				calls := k.RunsAfter(3 * sec)
				switch {
				case node == 0:
					if err != nil || took != 0 || len(calls) != 0 {
						t.Errorf("%s: the node's own removal returns %v after %v; the runs are %v", kind, err, took, calls)
					}
				case len(calls) != 1 || calls[0].At > returned || took > within-asked.Sub(at):
					t.Errorf("%s: the removal returns %v, after %v; the runs are %v", kind, err, took, calls)
				case kind == "quick" != errors.Is(err, durable.ErrTaskKeyNotFound):
					t.Errorf("%s: the removal returns %v", kind, err)
				}
			})
		}
	}
}

// D2. Two verbs meet a confirmed start on other nodes. The answer of the first one is lost, or it is still waiting. No run of
// the old task begins after the second one has returned nil.
func TestD2_twoVerbsOfATaskConfirmedAhead(t *testing.T) {
	for name, first := range map[string]func(k *kit.Kit, b *kit.Node){
		"while it waits": func(k *kit.Kit, b *kit.Node) { go b.RemoveTask(ctx, "k") },
		"when its caller has gone": func(k *kit.Kit, b *kit.Node) {
			gone, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_ = b.RemoveTask(gone, "k")
		},
	} {
		onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
			k.Join(nil)
			k.Nodes[0].Add(durable.Task{Key: "k", Kind: "note", Delay: sec / 2, Payload: []byte("old")})
			k.After(sec/2 - aheadLead + time.Millisecond)
			first(k, k.Nodes[1])
			k.After(2 * time.Millisecond)
			k.Must(k.Nodes[2].SetTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: sec, Payload: []byte("new")}))
			returned := time.Since(k.Begin)
			for _, c := range k.RunsAfter(3 * sec) {
				if string(c.Payload) == "old" && c.At > returned {
					t.Errorf("%s: the old run begins %v after SetTask has returned", name, c.At-returned)
				}
			}
		})
	}
}

// D2. A verb that has made a start void comes late to the engine. The task is due meanwhile, and does not begin after the verb.
func TestD2_verbThatIsLate_afterAStartWasWithdrawn(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		a := k.Nodes[0]
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: sec / 2})
		k.After(sec/2 - aheadLead + 5*time.Millisecond)
		e.took = 60 * time.Millisecond
		a.Link.Next("Commit", enginetest.Fault{Delay: 60 * time.Millisecond})
		err := a.RemoveTask(ctx, "k")
		returned := time.Since(k.Begin)
		for _, c := range k.RunsAfter(sec) {
			if err != nil || c.At > returned {
				t.Errorf("the removal returns %v, and the run begins %v after that", err, c.At-returned)
			}
		}
	})
}

// A start that a verb has made void is confirmed again if the verb does not change the task.
func TestAhead_verbThatIsRefused_startsAgain(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		a := k.Nodes[0]
		a.Add(durable.Task{Key: "k", Kind: "note", Delay: sec / 2}, durable.Task{Key: "other", Kind: "note", Delay: sec / 2})
		k.After(sec/2 - aheadLead + 5*time.Millisecond)
		if err := a.AddTask(ctx, durable.Task{Key: "k", Kind: "note"}); !errors.Is(err, durable.ErrDuplicateTaskKey) {
			t.Errorf("the add returns %v", err)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := a.RemoveTask(gone, "other"); err == nil {
			t.Error("a removal by a caller that has gone returns nil")
		}
		calls := k.RunsAfter(2 * sec)
		for _, c := range calls {
			if c.Late > 5*time.Millisecond || c.Attempt != 1 {
				t.Errorf("%v is %v late", c, c.Late)
			}
		}
		if len(calls) != 2 {
			t.Errorf("the runs are %v", calls)
		}
	})
}

// A task that SetTask postpones up to a latest time is confirmed when it is due: its bursts wait for nothing.
func TestAhead_notForBursts(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		for range 40 {
			began := time.Now()
			k.Must(k.Nodes[0].SetTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: 100 * time.Millisecond, MaxDelay: 10 * sec}))
			if took := time.Since(began); took > 0 {
				t.Errorf("SetTask has taken %v", took)
			}
			k.After(aheadSlot / 2)
		}
		if n := e.starts.Load(); n != 0 {
			t.Errorf("%d starts were confirmed ahead", n)
		}
		if calls := k.RunsAfter(sec); len(calls) != 1 {
			t.Errorf("the runs are %v", calls)
		}
	})
}

// A confirmation ahead that fails, or whose answer is lost or late, is repeated when the task is due, and counts once.
func TestAhead_confirmationThatFails(t *testing.T) {
	for name, f := range map[string]enginetest.Fault{
		"fails": {Fail: true}, "is lost": {Lose: true}, "is late": {Delay: aheadLead + 10*time.Millisecond},
	} {
		onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
			k.Handle("once", ok, durable.WithRetry(1, sec, sec))
			k.Nodes[0].Link.Next("Confirm", f)
			k.Nodes[0].Add(durable.Task{Key: "k", Kind: "once", Delay: sec / 2})
			calls := k.RunsAfter(2 * sec)
			if n := e.starts.Load(); len(calls) != 1 || n != 2 || calls[0].Attempt != 1 || calls[0].Late > time.Millisecond {
				t.Errorf("%s: the runs are %v, after %d confirmations", name, calls, n)
			}
		})
	}
}

// D5. A start that was confirmed ahead is no attempt if the node is shut down before the run begins.
func TestAhead_shutdown_isNoAttempt(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		k.Nodes[1].Start()
		k.Handle("once", ok, durable.WithRetry(1, sec, sec))
		k.Nodes[0].Add(durable.Task{Key: "k", Kind: "once", Delay: sec / 2})
		k.After(sec/2 - aheadLead + 5*time.Millisecond)
		if n := e.starts.Load(); n != 1 {
			t.Fatalf("%d starts are confirmed ahead", n)
		}
		k.Must(k.Nodes[0].Shutdown(ctx))
		if calls := k.RunsAfter(5 * sec); len(calls) != 1 || calls[0].Attempt != 1 {
			t.Errorf("the runs are %v", calls)
		}
	})
}

// D2. Of two confirmations of a start the later one may bound the run to a shorter time, and the answer to the earlier one may come
// after it. A verb waits for both.
func TestD2_twoConfirmations_theLongerOneCounts(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		took := map[string][]time.Duration{"slow": {300 * time.Millisecond}, "k": {80 * time.Millisecond, 0}}
		e.took = 0
		var lost atomic.Bool
		var mu sync.Mutex // protects took
		e.answer = func(claims []engine.Claim) (err error) {
			key := claims[0].Key
			mu.Lock()
			all := took[key]
			took[key] = all[min(len(all), 1):]
			mu.Unlock()
			if len(all) == 0 {
				return nil
			}
			if key == "k" && len(all) == 1 {
				lost.Store(true)
				err = errors.New("the answer is lost")
			}
			time.Sleep(all[0])
			return err
		}
		k.Nodes[0].Add(durable.Task{Key: "slow", Kind: "note", Delay: 200 * time.Millisecond})
		k.Nodes[0].Add(durable.Task{Key: "k", Kind: "note", Delay: 550 * time.Millisecond})
		k.After(530 * time.Millisecond)
		k.Nodes[0].Add(durable.Task{Key: "quick", Kind: "note"})
		k.After(124 * time.Millisecond)
		_ = k.Nodes[1].RemoveTask(ctx, "k") // the run may be over
		returned := time.Since(k.Begin)
		for _, c := range k.RunsAfter(2 * sec) {
			if c.Key == "k" && c.At > returned {
				t.Errorf("the run begins %v after the removal has returned", c.At-returned)
			}
		}
		if !lost.Load() {
			t.Error("no answer was lost")
		}
	})
}

// A distantEngine takes 2 ms each way for a commit.
type distantEngine struct{ engine.Engine }

func (e distantEngine) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	time.Sleep(2 * time.Millisecond)
	defer time.Sleep(2 * time.Millisecond)
	return e.Engine.Commit(ctx, by, batches)
}

// A verb on another node changes a task within a second, although the task is about to begin again and again.
func TestAhead_quickRepeating_verbsGetThrough(t *testing.T) {
	for name, verb := range map[string]func(ctx context.Context, b *kit.Node) error{
		"Pause":      func(ctx context.Context, b *kit.Node) error { return b.Pause(ctx, "k") },
		"RemoveTask": func(ctx context.Context, b *kit.Node) error { return b.RemoveTask(ctx, "k") },
		"SetTask": func(ctx context.Context, b *kit.Node) error {
			return b.SetTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: sec})
		},
	} {
		onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
			b := k.Join(func(to engine.Engine) engine.Engine { return distantEngine{to} })
			at := time.Now().Truncate(100 * time.Millisecond).Add(sec/2 + 73*time.Millisecond)
			k.Nodes[0].Add(durable.Task{Key: "k", Kind: "note", Delay: time.Until(at), Interval: 100 * time.Millisecond, Times: durable.Forever})
			k.After(2*sec + 41*time.Millisecond)
			within, cancel := context.WithTimeout(ctx, 10*sec)
			defer cancel()
			began := time.Now()
			if err := verb(within, b); err != nil || time.Since(began) > sec {
				t.Errorf("%s returns %v after %v", name, err, time.Since(began))
			}
		})
	}
}

// A KV whose Get takes some time.
type slowGet struct {
	engine.KV
	engine.Clock
	took *atomic.Int64
}

func (s slowGet) Get(ctx context.Context, keys ...string) ([]engine.Entry, error) {
	time.Sleep(time.Duration(s.took.Load()))
	return s.KV.Get(ctx, keys...)
}

// D2. A Commit whose reads take more than a second does not take a confirmation for one before the clock was set back.
func TestD2_slowCommit_seesTheStart(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		var took atomic.Int64
		slow, err := kv.New(ctx, slowGet{k.KV, k.KV, &took})
		k.Must(err)
		b := k.Join(func(engine.Engine) engine.Engine { return slow })
		k.After(sec)
		const due = 1200 * time.Millisecond
		k.Nodes[0].Add(durable.Task{Key: "k", Kind: "note", Delay: due})
		took.Store(int64(due - 5*time.Millisecond))
		_ = b.RemoveTask(ctx, "k") // the run may be over
		took.Store(0)
		returned := time.Since(k.Begin)
		for _, c := range k.RunsAfter(2 * sec) {
			if c.At > returned {
				t.Errorf("the run begins %v after the removal has returned", c.At-returned)
			}
		}
	})
}

// A second confirmation with a shorter time does not end the first one's, although the clock was set back by 1 ms.
func TestD2_clockSetBackABit_longerConfirmationCounts(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		e := k.KV.Shared()
		id, now, err := e.Join(ctx, "a", time.Minute)
		k.Must(err)
		w := engine.Write{Record: engine.Record{Key: "k", Due: now, Data: []byte("x")}, Kind: "kind", If: engine.IfAbsent, Hold: true}
		r, err := e.Commit(ctx, id, []engine.Batch{{w}})
		k.Must(err)
		c := []engine.Claim{{Key: "k", Revision: r[0].Written[0].Revision}}
		for _, within := range []time.Duration{600 * time.Millisecond, 100 * time.Millisecond} {
			held, _, err := e.Confirm(ctx, id, c, within)
			if err != nil || !held[0] {
				t.Fatal(held, err)
			}
			k.KV.Step(-time.Millisecond)
		}
		time.Sleep(110 * time.Millisecond)
		r, err = e.Commit(ctx, 0, []engine.Batch{{{Record: engine.Record{Key: "k"}, If: engine.IfPresent}}})
		if err != nil || r[0].Wait < 400*time.Millisecond {
			t.Errorf("after 110 ms of a start that may begin within 600 ms: %+v, %v", r, err)
		}
	})
}

// A user's transaction removes a task whose start is confirmed. Its commit waits until the run can no longer begin.
func TestD2_transactionOfATaskConfirmedAhead(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		k.Nodes[0].Add(durable.Task{Key: "k", Kind: "note", Delay: sec / 2, Interval: sec, Times: durable.Forever})
		k.After(sec/2 - aheadLead + 5*time.Millisecond)
		tx := k.Engine.Begin()
		unmet, err := tx.Write(ctx, engine.Write{Record: engine.Record{Key: "k"}, If: engine.IfPresent})
		if err != nil || unmet != nil {
			t.Fatal(unmet, err)
		}
		k.Must(tx.Commit())
		k.Gone("k")
	})
}

// A task that was replaced is not kept until its slot.
func TestAhead_replacedTasks_takeNoMemory(t *testing.T) {
	onAhead(t, func(t *testing.T, k *kit.Kit, e *aheadEngine) {
		before := testkit.Heap()
		payload := make([]byte, durable.MaxPayload)
		for range 100 {
			k.Must(k.Nodes[0].SetTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: 3 * sec / 2, Payload: payload}))
			k.After(2 * time.Millisecond) // the wheel has forgotten the task before
		}
		if more := testkit.Heap() - before; more > 30*durable.MaxPayload {
			t.Errorf("one task takes %d MiB", more>>20)
		}
	})
}
