// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	"github.com/sirupsen/logrus"
)

// A large set whose tasks change all the time is still applied.
func TestSchedule_largeSetOfRunningTasks(t *testing.T) {
	kit.OnNodes(t, 0, func(t *testing.T, k *kit.Kit) {
		const n = 3000
		a := k.Join(func(to engine.Engine) engine.Engine { return slowCommit{to, 20 * time.Millisecond} }).Start()
		a.Handle("k", ok)
		set := durable.TaskSet{Prefix: "c/"}
		for i := range n {
			set.Tasks = append(set.Tasks, durable.Task{Key: fmt.Sprintf("c/%05d", i), Kind: "k", Interval: time.Minute,
				Delay: time.Second + time.Duration(i)*time.Minute/n})
		}
		_, err := a.Schedule(ctx, set)
		k.Must(err)
		k.After(2 * time.Minute)
		for i := range set.Tasks {
			set.Tasks[i].Payload = []byte("x")
		}
		set.Version = 1
		within, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		began := time.Now()
		r, err := a.Schedule(within, set)
		if err != nil || r != (durable.SetResult{Changed: n}) {
			t.Errorf("Schedule of %d tasks that run every minute returns %+v, %v after %v", n, r, err, time.Since(began))
		}
		k.Runs()
	})
}

// A slowCommit is an engine whose commits take some time.
type slowCommit struct {
	engine.Engine
	by time.Duration
}

func (e slowCommit) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	time.Sleep(e.by)
	return e.Engine.Commit(ctx, by, batches)
}

// A run in progress is not repeated when its task changes: the next one follows on the grid.
func TestSchedule_ofARunningTask(t *testing.T) {
	test := func(t *testing.T, k *kit.Kit) {
		var now, most atomic.Int32
		k.Handle("k", func(context.Context, durable.Run) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			time.Sleep(10 * time.Second)
			return nil
		})
		set := durable.TaskSet{Prefix: "c/", Tasks: []durable.Task{{Key: "c/a", Kind: "k", Interval: time.Hour, Delay: time.Second}}}
		_, err := k.On().Schedule(ctx, set)
		k.Must(err)
		k.After(3 * time.Second)
		set.Version, set.Tasks[0].Payload = 1, []byte("x")
		r, err := k.On().Schedule(ctx, set)
		k.Must(err)
		k.After(30 * time.Second)
		if calls := k.Runs(); r.Changed != 1 || len(calls) != 1 || most.Load() != 1 {
			t.Errorf("%+v: %d runs of one period, %d at once: %v", r, len(calls), most.Load(), calls)
		}
		if i := k.Info("c/a"); i.Next.Before(time.Now().Add(50*time.Minute)) || string(i.Payload) != "x" {
			t.Errorf("the changed task is %v", i)
		}
	}
	t.Run("store", func(t *testing.T) { kit.OnOwn(t, test) })
	t.Run("node", func(t *testing.T) { kit.OnNodes(t, 2, test) })
}

// Nor is a run repeated that starts while the change is on its way.
func TestSchedule_ofATaskThatStartsMeanwhile(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(10 * time.Second); return nil })
		set := durable.TaskSet{Prefix: "c/", Tasks: []durable.Task{{Key: "c/a", Kind: "k", Interval: time.Hour, Delay: time.Second}}}
		_, err := k.Nodes[1].Schedule(ctx, set)
		k.Must(err)
		k.After(800 * time.Millisecond)
		k.Nodes[1].Link.Next("Commit", enginetest.Fault{Delay: 500 * time.Millisecond})
		set.Version, set.Tasks[0].Payload = 1, []byte("x")
		r, err := k.Nodes[1].Schedule(ctx, set)
		k.Must(err)
		k.After(30 * time.Second)
		if calls := k.Runs(); r.Changed != 1 || len(calls) != 1 {
			t.Errorf("%+v: %d runs of one period: %v", r, len(calls), calls)
		}
		if i := k.Info("c/a"); i.Next.Before(time.Now().Add(50*time.Minute)) || string(i.Payload) != "x" {
			t.Errorf("the changed task is %v", i)
		}
	})
}

