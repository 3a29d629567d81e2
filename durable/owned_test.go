// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var (
	errDisk   = errors.New("the disk is on fire")
	errDamage = fmt.Errorf("%w: table 7", durable.ErrCorrupt)
)

// An ownKV is an exclusive KV. While its flags are set, its calls fail, Get only for tasks. They fail with errDisk or, if
// damaged is set, errDamage. Each Scan takes the time scanTakes. While pastHangs is set, a Scan of free tasks hangs if it begins
// at one that is due already.
// While hangs is set, Commit hangs. It reports a failure when failed is closed.
type ownKV struct {
	*memory.KV
	commit, get, scan, damaged, hangs atomic.Bool
	commits, scans, closed            atomic.Int32
	scanTakes                         time.Duration
	pastHangs                         atomic.Bool
	failed                            chan struct{}
}

func (f *ownKV) Exclusive()              {}
func (f *ownKV) Failed() <-chan struct{} { return f.failed }
func (f *ownKV) Err() error              { return errDamage }
func (f *ownKV) Close() error            { f.closed.Add(1); return nil }

func (f *ownKV) err() error {
	if f.damaged.Load() {
		return errDamage
	}
	return errDisk
}

func (f *ownKV) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	f.commits.Add(1)
	switch {
	case f.hangs.Load():
		time.Sleep(24 * hour)
	case f.commit.Load():
		return nil, errDisk
	}
	return f.KV.Commit(ctx, txs...)
}

func (f *ownKV) Get(ctx context.Context, keys ...string) ([]engine.Entry, error) {
	if f.get.Load() && slices.ContainsFunc(keys, func(key string) bool { return key[0] == 't' }) {
		return nil, f.err()
	}
	return f.KV.Get(ctx, keys...)
}

func (f *ownKV) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	f.scans.Add(1)
	if f.scan.Load() {
		return func(yield func(engine.Entry, error) bool) { yield(engine.Entry{}, f.err()) }
	}
	time.Sleep(f.scanTakes)
	if n := len(from) - 8; f.pastHangs.Load() && n > 0 && from[0] == 'f' {
		if due := int64(binary.BigEndian.Uint64([]byte(from[n:])) ^ 1<<63); due <= time.Now().UnixNano() {
			return func(yield func(engine.Entry, error) bool) {
				<-ctx.Done()
				yield(engine.Entry{}, ctx.Err())
			}
		}
	}
	return f.KV.Scan(ctx, from, to)
}

// onOwn runs the test with a started scheduler on an engine of its own.
func onOwn(t *testing.T, test func(t *testing.T, k *kit.Kit, f *ownKV, e engine.Engine), opts ...durable.Option) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		f := &ownKV{KV: memory.New(), failed: make(chan struct{})}
		e := joinOwn(k, f, opts...)
		k.Start()
		test(t, k, f, e)
		broken := k.Err()
		if err := k.Shutdown(ctx); !errors.Is(err, broken) {
			t.Errorf("shutdown: %v, Err was %v", err, broken)
		}
		k.Kill()
		k.After(25 * hour) // until a commit that hangs returns
		if n := f.closed.Load(); n != 1 {
			t.Errorf("the engine was closed %d times", n)
		}
	})
}

// joinOwn adds a scheduler on an engine of its own.
func joinOwn(k *kit.Kit, on engine.KV, opts ...durable.Option) engine.Engine {
	e, err := kv.New(ctx, on)
	k.Must(err)
	n := k.Use(durable.New(ctx, e, append([]durable.Option{durable.WithTick(tick), durable.WithLogger(testkit.Quiet())}, opts...)...))
	n.Handle("note", func(context.Context, durable.Run) error { return nil })
	return e
}

