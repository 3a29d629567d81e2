// SPDX-License-Identifier: MIT

package kv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// failure waits until the engine fails, and returns the cause.
func failure(t *testing.T, e engine.Engine) error {
	t.Helper()
	r := e.(engine.FailureReporter)
	select {
	case <-r.Failed():
		return r.Err()
	case <-time.After(time.Minute):
		t.Fatal("the engine has not failed")
		return nil
	}
}

// whole waits until the engine has read all tasks, and fails the test if the engine fails.
func whole(t *testing.T, e engine.Engine) {
	t.Helper()
	synctest.Wait()
	select {
	case <-e.(engine.FailureReporter).Failed():
		t.Error(e.(engine.FailureReporter).Err())
	default:
	}
}

// An exclusive engine finds each row of a task that is lost, left over, or back in an earlier state.
func TestExclusive_findsWhatIsMissing(t *testing.T) {
	const tasks = 3000
	for name, damage := range map[string]func(kv engine.KV, old map[string]engine.Entry) engine.Tx{
		"the first task is lost": func(engine.KV, map[string]engine.Entry) engine.Tx {
			return engine.Tx{Delete: []string{"tk0000"}}
		},
		"the last task is lost": func(engine.KV, map[string]engine.Entry) engine.Tx {
			return engine.Tx{Delete: []string{fmt.Sprintf("tk%04d", tasks-1)}}
		},
		"all tasks are lost": func(_ engine.KV, old map[string]engine.Entry) engine.Tx {
			return engine.Tx{Delete: slices.Collect(maps.Keys(old))}
		},
		"everything but the tasks is lost": func(engine.KV, map[string]engine.Entry) engine.Tx {
			return engine.Tx{Delete: []string{"c"}}
		},
		"a task is back in an earlier state": func(_ engine.KV, old map[string]engine.Entry) engine.Tx {
			return engine.Tx{Put: []engine.Entry{old["tk0001"]}}
		},
		"a removed task is back": func(_ engine.KV, old map[string]engine.Entry) engine.Tx {
			return engine.Tx{Put: []engine.Entry{old["tremoved"]}}
		},
		"a removed task is back for another": func(_ engine.KV, old map[string]engine.Entry) engine.Tx {
			return engine.Tx{Put: []engine.Entry{old["tremoved"]}, Delete: []string{"tk0002"}}
		},
		"everything is back but a task": func(_ engine.KV, old map[string]engine.Entry) engine.Tx {
			delete(old, "tk0003")
			return engine.Tx{Put: slices.Collect(maps.Values(old))}
		},
		"a row cannot be read": func(engine.KV, map[string]engine.Entry) engine.Tx {
			return engine.Tx{Put: []engine.Entry{{Key: "tk0004", Value: []byte{1, 0, 255}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory.New()
				e := open(t, memory.Exclusive(m))
				var batch engine.Batch
				for i := range tasks {
					batch = append(batch, add(fmt.Sprintf("k%04d", i)))
				}
				_, err := e.Commit(t.Context(), 0, []engine.Batch{append(batch, add("removed"))})
				ok(t, err)
				old := make(map[string]engine.Entry)
				for _, row := range entries(t, m) {
					if row.Key[0] == 't' {
						old[row.Key] = row
					}
				}
				moved := add("k0001")
				moved.If = engine.IfPresent
				write(t, e, 0, moved)
				write(t, e, 0, engine.Write{Record: engine.Record{Key: "removed"}, If: engine.IfPresent})
				whole(t, open(t, memory.Exclusive(m))) // agrees with the committed tasks

				_, err = m.Commit(t.Context(), damage(m, old))
				ok(t, err)
				e = open(t, memory.Exclusive(m))
				if err := failure(t, e); !errors.Is(err, engine.ErrCorrupt) {
					t.Errorf("the failure is %v", err)
				}
				if _, err := e.Commit(t.Context(), 0, []engine.Batch{{add("late")}}); !errors.Is(err, engine.ErrCorrupt) {
					t.Errorf("after it a commit returns %v", err)
				}
				if _, err := e.Get(t.Context(), "k0005"); err != nil {
					t.Errorf("and a look-up %v", err)
				}
			})
		})
	}
}

// A commit that was not done changes no summary, and a task that is claimed while it is written none either.
func TestExclusive_summaryOfCommitsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &broken{KV: memory.New(), err: engine.ErrNotDone}
		m.after.Store(1)
		e := open(t, brokenAlone{m})
		write(t, e, 0, add("k"))
		for range 3 {
			if _, err := e.Commit(t.Context(), 0, []engine.Batch{{add("other")}}); !errors.Is(err, engine.ErrNotDone) {
				t.Errorf("the error is %v", err)
			}
		}
		m.after.Store(100)
		id := join(t, e, "a", time.Hour)
		task := claim(t, e, id)[0]
		next := add("k")
		next.If, next.Revision, next.Hold = engine.IfUnchanged, task.Revision, true
		write(t, e, id, next)
		whole(t, e)
		whole(t, open(t, memory.Exclusive(m.KV)))
	})
}