// When the engine crashes, it loses the starts. A run in progress of a changed task is then repeated with its token, and
// the first one can no longer end it.
func TestSchedule_ofARunningTask_whoseStartACrashLost(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", func(context.Context, durable.Run) error { time.Sleep(10 * time.Second); return nil })
		set := durable.TaskSet{Prefix: "c/", Tasks: []durable.Task{{Key: "c/a", Kind: "k", Interval: time.Hour, Delay: time.Second}}}
		_, err := k.On().Schedule(ctx, set)
		k.Must(err)
		k.After(3 * time.Second)
		k.Restart()
		set.Version, set.Tasks[0].Payload = 1, []byte("x")
		r, err := k.On().Schedule(ctx, set)
		k.Must(err)
		k.After(30 * time.Second)
		calls := k.Runs()
		if len(calls) != 2 || calls[0].Token != calls[1].Token || calls[1].Fence <= calls[0].Fence || string(calls[1].Payload) != "x" {
			t.Errorf("%+v: the runs are %v", r, calls)
		}
		if i := k.Info("c/a"); i.Next.Before(time.Now().Add(50*time.Minute)) || string(i.Payload) != "x" {
			t.Errorf("the changed task is %v", i)
		}
	})
}

// A set is refused if it would remove the tasks of another set, or the other way round.
func TestSchedule_overlappingSets(t *testing.T) {
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok)
		declare := func(prefix string, keys ...string) error {
			set := durable.TaskSet{Prefix: prefix}
			for _, key := range keys {
				set.Tasks = append(set.Tasks, durable.Task{Key: key, Kind: "k", Interval: time.Hour})
			}
			_, err := k.On().Schedule(ctx, set)
			return err
		}
		refused := func(prefix string, keys ...string) {
			t.Helper()
			if err := declare(prefix, keys...); !errors.Is(err, durable.ErrInvalidTask) || !strings.Contains(err.Error(), "overlaps") {
				t.Errorf("the set %q with %q: %v", prefix, keys, err)
			}
		}
		k.Must(declare("cron/eu/", "cron/eu/a"), declare("other/", "other/a"))
		refused("cron/", "cron/b")
		refused("cron/eu/a/", "cron/eu/a/b")
		k.Must(declare("cron/", "cron/b", "cron/eu/a"), declare("cron/", "cron/b", "cron/eu/a")) // has taken over the other's
		refused("cron/eu/", "cron/eu/a")
		refused("cron/", "cron/b")
		k.Must(declare("cron/", "cron/eu/a"), declare("cron/eu/"), declare("cron/", "cron/b"), declare("cron/", "cron/c"))
		for key, want := range map[string]bool{"cron/b": false, "cron/c": true, "cron/eu/a": false, "other/a": true} {
			if is, err := k.On().Exist(ctx, key); is != want || err != nil {
				t.Errorf("%s exists: %v, %v", key, is, err)
			}
		}
	})
}

// A set that changes without a new version is reported, because a process with the earlier set would undo the change.
func TestSchedule_sameVersion_isReported(t *testing.T) {
	var reports atomic.Int32
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(callingHook(func(e *logrus.Entry) {
		if strings.Contains(e.Message, "without a new version") && e.Data["set"] == "c/" {
			reports.Add(1)
		}
	}))
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		reports.Store(0)
		set := durable.TaskSet{Prefix: "c/", Version: 3, Tasks: []durable.Task{
			{Key: "c/a", Kind: "note", Interval: time.Hour}, {Key: "c/b", Kind: "note", Interval: time.Hour},
		}}
		for i, step := range []struct {
			change func()
			want   int32
		}{
			{func() {}, 0},
			{func() {}, 0},
			{func() { set.Version, set.Tasks[0].Payload = 4, []byte("x") }, 0},
			{func() { set.Tasks[0].Payload = []byte("y") }, 1},
			{func() {}, 1},
			{func() { set.Tasks = set.Tasks[:1] }, 2},
			{func() { set.Version, set.Tasks[0].Payload = 3, nil }, 2},
		} {
			step.change()
			_, err := k.On().Schedule(ctx, set)
			k.Must(err)
			k.After(time.Second)
			if got := reports.Load(); got != step.want {
				t.Errorf("after step %d there are %d reports, want %d", i, got, step.want)
			}
		}
	}, durable.WithLogger(log))
}