func TestOwned_failedCommit_endsChangesAndRuns(t *testing.T) {
	onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, _ engine.Engine) {
		near := durable.Task{Key: "near", Kind: "note", Delay: sec}
		far := durable.Task{Key: "far", Kind: "note", Delay: hour}
		k.Add(near, far)
		f.commit.Store(true)
		task := durable.Task{Key: "new", Kind: "note", Delay: tick}
		for range 2 {
			_, set := k.Schedule(ctx, durable.TaskSet{Prefix: "set/", Version: 1})
			for verb, err := range map[string]error{
				"AddTask": k.AddTask(ctx, task), "SetTask": k.SetTask(ctx, far), "RemoveTask": k.RemoveTask(ctx, "near"),
				"Reschedule": k.Reschedule(ctx, "far", sec), "PauseKind": k.PauseKind(ctx, "note"), "Schedule": set, "Err": k.Err(),
			} {
				if !errors.Is(err, durable.ErrBroken) || errors.Is(err, durable.ErrUnavailable) {
					t.Errorf("%s: %v", verb, err)
				}
			}
			if !errors.Is(k.Err(), errDisk) {
				t.Errorf("Err is %v", k.Err())
			}
			f.commit.Store(false) // it is too late
		}
		k.After(2 * hour)
		k.RanNothing()
		for key, want := range map[string]bool{"near": true, "far": true, "new": false} {
			if ok, err := k.Exist(ctx, key); ok != want || err != nil {
				t.Errorf("Exist(%q) = %v, %v", key, ok, err)
			}
		}
		if st := k.Stats(); st.Added != 2 || st.Removed != 0 || st.Pending != 2 {
			t.Errorf("the accounts are %+v", st)
		}
		if c, err := k.Counts(ctx); err != nil || !c.Whole || len(c.Kinds) != 1 || c.Kinds[0].Tasks != 2 {
			t.Errorf("the counts are %+v, %v", c, err)
		}
	})
}

func TestOwned_failedAcknowledgement_isSeen(t *testing.T) {
	onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, _ engine.Engine) {
		k.Handle("last", func(context.Context, durable.Run) error { f.commit.Store(true); return nil })
		k.Add(durable.Task{Key: "a", Kind: "last", Delay: sec})
		k.After(2 * sec)
		k.Ran("a")
		if !errors.Is(k.Err(), errDisk) {
			t.Errorf("Err is %v", k.Err())
		}
		if ok, err := k.Exist(ctx, "a"); !ok || err != nil {
			t.Errorf("the task whose run was not acknowledged: %v, %v", ok, err)
		}
	})
}

// A read that fails, without damage, fails the verb that made it and nothing else.
func TestOwned_failedRead_failsItsVerb(t *testing.T) {
	onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, _ engine.Engine) {
		k.Add(durable.Task{Key: "far", Kind: "note", Delay: hour})
		f.get.Store(true)
		_, _, get := k.Get(ctx, "far")
		task := durable.Task{Key: "far", Kind: "note", Delay: sec}
		for verb, err := range map[string]error{
			"Get": get, "RemoveTask": k.RemoveTask(ctx, "far"), "Reschedule": k.Reschedule(ctx, "far", sec),
			"AddTask": k.AddTask(ctx, task), "SetTask": k.SetTask(ctx, task),
		} {
			if !errors.Is(err, errDisk) || errors.Is(err, durable.ErrBroken) {
				t.Errorf("%s: %v", verb, err)
			}
		}
		f.get.Store(false)
		k.Must(k.Reschedule(ctx, "far", sec), k.Err())
		k.After(2 * sec)
		k.Ran("far")
	})
}

// A scheduler that cannot read due tasks must not behave as if nothing were due.
func TestOwned_failedReadOfDueTasks_isSeen(t *testing.T) {
	onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, _ engine.Engine) {
		k.After(sec) // the engine has read all tasks
		f.scan.Store(true)
		k.After(2 * time.Minute)
		if !errors.Is(k.Err(), errDisk) {
			t.Errorf("Err is %v", k.Err())
		}
	})
}