// Who only reads writes nothing.
func TestExclusive_readerWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		write(t, open(t, memory.Exclusive(m)), 0, add("k"))
		before := entries(t, m)
		e := open(t, memory.Exclusive(m))
		for s, err := range e.Walk(t.Context(), engine.Range{After: engine.Position{Due: engine.None}, Until: engine.ParkedDue}) {
			if ok(t, err); s.Key != "k" {
				t.Errorf("there is %+v", s)
			}
		}
		ok(t, e.(io.Closer).Close())
		if after := entries(t, m); !slices.EqualFunc(before, after, func(a, b engine.Entry) bool {
			return a.Key == b.Key && a.Version == b.Version
		}) {
			t.Errorf("there were %+v, and are %+v", before, after)
		}
	})
}

// A reporting is an exclusive KV that can fail by itself, and that must not be used after it was closed.
type reporting struct {
	*memory.KV
	*testing.T
	failed chan struct{}
	closed bool
}

func (r *reporting) Exclusive()              {}
func (r *reporting) Failed() <-chan struct{} { return r.failed }
func (r *reporting) Err() error              { return errBroken }

func (r *reporting) Close() error {
	r.closed = true
	return errBroken
}

func (r *reporting) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	return func(yield func(engine.Entry, error) bool) {
		for e, err := range r.KV.Scan(ctx, from, to) {
			time.Sleep(time.Millisecond) // as on a disk
			if r.closed {
				r.Error("it is read after it was closed")
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// The engine fails with its KV, also while nothing is called.
func TestExclusive_failsWithItsKV(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &reporting{KV: memory.New(), T: t, failed: make(chan struct{})}
		e := open(t, m)
		write(t, e, 0, add("k"))
		whole(t, e)
		close(m.failed)
		if err := failure(t, e); !errors.Is(err, errBroken) {
			t.Errorf("the failure is %v", err)
		}
		if _, err := e.Commit(t.Context(), 0, []engine.Batch{{add("late")}}); !errors.Is(err, errBroken) {
			t.Errorf("a commit returns %v", err)
		}
		if err := e.(io.Closer).Close(); err != errBroken {
			t.Errorf("Close returns %v", err)
		}
	})
}

// Close ends the load of the index, which takes ten seconds here, and then closes the KV.
func TestExclusive_closedWhileItLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		e := open(t, memory.Exclusive(m))
		var batch engine.Batch
		for i := range 10_000 {
			batch = append(batch, add(fmt.Sprint("k", i)))
		}
		_, err := e.Commit(t.Context(), 0, []engine.Batch{batch})
		ok(t, err)
		r := &reporting{KV: m, T: t, failed: make(chan struct{})}
		e = open(t, r)
		time.Sleep(20 * time.Millisecond)
		began := time.Now()
		if err := e.(io.Closer).Close(); err != errBroken || !r.closed {
			t.Errorf("the error is %v; the KV is closed: %v", err, r.closed)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		select {
		case <-e.(engine.FailureReporter).Failed():
			t.Errorf("it has failed: %v", e.(engine.FailureReporter).Err())
		default:
		}
	})
}

// A verifier is a KV that is called when its tasks have been verified.
type verifier struct {
	engine.KV
	first    bool
	verified atomic.Int64
}

func (*verifier) Exclusive()          {}
func (v *verifier) VerifyFirst() bool { return v.first }
func (v *verifier) Verified()         { v.verified.Add(1) }

// The engine calls the KV once when the tasks have been verified, and never if they are damaged. If they must be verified
// first, New does so.
func TestVerifier_isCalledOnceAllTasksAgree(t *testing.T) {
	for _, first := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := memory.New()
			v := &verifier{KV: memory.Exclusive(m), first: first}
			e := open(t, v)
			for i := range 3000 {
				write(t, e, 0, add(fmt.Sprintf("k%04d", i)))
			}
			ok(t, e.(io.Closer).Close())

			v = &verifier{KV: memory.Exclusive(m), first: first}
			e = open(t, v)
			if n := v.verified.Load(); first && n != 1 {
				t.Errorf("New returns before the tasks have been verified, or after %d times", n)
			}
			synctest.Wait()
			whole(t, e)
			ok(t, e.(io.Closer).Close())
			if n := v.verified.Load(); n != 1 {
				t.Errorf("the KV is called %d times", n)
			}

			_, err := m.Commit(t.Context(), engine.Tx{Delete: []string{"tk2999"}})
			ok(t, err)
			v = &verifier{KV: memory.Exclusive(m), first: first}
			e, err = kv.New(t.Context(), v)
			if first {
				if e != nil || !errors.Is(err, engine.ErrCorrupt) {
					t.Errorf("New returns %v, %v", e, err)
				}
			} else {
				ok(t, err)
				failure(t, e)
				ok(t, e.(io.Closer).Close())
			}
			if n := v.verified.Load(); n != 0 {
				t.Errorf("of damaged tasks the KV is called %d times", n)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if e, err := kv.New(ctx, v); first && (e != nil || err == nil) {
				t.Errorf("with a context that is done New returns %v, %v", e, err)
			}
		})
	}
}