// While a task of the set is locked, Schedule waits. Shutdown does not wait for it.
func TestSchedule_shutdownEndsIt(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		a := k.Nodes[0]
		a.Handle("k", func(context.Context, durable.Run) error { return nil })
		set := durable.TaskSet{Prefix: "c/", Tasks: []durable.Task{{Key: "c/a", Kind: "k", Interval: time.Hour}}}
		_, err := a.Schedule(ctx, set)
		k.Must(err)
		tx := k.Engine.Begin()
		k.Must(tx.Lock(ctx, "c/a"))
		time.AfterFunc(time.Hour, tx.Rollback)
		set.Version, set.Tasks[0].Payload = 1, []byte("x")
		answered := make(chan error, 1)
		go func() { _, err := a.Schedule(context.Background(), set); answered <- err }()
		k.After(time.Second)
		began := time.Now()
		err = a.Shutdown(context.Background())
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("Shutdown returns %v after %v", err, took)
		}
		if err := <-answered; !errors.Is(err, durable.ErrStopped) {
			t.Errorf("Schedule returns %v", err)
		}
		k.Nodes = nil
	})
}

// The version of a refused set does not count.
func TestSchedule_refusedSet_keepsTheVersion(t *testing.T) {
	test := func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok)
		var many []durable.Task
		for i := range durable.MaxSet + 1 {
			many = append(many, durable.Task{Key: fmt.Sprint("c/", i), Kind: "k", Delay: time.Hour})
		}
		k.On().Add(many...)
		set := durable.TaskSet{Prefix: "c/", Version: 5}
		if _, err := k.On().Schedule(ctx, set); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("a set with too many tasks: %v", err)
		}
		k.Must(k.On().RemoveTask(ctx, "c/0"))
		set.Version = 4
		r, err := k.On().Schedule(ctx, set)
		if r != (durable.SetResult{Removed: durable.MaxSet}) || err != nil {
			t.Errorf("after a refused version, a lower one returns %+v, %v", r, err)
		}
	}
	t.Run("store", func(t *testing.T) { kit.OnOwn(t, test) })
	t.Run("node", func(t *testing.T) { kit.OnNodes(t, 1, test) })
}

func TestSchedule_unreadableTask(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok)
		_, err := k.Engine.Commit(ctx, 0, []engine.Batch{{{Record: engine.Record{Key: "c/x", Due: time.Now().Add(time.Hour).UnixNano(), Data: []byte{9, 1, 2}}, Kind: "k", If: engine.Always}}})
		k.Must(err)
		_, err = k.On().Schedule(ctx, durable.TaskSet{Prefix: "c/"})
		if errors.Is(err, durable.ErrUnavailable) || !errors.Is(err, durable.ErrVersion) {
			t.Errorf("an unreadable task under the prefix: %v", err)
		}
	})
}

// A caller gives up during a commit, which may still arrive. The next caller waits until the hold of the first expires.
func TestSchedule_callerThatGivesUpDuringACommit(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok)
		a, b := k.Nodes[0], k.Nodes[1]
		set := durable.TaskSet{Prefix: "c/", Tasks: []durable.Task{{Key: "c/a", Kind: "k", Interval: time.Hour}}}
		_, err := a.Schedule(ctx, set)
		k.Must(err)
		tx := k.Engine.Begin()
		k.Must(tx.Lock(ctx, "c/a"))
		set.Tasks[0].Payload = []byte("x")
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err = a.Schedule(short, set); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while a task is locked: %v", err)
		}
		tx.Rollback()
		began := time.Now()
		_, err = b.Schedule(ctx, set)
		if took := time.Since(began); took < time.Second || took > 16*time.Second || err != nil {
			t.Errorf("the next caller returns %v after %v", err, took)
		}
	})
}

// A lateCommit is an engine on which a commit of tasks fails, and arrives later.
type lateCommit struct {
	engine.Engine
	armed *atomic.Bool
}