// Any read that meets damage fails the scheduler.
func TestOwned_damage_failsTheScheduler(t *testing.T) {
	for name, read := range map[string]func(k *kit.Kit, f *ownKV) error{
		"Get": func(k *kit.Kit, f *ownKV) error {
			f.get.Store(true)
			_, _, err := k.Get(ctx, "far")
			return err
		},
		"All": func(k *kit.Kit, f *ownKV) (last error) {
			f.scan.Store(true)
			for _, err := range k.All(ctx) {
				last = err
			}
			return last
		},
		"RemoveTask": func(k *kit.Kit, f *ownKV) error {
			f.get.Store(true)
			return k.RemoveTask(ctx, "far")
		},
		"a claim": func(k *kit.Kit, f *ownKV) error {
			f.scan.Store(true)
			k.After(2 * time.Minute)
			return k.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, _ engine.Engine) {
				k.Add(durable.Task{Key: "far", Kind: "note", Delay: hour})
				f.damaged.Store(true)
				for what, err := range map[string]error{"the read": read(k, f), "Err": k.Err()} {
					if !errors.Is(err, durable.ErrCorrupt) || !errors.Is(err, durable.ErrBroken) {
						t.Errorf("%s: %v", what, err)
					}
				}
				f.get.Store(false)
				f.scan.Store(false)
				k.After(2 * hour)
				k.RanNothing()
			})
		})
	}
}

// A record that cannot be decoded is damage, whether a verb or a claim meets it.
func TestOwned_recordThatCannotBeDecoded_failsTheScheduler(t *testing.T) {
	for name, data := range map[string]string{"short": "\x01\x05", "no sense": "\x01\x01\x00\x02\x00\x00\x00\x00\x00\x00"} {
		for _, by := range []string{"Get", "RemoveTaskWait", "a claim"} {
			t.Run(name+" "+by, func(t *testing.T) {
				onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, e engine.Engine) {
					w := engine.Write{Record: engine.Record{Key: "bad", Due: time.Now().Add(hour).UnixNano(), Data: []byte(data)},
						Kind: "note", If: engine.IfAbsent}
					_, err := e.Commit(ctx, 0, []engine.Batch{{w}})
					k.Must(err)
					switch by {
					case "Get":
						if _, _, err = k.Get(ctx, "bad"); !errors.Is(err, durable.ErrBroken) || !strings.Contains(err.Error(), "bad") {
							t.Errorf("Get: %v", err)
						}
					case "RemoveTaskWait":
						if err = k.Reschedule(ctx, "bad", sec); !errors.Is(err, durable.ErrBroken) {
							t.Errorf("Reschedule: %v", err)
						}
					default:
						k.After(2 * hour)
					}
					if !errors.Is(k.Err(), durable.ErrCorrupt) {
						t.Errorf("Err is %v", k.Err())
					}
					if err := k.AddTask(ctx, durable.Task{Key: "a", Kind: "note", Delay: sec}); !errors.Is(err, durable.ErrBroken) {
						t.Errorf("AddTask: %v", err)
					}
				})
			})
		}
	}
}

// A task that waits for a worker when the engine fails does not run.
func TestOwned_taskThatWaitsForAWorker_doesNotRun(t *testing.T) {
	onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, _ engine.Engine) {
		k.Handle("long", func(context.Context, durable.Run) error { time.Sleep(3 * sec); return nil })
		k.Add(durable.Task{Key: "a", Kind: "long", Delay: sec}, durable.Task{Key: "b", Kind: "note", Delay: 2 * sec})
		k.After(3 * sec)
		close(f.failed)
		k.After(5 * sec)
		k.Ran("a")
	}, durable.WithPoolSize(1))
}

