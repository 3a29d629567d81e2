// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A verb whose call has failed says so once, however many tasks it concerns.
func TestUnknown_isSaidOnce(t *testing.T) {
	const said = "(it may or may not have taken effect)"
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		m := k.Nodes[0]
		many := make([]durable.Task, 10)
		for i := range many {
			many[i] = durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: hour}
		}
		verbs := map[string]func() error{
			"AddTask": func() error { return m.AddTask(ctx, many...) },
			"SetTask": func() error { return m.SetTask(ctx, many[0]) },
			"RemoveTask": func() error {
				m.Add(durable.Task{Key: "there", Kind: "note", Delay: hour})
				m.Link.Next("Commit", enginetest.Fault{Fail: true})
				return m.RemoveTask(ctx, "there")
			},
		}
		for name, verb := range verbs {
			if name != "RemoveTask" { // which needs something to remove
				m.Link.Next("Commit", enginetest.Fault{Fail: true})
			}
			err := verb()
			if !errors.Is(err, durable.ErrUnavailable) || strings.Count(err.Error(), said) != 1 {
				t.Errorf("%s: %v", name, err)
			}
		}
		m.Link.Next("Commit Notes", enginetest.Fault{Fail: true})
		if err := m.PauseKind(ctx, "note"); err == nil || strings.Count(err.Error(), said) != 1 {
			t.Errorf("PauseKind: %v", err)
		}
	})
}

// After a lost answer, a drain, its end or a set can be repeated.
func TestUnknown_drainsAndSets(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		m := k.Nodes[0]
		twice := func(name, method string, verb func() error, done func() bool) {
			m.Link.Next(method, enginetest.Fault{Lose: true})
			if err := verb(); err != nil && !errors.Is(err, durable.ErrUnavailable) {
				t.Errorf("%s, with a lost answer of %s: %v", name, method, err)
			}
			k.After(3 * time.Second)
			if err := verb(); err != nil || !done() {
				t.Errorf("%s once more: %v, done %v", name, err, done())
			}
		}
		drained := func() bool {
			nodes, err := m.Scheduler.Nodes(ctx)
			k.Must(err)
			return slices.ContainsFunc(nodes, func(n durable.NodeInfo) bool { return n.Name == "node 2" && n.Drained })
		}
		twice("Drain", "Commit Notes", func() error { return m.Drain(ctx, "node 2") }, drained)
		twice("Undrain", "Commit Notes", func() error { return m.Undrain(ctx, "node 2") }, func() bool { return !drained() })
		for i, method := range []string{"Commit", "Commit Notes"} {
			set := durable.TaskSet{Prefix: "set/", Version: int64(i), Tasks: []durable.Task{
				{Key: fmt.Sprint("set/", i), Kind: "note", Interval: hour}, {Key: "set/same", Kind: "note", Interval: hour},
			}}
			twice("Schedule", method, func() error {
				_, err := m.Schedule(ctx, set)
				return err
			}, func() bool {
				var keys []string
				for info, err := range m.AllPrefix(ctx, "set/", "") {
					k.Must(err)
					keys = append(keys, info.Key)
				}
				return slices.Equal(keys, []string{set.Tasks[0].Key, "set/same"})
			})
		}
	})
}

// A full engine refuses each commit, with an error that says that it had no effect.
type full struct{ engine.Engine }

func (full) Commit(context.Context, engine.MemberID, []engine.Batch) ([]engine.Result, error) {
	return nil, fmt.Errorf("the disk is full: %w", engine.ErrNotDone)
}

func (full) SetSettings(context.Context, []byte, int64) (bool, error) {
	return false, fmt.Errorf("the disk is full: %w", engine.ErrNotDone)
}

// If a verb certainly had no effect, its error does not say that it may have had one.
func TestUnknown_isNotSaidOfACallThatHadNoEffect(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		s := k.Join(func(to engine.Engine) engine.Engine { return full{to} })
		task := durable.Task{Key: "a", Kind: "note", Delay: hour}
		for name, err := range map[string]error{
			"AddTask": s.AddTask(ctx, task), "SetTask": s.SetTask(ctx, task), "PauseKind": s.PauseKind(ctx, "note"),
		} {
			if !errors.Is(err, engine.ErrNotDone) || strings.Contains(err.Error(), "not known") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A brieflyFull engine refuses commits until the given time.
type brieflyFull struct {
	engine.Engine
	until time.Time
}

func (e brieflyFull) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch,
) ([]engine.Result, error) {
	if time.Now().Before(e.until) {
		return full{}.Commit(ctx, by, batches)
	}
	return e.Engine.Commit(ctx, by, batches)
}

// A call that certainly had no effect is retried for a second.
func TestNode_makesACallThatHadNoEffectAgain(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		m := k.Join(func(to engine.Engine) engine.Engine {
			return brieflyFull{to, time.Now().Add(sec / 2)}
		}).Start()
		m.Add(durable.Task{Key: "a", Kind: "note", Delay: hour})
		k.Info("a")
	})
}