func (e lateCommit) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if e.armed.Load() && len(batches) > 0 && len(batches[0]) > 0 && !batches[0][0].Note {
		e.armed.Store(false)
		go func() {
			time.Sleep(engine.MaxStale) // later, the engine would refuse it
			_, _ = e.Engine.Commit(context.Background(), by, batches)
		}()
		return nil, errors.New("connection reset")
	}
	return e.Engine.Commit(ctx, by, batches)
}

// A newer set waits until a commit of an older one can no longer arrive.
func TestSchedule_lateCommitOfAnOlderSet(t *testing.T) {
	t.Run("another node", func(t *testing.T) { lateCommitOfAnOlderSet(t, func(k *kit.Kit) *kit.Node { return k.Nodes[0] }) })
	t.Run("the same node", func(t *testing.T) { lateCommitOfAnOlderSet(t, func(k *kit.Kit) *kit.Node { return k.Nodes[1] }) })
}

func lateCommitOfAnOlderSet(t *testing.T, by func(k *kit.Kit) *kit.Node) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		var armed atomic.Bool
		a := k.Join(func(to engine.Engine) engine.Engine { return lateCommit{to, &armed} }).Start()
		k.Handle("k", ok)
		old := durable.TaskSet{Prefix: "c/", Version: 1, Tasks: []durable.Task{{Key: "c/old", Kind: "k", Interval: time.Hour}}}
		next := durable.TaskSet{Prefix: "c/", Version: 2, Tasks: []durable.Task{{Key: "c/new", Kind: "k", Interval: time.Hour}}}
		armed.Store(true)
		_, err := a.Schedule(ctx, old)
		if !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("without an answer: %v", err)
		}
		if r, err := by(k).Schedule(ctx, next); r != (durable.SetResult{Added: 1, Removed: 1}) || err != nil {
			t.Errorf("the newer set returns %+v, %v", r, err)
		}
		k.After(5 * time.Second)
		if ok, _ := k.Nodes[0].Exist(ctx, "c/old"); ok {
			t.Errorf("a task of the older set exists")
		}
	})
}

// A commit takes longer than the hold. The call that sent it does not finish before the commit can no longer arrive, so
// that it cannot change the next set.
func TestSchedule_commitThatTakesLongerThanTheHold(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok)
		a, b := k.Nodes[0], k.Nodes[1]
		old := durable.TaskSet{Prefix: "c/", Version: 1, Tasks: []durable.Task{{Key: "c/old", Kind: "k", Interval: time.Hour}}}
		next := durable.TaskSet{Prefix: "c/", Version: 2, Tasks: []durable.Task{{Key: "c/new", Kind: "k", Interval: time.Hour}}}
		a.Link.Next("Commit", enginetest.Fault{Delay: 14 * time.Second})
		_, err := a.Schedule(ctx, old)
		k.Must(err)
		_, err = b.Schedule(ctx, next)
		k.Must(err)
		k.After(20 * time.Second)
		k.Gone("c/old")
		k.Info("c/new")
	})
}

// Callers give up while the node works. It is for the race detector.
func TestSchedule_callersThatGiveUp(t *testing.T) {
	s, err := durable.New(ctx, memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Shutdown(ctx) }()
	if err := s.Handle("k", ok); err != nil {
		t.Fatal(err)
	}
	set := durable.TaskSet{Prefix: "c/"}
	for i := range 1000 {
		set.Tasks = append(set.Tasks, durable.Task{Key: fmt.Sprint("c/", i), Kind: "k", Interval: time.Hour})
	}
	for i := range 20 {
		for j := range set.Tasks {
			set.Tasks[j].Payload = []byte{byte(i)}
		}
		set.Version = int64(i)
		within, cancel := context.WithTimeout(ctx, time.Duration(i%20)*time.Millisecond)
		if r, err := s.Schedule(within, set); err != nil && (!errors.Is(err, context.DeadlineExceeded) || r != (durable.SetResult{})) {
			t.Errorf("Schedule returns %+v, %v", r, err)
		}
		cancel()
	}
}