// A failure that the KV reports ends everything at once, also while a commit hangs.
func TestOwned_reportedFailure_isSeenAtOnce(t *testing.T) {
	onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, _ engine.Engine) {
		k.Add(durable.Task{Key: "near", Kind: "note", Delay: sec})
		f.hangs.Store(true)
		waiting := make(chan error)
		for i := range 2 { // one is being committed, one waits behind it
			task := durable.Task{Key: fmt.Sprint("new", i), Kind: "note", Delay: sec}
			go func() { waiting <- k.AddTask(ctx, task) }()
		}
		synctest.Wait()
		failedAt := time.Now()
		close(f.failed)
		answers := []error{<-waiting, <-waiting}
		if d := time.Since(failedAt); d > 0 {
			t.Errorf("the verbs waited for %v", d)
		}
		for _, err := range append(answers, k.Err(), k.AddTask(ctx, durable.Task{Key: "k", Kind: "note", Delay: 1})) {
			if !errors.Is(err, durable.ErrBroken) || !errors.Is(err, durable.ErrCorrupt) {
				t.Errorf("the error is %v", err)
			}
		}
		if ok, err := k.Exist(ctx, "near"); !ok || err != nil {
			t.Errorf("a look-up: %v, %v", ok, err)
		}
		k.After(2 * sec)
		k.RanNothing()
		if err := k.Shutdown(ctx); !errors.Is(err, durable.ErrCorrupt) {
			t.Errorf("shutdown: %v", err)
		}
		if d := time.Since(failedAt); d > 8*sec {
			t.Errorf("the scheduler was down after %v", d)
		}
	})
}

// No other process can take over the tasks of a process that stood still, so its runs go on.
func TestOwned_processThatStoodStill_goesOn(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		m := memory.New()
		var wall atomic.Int64
		joinOwn(k, memory.Exclusive(m), durable.WithClocks(func() (int64, int64) {
			now := time.Now().UnixNano()
			return now, now + wall.Load()
		}))
		k.Start()
		var cause error
		k.Handle("long", func(ctx context.Context, _ durable.Run) error {
			select {
			case <-ctx.Done():
				cause = context.Cause(ctx)
			case <-time.After(5 * sec):
			}
			return nil
		})
		k.Add(durable.Task{Key: "a", Kind: "long", Delay: sec}, durable.Task{Key: "b", Kind: "note", Delay: 10 * sec})
		k.After(2 * sec)
		m.Step(time.Minute)
		wall.Add(int64(time.Minute))
		k.After(10 * sec)
		k.Ran("a", "b")
		k.Gone("a")
		k.Add(durable.Task{Key: "c", Kind: "note", Delay: 10 * time.Minute})
		k.After(time.Minute)
		m.Step(hour)
		wall.Add(int64(hour))
		k.After(5 * sec)
		k.Ran("c")
		if cause != nil {
			t.Errorf("the run was interrupted: %v", cause)
		}
	})
}

// A set is changed in one commit. A call that was killed does not hold up the next process.
func TestOwned_declaredSet_isChangedAtOnce(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		f := &ownKV{KV: memory.New(), failed: make(chan struct{})}
		joinOwn(k, f)
		set := durable.TaskSet{Prefix: "set/", Version: 1}
		for i := range 1000 {
			set.Tasks = append(set.Tasks, durable.Task{Key: fmt.Sprint("set/", i), Kind: "note", Interval: hour})
		}
		before := f.commits.Load()
		if r, err := k.Schedule(ctx, set); r.Added != 1000 || err != nil {
			t.Fatalf("%+v, %v", r, err)
		}
		if n := f.commits.Load() - before; n != 3 { // the hold, the tasks, the end of the hold
			t.Errorf("%d commits", n)
		}
		set.Version, set.Tasks = 2, set.Tasks[:500]
		killing := &killedKV{ownKV: f}
		k.Kill()
		joinOwn(k, killing)
		killing.after = f.commits.Load() + 2 // with the tasks changed and the note held
		if _, err := k.Schedule(ctx, set); !errors.Is(err, durable.ErrBroken) {
			t.Fatalf("Schedule of a process that is killed: %v", err)
		}
		k.Kill()
		joinOwn(k, f)
		began := time.Now()
		if r, err := k.Schedule(ctx, set); r.Unchanged != 500 || err != nil || time.Since(began) > sec {
			t.Errorf("after %v: %+v, %v", time.Since(began), r, err)
		}
	})
}

// A killedKV commits nothing more after a number of commits.
type killedKV struct {
	*ownKV
	after int32
}