// The answer to a commit is lost. Many callers have set one task, and each learns whether the last of them has set it.
func TestUnknown_ofManyThatSetOneTask_isAnsweredForAll(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		m := k.Nodes[0]
		m.Link.Next("Commit", enginetest.Fault{Delay: sec}, enginetest.Fault{Delay: sec}, enginetest.Fault{Lose: true})
		errs := make(chan error)
		for i := range 10 {
			go func() {
				errs <- m.SetTask(ctx, durable.Task{Key: "a", Kind: "note", Delay: hour + time.Duration(i)*sec})
			}()
		}
		for range 10 {
			k.Must(<-errs)
		}
	})
}

// An undeleting engine fails the test at a write that deletes a task unconditionally: no verb of the test does that.
type undeleting struct {
	engine.Engine
	t *testing.T
}

func (e undeleting) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	for _, batch := range batches {
		for _, w := range batch {
			if w.If == engine.Always && w.Data == nil {
				e.t.Errorf("%q is deleted", w.Key)
			}
		}
	}
	return e.Engine.Commit(ctx, by, batches)
}

// Many callers set one task that a transaction has locked. When the transaction has ended each of them sets it.
func TestNode_manyThatSetALockedTask_setIt(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		m := k.Join(func(to engine.Engine) engine.Engine { return undeleting{to, t} })
		task := durable.Task{Key: "a", Kind: "note", Delay: hour}
		m.Add(task)
		tx := k.Engine.Begin()
		k.Must(tx.Lock(ctx, "a"))
		errs := make(chan error, 10)
		for range cap(errs) {
			go func() { errs <- m.SetTask(ctx, task) }()
		}
		k.After(sec)
		tx.Rollback()
		for range cap(errs) {
			k.Must(<-errs)
		}
		k.Info("a")
	})
}

// onLimited runs the test on a node over an engine that allows 2,000 bytes per task, possibly wrapped by over.
func onLimited(t *testing.T, over func(engine.Engine) engine.Engine, test func(t *testing.T, s *durable.Scheduler)) {
	synctest.Test(t, func(t *testing.T) {
		e, err := kv.New(ctx, memory.Limited(engine.Limits{Value: 2000}))
		if err != nil {
			t.Fatal(err)
		}
		s, err := durable.New(ctx, over(e))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Shutdown(ctx) }()
		long := func(context.Context, durable.Run) error { return errors.New(strings.Repeat("x", 900)) }
		if err := errors.Join(s.Handle("note", long, durable.WithRetry(3, sec, sec)), s.Start()); err != nil {
			t.Fatal(err)
		}
		test(t, s)
	})
}

func large(of durable.Task) durable.Task {
	of.Payload = make([]byte, 3000)
	return of
}

// A task that is too large for the engine is invalid at once, and no other verb fails with it: none in the same commit,
// none that sets the same task, and none after a call that had no effect.
func TestNode_refusesWhatTheEngineHasNoRoomFor(t *testing.T) {
	for _, full := range []time.Duration{0, 100 * time.Millisecond} {
		over := func(to engine.Engine) engine.Engine { return undeleting{brieflyFull{to, time.Now().Add(full)}, t} }
		onLimited(t, over, func(t *testing.T, s *durable.Scheduler) {
			began := time.Now()
			var wait sync.WaitGroup
			for i := range 12 {
				wait.Go(func() {
					task, verb := durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: hour}, s.AddTask
					if i%2 == 0 {
						task.Key, verb = "one", func(ctx context.Context, tasks ...durable.Task) error { return s.SetTask(ctx, tasks[0]) }
					}
					big := i%3 == 2
					if big {
						task = large(task)
					}
					err := verb(ctx, task)
					if big && err == nil && task.Key == "one" {
						return // another caller has replaced it at once
					}
					if errors.Is(err, durable.ErrInvalidTask) != big || (err != nil) != big || errors.Is(err, durable.ErrUnavailable) {
						t.Errorf("%v, task %d: %v", full, i, err)
					}
				})
			}
			wait.Wait()
			if ok, err := s.Exist(ctx, "one"); err != nil || !ok {
				t.Errorf("%v: a task that was set is there: %v, %v", full, ok, err)
			}
			if took := time.Since(began); took > full+100*time.Millisecond {
				t.Errorf("%v: it took %v", full, took)
			}
			if s.Stats().Node.Away {
				t.Errorf("%v: the engine counts as away", full)
			}
		})
	}
}

// A task may fit, but not together with the error texts of its attempts. It loses these, and is parked in the end.
func TestNode_forgetsTheErrorsThatTheEngineHasNoRoomFor(t *testing.T) {
	none := func(to engine.Engine) engine.Engine { return to }
	onLimited(t, none, func(t *testing.T, s *durable.Scheduler) {
		if err := s.AddTask(ctx, durable.Task{Key: "a", Kind: "note", Payload: make([]byte, 1500)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if i, ok, err := s.Get(ctx, "a"); err != nil || !ok || i.State != durable.Parked || i.Attempts != 3 {
			t.Errorf("the task is %+v, %v, %v", i, ok, err)
		}
	})
}