// A paused, parked task with a new definition.
func TestSchedule_pausedAndParked(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", func(context.Context, durable.Run) error { return durable.Park(errors.New("no")) })
		set := durable.TaskSet{Prefix: "c/", Tasks: []durable.Task{{Key: "c/a", Kind: "k", Interval: time.Hour, Delay: time.Second}}}
		_, err := k.On().Schedule(ctx, set)
		k.Must(err)
		k.After(3 * time.Second)
		k.Must(k.On().Pause(ctx, "c/a"))
		set.Tasks[0].Payload = []byte("x")
		_, err = k.On().Schedule(ctx, set)
		k.Must(err)
		k.Must(k.On().Resume(ctx, "c/a"))
		if i := k.Info("c/a"); i.State != durable.Scheduled {
			t.Errorf("a task that was parked and then paused has changed, and is %v", i)
		}
	})
}

// A process is suspended while it applies a set: its clock stands still, and the engine's does not. When it continues,
// another version has been stored, and it changes nothing of that.
func TestSchedule_ofAProcessThatWasSuspended(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok)
		a, b := k.Nodes[0], k.Nodes[1]
		set := func(version int64) durable.TaskSet {
			key := fmt.Sprint("c/", version)
			return durable.TaskSet{Prefix: "c/", Version: version, Tasks: []durable.Task{{Key: key, Kind: "k", Interval: 24 * time.Hour}}}
		}
		_, err := b.Schedule(ctx, set(1))
		k.Must(err)
		a.Link.Next("Walk ByKey", enginetest.Fault{Delay: 8 * time.Second})
		var r durable.SetResult
		done := make(chan error, 1)
		go func() {
			var err error
			r, err = a.Schedule(ctx, set(2))
			done <- err
		}()
		k.After(time.Second)
		k.KV.Step(time.Minute)
		k.After(time.Second)
		r3, err := b.Schedule(ctx, set(3))
		k.Must(err)
		k.Must(<-done)
		if r3 != (durable.SetResult{Added: 1, Removed: 1}) || r != (durable.SetResult{Newer: 3}) {
			t.Errorf("version 3 returns %+v, and then version 2 %+v", r3, r)
		}
		k.Gone("c/2")
		k.Info("c/3")
	})
}

// After a process has ended halfway, the next set is still compared with the other sets.
func TestSchedule_overlapAfterAProcessEnded(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok)
		set := func(prefix, key string) durable.TaskSet {
			return durable.TaskSet{Prefix: prefix, Tasks: []durable.Task{{Key: key, Kind: "k", Interval: time.Hour}}}
		}
		a, b := k.Nodes[0], k.Nodes[1]
		a.Link.Next("Commit", enginetest.Fault{Fail: true})
		if _, err := a.Schedule(ctx, set("c/", "c/a")); !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("without an answer: %v", err)
		}
		_, err := b.Schedule(ctx, set("c/eu/", "c/eu/a"))
		k.Must(err)
		if r, err := b.Schedule(ctx, set("c/", "c/a")); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("a set that would remove a task of another one returns %+v, %v", r, err)
		}
		k.Info("c/eu/a")
	})
}

// A version is finished after a lost answer, or is rolled back after a failure. Neither is reported as a change without
// a new version.
func TestSchedule_ofAVersionThatWasNotFinished_isNotReported(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(callingHook(func(e *logrus.Entry) {
		if strings.Contains(e.Message, "without a new version") {
			t.Errorf("the log says: %s", e.Message)
		}
	}))
	for at := range 3 {
		kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
			k.Handle("k", ok)
			set := durable.TaskSet{Prefix: "c/", Tasks: []durable.Task{{Key: "c/a", Kind: "k", Interval: time.Hour}}}
			_, err := k.On().Schedule(ctx, set)
			k.Must(err)
			set.Version, set.Tasks[0].Payload = 1, []byte("x")
			link, n := k.Nodes[0].Link, 0
			link.SetFaults(func(method string) (f enginetest.Fault) {
				if strings.HasPrefix(method, "Commit") {
					f.Lose = n == at
					n++
				}
				return f
			})
			_, err = k.On().Schedule(ctx, set)
			if lost := err != nil; lost != (at < 2) {
				t.Errorf("the answer of commit %d is lost, and Schedule returns %v", at, err)
			}
			_, err = k.On().Schedule(ctx, set)
			k.Must(err)
			k.After(10 * time.Second)

			next := durable.TaskSet{Prefix: "c/", Version: 2, Tasks: []durable.Task{{Key: "c/b", Kind: "k", Interval: time.Hour}}}
			link.SetFaults(nil)
			link.Next("Commit", enginetest.Fault{Lose: true})
			if _, err := k.On().Schedule(ctx, next); err == nil {
				t.Error("Schedule returns nil")
			}
			if r, err := k.On().Schedule(ctx, set); r.Added+r.Removed == 0 || err != nil {
				t.Errorf("the rollback returns %+v, %v", r, err)
			}
			k.After(10 * time.Second)
		}, durable.WithLogger(log))
	}
}