func (f *killedKV) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	if f.after > 0 && f.commits.Load() >= f.after {
		return nil, errDisk
	}
	return f.ownKV.Commit(ctx, txs...)
}

// A scheduler on an engine of its own does not look for tasks while none is due. Tasks that come meanwhile, from
// anywhere, run in time.
func TestOwned_rests(t *testing.T) {
	task := func(kind string, d time.Duration) durable.Task { return durable.Task{Key: "a", Kind: kind, Delay: d} }
	for name, c := range map[string]struct {
		begin func(k *kit.Kit, e engine.Engine)
		runs  int
		after time.Duration // when the first begins
		each  time.Duration // after the one before
	}{
		"a task that is due soon":  {func(k *kit.Kit, _ engine.Engine) { k.Add(task("note", sec/2)) }, 1, sec / 2, 0},
		"one that is due later":    {func(k *kit.Kit, _ engine.Engine) { k.Add(task("note", hour)) }, 1, hour, 0},
		"one within the next rest": {func(k *kit.Kit, _ engine.Engine) { k.Add(task("note", 30*sec)) }, 1, 30 * sec, 0},
		"one that is moved": {func(k *kit.Kit, _ engine.Engine) {
			k.Add(task("note", 20*hour))
			k.After(10 * time.Minute)
			k.Must(k.Reschedule(ctx, "a", sec))
		}, 1, 10*time.Minute + sec, 0},
		"one that repeats": {func(k *kit.Kit, _ engine.Engine) {
			k.Add(durable.Task{Key: "a", Kind: "note", Interval: 7 * sec, Times: 20})
		}, 20, 7 * sec, 7 * sec},
		"one that repeats often": {func(k *kit.Kit, _ engine.Engine) {
			k.Add(durable.Task{Key: "a", Kind: "note", Interval: sec / 4, Times: 20})
		}, 20, sec / 4, sec / 4},
		"a declared set": {func(k *kit.Kit, _ engine.Engine) {
			_, err := k.Schedule(ctx, durable.TaskSet{Prefix: "set/", Version: 1,
				Tasks: []durable.Task{{Key: "set/a", Kind: "note", Interval: 50 * time.Minute}}})
			k.Must(err)
		}, 2, 50 * time.Minute, 50 * time.Minute},
		"several that wait for a limit": {func(k *kit.Kit, _ engine.Engine) {
			for i := range 5 {
				k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "limited", Delay: sec})
			}
		}, 5, sec, 100 * time.Millisecond},
		"a kind that is resumed": {func(k *kit.Kit, _ engine.Engine) {
			k.Must(k.PauseKind(ctx, "note"))
			k.Add(task("note", sec))
			k.After(10 * time.Minute)
			k.Must(k.ResumeKind(ctx, "note"))
		}, 1, 10 * time.Minute, 0},
		"a task that is resumed": {func(k *kit.Kit, _ engine.Engine) {
			k.Add(task("note", sec))
			k.Must(k.Pause(ctx, "a"))
			k.After(10 * time.Minute)
			k.Must(k.Resume(ctx, "a"))
		}, 1, 10 * time.Minute, 0},
		"a kind that gets its handler": {func(k *kit.Kit, _ engine.Engine) {
			k.Must(k.Declare("declared"))
			k.Add(task("declared", sec))
			k.After(10 * time.Minute)
			k.Handle("declared", func(context.Context, durable.Run) error { return nil })
		}, 1, 10 * time.Minute, 0},
		"two that another writer adds, overdue": {func(k *kit.Kit, e engine.Engine) {
			for _, key := range []string{"a", "b"} { // the second when the node has just looked at all of them
				w, err := author.Add(durable.Task{Key: key, Kind: "note"}, time.Now().Add(-hour).UnixNano())
				k.Must(err)
				_, err = e.Commit(ctx, 0, []engine.Batch{{w}})
				k.Must(err)
				k.After(50 * time.Millisecond)
			}
		}, 2, 0, 50 * time.Millisecond},
		"one that another writer adds": {func(k *kit.Kit, e engine.Engine) {
			w, err := author.Add(task("note", 100*time.Millisecond), time.Now().UnixNano())
			k.Must(err)
			_, err = e.Commit(ctx, 0, []engine.Batch{{w}})
			k.Must(err)
		}, 1, 100 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, e engine.Engine) {
				k.Handle("limited", func(context.Context, durable.Run) error { time.Sleep(100 * time.Millisecond); return nil },
					durable.WithConcurrency(1))
				k.After(10 * time.Minute)
				before := f.scans.Load()
				k.After(hour)
				if n := f.scans.Load() - before; n > 5000 { // 40,000 if the node looks every quarter of a lease
					t.Errorf("%d scans within an hour", n)
				}
				began := time.Since(k.Begin)
				c.begin(k, e)
				calls := k.RunsAfter(2 * hour)
				if len(calls) != c.runs {
					t.Fatalf("the runs are %v", calls)
				}
				for i, call := range calls {
					if late := call.At - began - c.after - time.Duration(i)*c.each; late < 0 || late > 50*time.Millisecond {
						t.Errorf("run %d is %v late: %v", i, late, call)
					}
				}
			})
		})
	}
}

// A scheduler also rests if all of its kinds have a limit, or are paused, or if it has none.
func TestOwned_rests_whateverItsKinds(t *testing.T) {
	for name, limited := range map[string]bool{"limited": true, "none": false} {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			f := &ownKV{KV: memory.New(), failed: make(chan struct{})}
			e, err := kv.New(ctx, f)
			k.Must(err)
			k.Use(durable.New(ctx, e, durable.WithLogger(testkit.Quiet())))
			if limited {
				for _, kind := range []string{"one", "paused"} {
					k.Handle(kind, func(context.Context, durable.Run) error { return nil }, durable.WithConcurrency(1))
				}
				k.Must(k.PauseKind(ctx, "paused"))
			}
			k.Start()
			k.After(10 * time.Minute)
			before := f.scans.Load()
			k.After(hour)
			if n := f.scans.Load() - before; n > 5000 {
				t.Errorf("%s: %d scans within an hour", name, n)
			}
		})
	}
}

// A scheduler does not rest before it has claimed all tasks that are due within its look-ahead, even if its engine is slow
// and the last of them are more than a claim has room for.
func TestOwned_rests_afterTheLastTask(t *testing.T) {
	const tasks = 5000
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		joinOwn(k, &ownKV{KV: memory.New(), failed: make(chan struct{}), scanTakes: 20 * time.Millisecond})
		k.Start()
		all := make([]durable.Task, tasks)
		for i := range all {
			all[i] = durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: 5*sec + time.Duration(i)*time.Microsecond}
		}
		k.Add(all...)
		if n := len(k.RunsAfter(8 * sec)); n != tasks {
			t.Errorf("%d runs", n)
		}
	})
}

// A scheduler whose kinds all have limits does not rest while it has no room for tasks, or could not look at them.
func TestOwned_rests_notWithTasksOfALimitedKind(t *testing.T) {
	begin := func(k *kit.Kit, f *ownKV) {
		e, err := kv.New(ctx, f)
		k.Must(err)
		k.Use(durable.New(ctx, e, durable.WithPoolSize(2), durable.WithTick(tick), durable.WithLogger(testkit.Quiet())))
		k.Handle("limited", sleeper(sec/10), durable.WithConcurrency(1000))
		k.Start()
		k.After(2 * sec)
	}
	t.Run("without room", func(t *testing.T) {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			begin(k, &ownKV{KV: memory.New(), failed: make(chan struct{})})
			for i := range 200 { // more than wait for the workers
				k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "limited", Delay: 3 * sec})
			}
			k.After(3*sec + sec/2)
			k.Add(durable.Task{Key: "last", Kind: "limited"})
			if n := len(k.RunsAfter(12 * sec)); n != 201 {
				t.Errorf("%d runs", n)
			}
		})
	})
	t.Run("without an answer", func(t *testing.T) {
		kit.In(t, func(t *testing.T, k *kit.Kit) {
			f := &ownKV{KV: memory.New(), failed: make(chan struct{})}
			begin(k, f)
			k.Add(durable.Task{Key: "a", Kind: "limited", Delay: 5 * sec})
			k.After(2 * sec)
			f.pastHangs.Store(true)
			k.After(20 * sec)
			f.pastHangs.Store(false)
			if n := len(k.RunsAfter(5 * sec)); n != 1 {
				t.Errorf("%d runs", n)
			}
		})
	})
}