// A hold that was taken by a clock that was years ahead holds back no version.
func TestSchedule_holdOfAClockThatWasAhead(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		k.Handle("k", ok)
		set := durable.TaskSet{Prefix: "c/", Version: 1, Tasks: []durable.Task{{Key: "c/k", Kind: "k", Interval: time.Hour}}}
		until := time.Now().AddDate(10, 0, 0).UnixNano()
		note := engine.Write{Record: engine.Record{Key: "declared c/", Data: fmt.Appendf(nil, `{"version":1,"holder":1,"until":%d}`, until)},
			If: engine.IfAbsent, Note: true}
		results, err := k.Engine.Commit(ctx, 0, []engine.Batch{{note}})
		if k.Must(err); len(results[0].Unmet) > 0 {
			t.Fatal(results)
		}
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if r, err := k.Schedule(short, set); r.Added != 1 || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A hanging is an engine whose commits of notes hang.
type hanging struct {
	engine.Engine
	hangs atomic.Bool
}

func (h *hanging) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	if h.hangs.Load() && batches[0][0].Note {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Engine.Commit(ctx, by, batches)
}

// Schedule returns ErrUnavailable if the engine does not answer for longer than a call holds a set. Its caller has not
// given up.
func TestSchedule_withoutAnAnswer_isUnavailable(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		k.Share()
		var h *hanging
		n := k.Join(func(to engine.Engine) engine.Engine { h = &hanging{Engine: to}; return h })
		h.hangs.Store(true)
		_, err := n.Schedule(ctx, durable.TaskSet{Prefix: "p:", Tasks: []durable.Task{{Key: "p:1", Kind: "note", Interval: hour}}})
		if !errors.Is(err, durable.ErrUnavailable) {
			t.Errorf("Schedule: %v", err)
		}
		h.hangs.Store(false)
	})
}

// The sets are listed, with the node that has declared each version, and with a version that is not applied in full.
func TestSets(t *testing.T) {
	kit.OnNodes(t, 2, func(t *testing.T, k *kit.Kit) {
		set := func(prefix string, version int64) durable.TaskSet {
			return durable.TaskSet{Prefix: prefix, Version: version, Tasks: []durable.Task{{Key: prefix + "a", Kind: "note", Interval: time.Hour}}}
		}
		declare := func(n *kit.Node, s durable.TaskSet) {
			t.Helper()
			_, err := n.Schedule(ctx, s)
			k.Must(err)
		}
		declare(k.Nodes[0], set("b/", 3))
		first := time.Now()
		k.After(time.Hour)
		declare(k.Nodes[1], set("b/", 3)) // as each process does at its start
		declare(k.Nodes[1], set("a/", 7))
		note := engine.Write{Record: engine.Record{Key: "declared c/", Data: []byte(`{"version":-1,"applying":5}`)}, Note: true, If: engine.Always}
		_, err := k.Engine.Commit(ctx, 0, []engine.Batch{{note}})
		k.Must(err)
		sets, err := k.Nodes[0].Sets(ctx)
		k.Must(err)
		want := []durable.SetInfo{{"a/", 7, -1, sets[0].At, k.Nodes[1].Name}, {"b/", 3, -1, sets[1].At, k.Nodes[0].Name}, {"c/", -1, 5, time.Time{}, ""}}
		if !slices.Equal(sets, want) {
			t.Errorf("the sets are %+v, want %+v", sets, want)
		}
		if d := sets[1].At.Sub(first); d.Abs() > time.Minute {
			t.Errorf("the set is of %v, and was declared %v later", sets[1].At, d)
		}
	})
}