// The running tasks of a kind with a limit take no room from the tasks of other kinds, however large they are.
func TestOwned_runsOfALimitedKind_takeNoRoom(t *testing.T) {
	onOwn(t, func(t *testing.T, k *kit.Kit, _ *ownKV, _ engine.Engine) {
		k.Handle("large", sleeper(30*sec), durable.WithConcurrency(1000))
		for i := range 70 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "large", Payload: make([]byte, durable.MaxPayload), Delay: 3 * sec})
		}
		k.After(5 * sec)
		k.Runs()
		k.Add(durable.Task{Key: "small", Kind: "note"})
		if calls := k.RunsAfter(sec); len(calls) != 1 || calls[0].Key != "small" {
			t.Errorf("the runs are %v", calls)
		}
	})
}

// A backlog is worked off without a rest.
func TestOwned_backlog_isWorkedOff(t *testing.T) {
	const tasks = 4000
	kinds := map[string]time.Duration{"quick": 0, "slow": 20 * time.Millisecond, "slower": 40 * time.Millisecond, "limited": 10 * time.Millisecond}
	onOwn(t, func(t *testing.T, k *kit.Kit, _ *ownKV, _ engine.Engine) {
		all := make([]durable.Task, 0, tasks)
		for kind, takes := range kinds {
			var opts []durable.KindOption
			if kind == "limited" {
				opts = append(opts, durable.WithConcurrency(2))
			}
			k.Handle(kind, func(context.Context, durable.Run) error { time.Sleep(takes); return nil }, opts...)
			for i := range tasks / len(kinds) {
				all = append(all, durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: sec})
			}
		}
		k.Must(k.PauseAll(ctx))
		k.Add(all...)
		k.After(10 * time.Minute)
		k.Must(k.ResumeAll(ctx))
		k.After(30 * sec) // 60 s of work for at least 4 workers
		if n := len(k.Runs()); n != tasks {
			t.Errorf("%d runs", n)
		}
	}, durable.WithPoolSize(8), durable.WithCatchUp(100_000))
}

// An engine on a KV that cannot be copied cannot either. Its size is unknown.
func TestOwned_withoutCapabilities(t *testing.T) {
	onOwn(t, func(t *testing.T, k *kit.Kit, _ *ownKV, _ engine.Engine) {
		if err := k.Backup(ctx, io.Discard); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Backup: %v", err)
		}
		if s := k.Stats(); s.Disk != (durable.DiskStats{}) {
			t.Errorf("the sizes are %+v", s)
		}
	})
}

// An engine that fails in the middle of a large backlog ends it, even if no further start has to be made durable.
func TestOwned_failureInALargeBacklog_endsIt(t *testing.T) {
	const tasks, before = 12_000, 9000
	onOwn(t, func(t *testing.T, k *kit.Kit, f *ownKV, _ engine.Engine) {
		var ran atomic.Int32
		all := make([]durable.Task, tasks)
		for i := range all {
			all[i] = durable.Task{Key: fmt.Sprint(i), Kind: "k"}
		}
		k.Handle("k", func(context.Context, durable.Run) error {
			f.commit.Store(ran.Add(1) >= before)
			time.Sleep(time.Millisecond)
			return nil
		})
		k.Must(k.AddTask(ctx, all...))
		k.After(time.Minute)
		if n := ran.Load(); n < before || n > before+2 || !errors.Is(k.Err(), errDisk) {
			t.Errorf("%d runs, and Err is %v", n, k.Err())
		}
	}, durable.WithPoolSize(1), durable.WithCatchUp(100_000))
}
