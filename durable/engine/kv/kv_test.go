// SPDX-License-Identifier: MIT

package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
)

// open returns an Engine on the KV.
func open(t testing.TB, on engine.KV) engine.Engine {
	t.Helper()
	e, err := kv.New(t.Context(), on)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A rotating passes each call to another Engine on the same KV.
type rotating struct {
	of   []engine.Engine
	next atomic.Int64
}

func (r *rotating) e() engine.Engine { return r.of[int(r.next.Add(1))%len(r.of)] }

func (r *rotating) Commit(ctx context.Context, by engine.MemberID, batches []engine.Batch) ([]engine.Result, error) {
	return r.e().Commit(ctx, by, batches)
}

func (r *rotating) Get(ctx context.Context, keys ...string) ([]engine.Stored, error) {
	return r.e().Get(ctx, keys...)
}

func (r *rotating) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	return r.e().Walk(ctx, over)
}

func (r *rotating) Claim(ctx context.Context, c engine.ClaimRequest) (engine.Claims, error) {
	return r.e().Claim(ctx, c)
}

func (r *rotating) Confirm(ctx context.Context, by engine.MemberID, c []engine.Claim, within time.Duration) ([]bool, int64, error) {
	return r.e().Confirm(ctx, by, c, within)
}

func (r *rotating) Release(ctx context.Context, by engine.MemberID, c []engine.Claim) error {
	return r.e().Release(ctx, by, c)
}

func (r *rotating) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	return r.e().Join(ctx, name, lease)
}

func (r *rotating) Renew(ctx context.Context, by engine.MemberID, report []byte) ([]engine.Membership, int64, error) {
	return r.e().Renew(ctx, by, report)
}

func (r *rotating) Leave(ctx context.Context, by engine.MemberID) error { return r.e().Leave(ctx, by) }
func (r *rotating) Reap(ctx context.Context) ([]string, error)          { return r.e().Reap(ctx) }

func TestEngine_keepsTheContract(t *testing.T) {
	for name, subject := range map[string]func(t *testing.T, m *memory.KV) enginetest.Subject{
		"clock": func(t *testing.T, m *memory.KV) enginetest.Subject {
			return enginetest.Subject{Engine: open(t, m), Restart: func(*testing.T) { m.Restart() }}
		},
		"several": func(t *testing.T, m *memory.KV) enginetest.Subject { // as in several processes
			var e rotating
			for range 3 {
				e.of = append(e.of, open(t, m))
			}
			return enginetest.Subject{Engine: &e, Restart: func(*testing.T) { m.Restart() }}
		},
		"no clock": func(t *testing.T, m *memory.KV) enginetest.Subject {
			return enginetest.Subject{Engine: open(t, memory.NoClock(m))}
		},
		"exclusive": func(t *testing.T, m *memory.KV) enginetest.Subject {
			return enginetest.Subject{Engine: open(t, memory.Exclusive(m))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enginetest.Test(t, func(t *testing.T) enginetest.Subject { return subject(t, memory.New()) })
		})
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add returns a write that adds a task due at the time 1.
func add(key string) engine.Write {
	return engine.Write{
		Record: engine.Record{Key: key, Due: 1, Data: []byte("\x01data")}, Kind: "kind", If: engine.IfAbsent,
	}
}

// addNow adds a task that is due now, so its start is not written.
func addNow(key string) engine.Write {
	w := add(key)
	w.Due = time.Now().UnixNano()
	return w
}

// write commits one write.
func write(t *testing.T, e engine.Engine, by engine.MemberID, w engine.Write) engine.Written {
	t.Helper()
	r, err := e.Commit(t.Context(), by, []engine.Batch{{w}})
	ok(t, err)
	if len(r[0].Written) != 1 {
		t.Fatalf("the result of the write of %q is %+v", w.Key, r[0])
	}
	return r[0].Written[0]
}

func join(t *testing.T, e engine.Engine, name string, lease time.Duration) engine.MemberID {
	t.Helper()
	id, _, err := e.Join(t.Context(), name, lease)
	ok(t, err)
	return id
}

func claim(t *testing.T, e engine.Engine, by engine.MemberID) []engine.Stored {
	t.Helper()
	got, err := e.Claim(t.Context(), engine.ClaimRequest{
		By: by, Kinds: []string{"kind"}, After: engine.None, Until: time.Now().UnixNano(), Most: 100, Readable: 255,
	})
	ok(t, err)
	return got.Tasks
}

func claimOf(s engine.Stored) engine.Claim {
	return engine.Claim{Key: s.Key, Revision: s.Revision, Starts: s.Starts}
}

func confirms(t *testing.T, e engine.Engine, by engine.MemberID, s engine.Stored) bool {
	t.Helper()
	held, _, err := e.Confirm(t.Context(), by, []engine.Claim{claimOf(s)}, 0)
	if errors.Is(err, engine.ErrMemberGone) {
		return false
	}
	ok(t, err)
	return held[0]
}

// The clock of the KV was a year ahead when the KV became available and a member beat for the last time. The member is
// reaped when another process has seen the same beat for a lease and an eighth, and a member that beats is not.
func TestReap_afterAClockThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		e := open(t, m)
		lives := join(t, e, "lives", time.Minute)
		m.Step(365 * 24 * time.Hour)
		m.Restart()
		dead := join(t, e, "dead", time.Minute)
		write(t, e, 0, add("k"))
		claim(t, e, dead)
		_, _, err := e.Renew(t.Context(), lives, nil)
		ok(t, err)
		m.Step(-365 * 24 * time.Hour)
		join(t, e, "later", time.Minute)
		began, reaped := time.Now(), ""
		for time.Since(began) < 5*time.Minute {
			names, err := e.Reap(t.Context())
			ok(t, err)
			if took := time.Since(began); len(names) > 0 && (took < time.Minute || took > 70*time.Second) {
				t.Errorf("%q are reaped after %v", names, took)
			}
			reaped += strings.Join(names, " ") + " "
			time.Sleep(time.Second)
			_, _, err = e.Renew(t.Context(), lives, nil)
			ok(t, err)
		}
		if all := strings.Fields(reaped); len(all) != 2 || slices.Contains(all, "lives") {
			t.Errorf("%q are reaped", all)
		}
	})
}

// Without a clock of the KV, another process reaps a member when it has seen the same beat for a lease and an eighth.
// The member stops starting runs before that. Time during which the KV was away does not count.
func TestLease_byObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NoClock(memory.New())
		a, b := open(t, m), open(t, m)
		write(t, a, 0, add("k"))
		mine, other := join(t, a, "mine", time.Minute), join(t, b, "other", time.Minute)
		task := claim(t, a, mine)[0]
		reaps := func() []string {
			_, _, err := b.Renew(t.Context(), other, nil)
			ok(t, err)
			names, err := b.Reap(t.Context())
			ok(t, err)
			return names
		}
		// passes lets time pass while the other member renews its lease and reaps.
		passes := func(d time.Duration) (reaped []string) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(5 * time.Second)
				reaped = append(reaped, reaps()...)
			}
			return reaped
		}
		reaps()
		if names := passes(55 * time.Second); len(names) > 0 || !confirms(t, a, mine, task) {
			t.Errorf("within the lease %q are reaped, or a start is refused", names)
		}
		if names := passes(10 * time.Second); len(names) > 0 || confirms(t, a, mine, task) {
			t.Errorf("just after the lease %q are reaped, or a start is confirmed", names)
		}
		_, _, err := a.Renew(t.Context(), mine, nil)
		ok(t, err)
		if !confirms(t, a, mine, task) {
			t.Error("a start is refused after the lease was renewed")
		}
		reaps()
		time.Sleep(time.Hour) // the KV is away
		if names := passes(time.Minute); len(names) > 0 {
			t.Errorf("%q are reaped within a lease after the KV was away", names)
		}
		if names := passes(15 * time.Second); !slices.Equal(names, []string{"mine"}) {
			t.Errorf("reaped are %q", names)
		}
		if confirms(t, a, mine, task) {
			t.Error("a member that was reaped starts a run")
		}
		if got := claim(t, b, other); len(got) != 1 || got[0].Revision <= task.Revision {
			t.Errorf("after that %+v are claimed", got)
		}
	})
}

// If a member died while it ended, the next Reap frees its remaining tasks.
func TestReap_endsWhatWasBegun(t *testing.T) {
	m := &broken{KV: memory.New()}
	m.after.Store(1 << 30)
	e := open(t, m)
	for i := range 300 {
		write(t, e, 0, add(fmt.Sprint("k", i)))
	}
	a, b := join(t, e, "a", time.Hour), join(t, e, "b", time.Hour)
	for len(claim(t, e, a)) > 0 {
	}
	m.after.Store(2) // the end, and some of the tasks
	if err := e.Leave(t.Context(), a); !errors.Is(err, errBroken) {
		t.Fatalf("Leave returns %v", err)
	}
	m.after.Store(1 << 30)
	free := len(claim(t, e, b))
	if names, err := e.Reap(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("reaped are %q, %v", names, err)
	}
	for got := claim(t, e, b); len(got) > 0; got = claim(t, e, b) {
		free += len(got)
	}
	if free != 300 {
		t.Errorf("%d tasks are claimed in all", free)
	}
}

// A broken is a KV whose Commits all fail after a number of them.
type broken struct {
	*memory.KV
	after atomic.Int64
	err   error // or errBroken
}

var errBroken = errors.New("broken")

func (b *broken) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	if b.after.Add(-1) < 0 {
		if b.err != nil {
			return nil, b.err
		}
		return nil, errBroken
	}
	return b.KV.Commit(ctx, txs...)
}

type brokenAlone struct{ *broken }

func (brokenAlone) Exclusive() {}

// The next process finds all tasks of the previous one, free, and its revisions are greater.
func TestExclusive_nextProcess(t *testing.T) {
	m := memory.Exclusive(memory.New())
	e := open(t, m)
	write(t, e, 0, add("k"))
	id := join(t, e, "a", time.Hour)
	task := claim(t, e, id)[0]
	if !confirms(t, e, id, task) {
		t.Fatal("the start is refused")
	}
	next := open(t, m)
	if _, _, err := next.Renew(t.Context(), id, nil); !errors.Is(err, engine.ErrMemberGone) {
		t.Errorf("a member of the process before renews its lease: %v", err)
	}
	got := claim(t, next, join(t, next, "b", time.Hour))
	if len(got) != 1 || got[0].Revision <= task.Revision || !bytes.Equal(got[0].Data, add("k").Data) {
		t.Errorf("claimed are %+v, and before %+v", got, task)
	}
}

// A claim and a start write nothing, and a Commit of many batches is one Commit of the KV.
func TestExclusive_commits(t *testing.T) {
	m := &broken{KV: memory.New()}
	m.after.Store(1)
	e := open(t, brokenAlone{m})
	var batches []engine.Batch
	for i := range 10 {
		batches = append(batches, engine.Batch{addNow(fmt.Sprint("k", i))})
	}
	_, err := e.Commit(t.Context(), 0, batches)
	ok(t, err)
	id := join(t, e, "a", time.Hour)
	got := claim(t, e, id)
	if len(got) != 10 || !confirms(t, e, id, got[0]) {
		t.Errorf("claimed are %+v", got)
	}
	ok(t, e.Release(t.Context(), id, []engine.Claim{claimOf(got[1])}))
	ok(t, e.Leave(t.Context(), id))
	if n := m.after.Load(); n != 0 {
		t.Errorf("there were %d commits", 1-n)
	}
}

// A commit that certainly had no effect leaves the tasks unchanged. After a commit with an unknown effect the engine
// does nothing more.
func TestExclusive_failedCommits(t *testing.T) {
	m := &broken{KV: memory.New(), err: fmt.Errorf("%w: %w", errBroken, engine.ErrNotDone)}
	m.after.Store(1)
	e := open(t, brokenAlone{m})
	write(t, e, 0, addNow("k"))
	id := join(t, e, "a", time.Hour)
	task := claim(t, e, id)[0]
	remove := []engine.Batch{{{Record: engine.Record{Key: "k"}, If: engine.IfPresent}}, {add("new")}}
	if _, err := e.Commit(t.Context(), 0, remove); !errors.Is(err, engine.ErrNotDone) {
		t.Errorf("the error is %v", err)
	}
	if !confirms(t, e, id, task) {
		t.Error("a task whose removal was not done has lost its claim")
	}
	m.err = nil
	if _, err := e.Commit(t.Context(), 0, remove); !errors.Is(err, errBroken) {
		t.Errorf("the error is %v", err)
	}
	m.after.Store(100)
	if _, err := e.Commit(t.Context(), 0, remove); !errors.Is(err, errBroken) {
		t.Errorf("after a commit whose effect is unknown the next returns %v", err)
	}
	if err := failure(t, e); !errors.Is(err, errBroken) {
		t.Errorf("the failure is %v", err)
	}
	if _, _, err := e.Confirm(t.Context(), id, []engine.Claim{claimOf(task)}, time.Second); !errors.Is(err, errBroken) {
		t.Errorf("and a start %v", err)
	}
}

// A commit that does not fit into the KV is refused, and none of it takes effect.
func TestCommit_limits(t *testing.T) {
	for name, alone := range map[string]func(*memory.KV) engine.KV{
		"shared":    func(m *memory.KV) engine.KV { return m },
		"exclusive": func(m *memory.KV) engine.KV { return memory.Exclusive(m) },
	} {
		for _, l := range []engine.Limits{{Value: 1000}, {Operations: 12}, {Bytes: 1000}} {
			e := open(t, alone(memory.Limited(l)))
			large := engine.Batch{add("large")}
			if large[0].Data = make([]byte, 1000); l.Operations > 0 {
				large = nil
				for i := range 13 {
					large = append(large, add(fmt.Sprint("large", i)))
				}
			}
			_, err := e.Commit(t.Context(), 0, []engine.Batch{{add("small")}, large})
			if !errors.Is(err, engine.ErrTooLarge) {
				t.Errorf("%s, %+v: the error is %v", name, l, err)
			}
			if got, err := e.Get(t.Context(), "small", "large", "large0"); len(got) != 0 || err != nil {
				t.Errorf("%s, %+v: there are %+v, %v", name, l, got, err)
			}
			write(t, e, 0, add("small"))
			if got := claim(t, e, join(t, e, "a", time.Hour)); len(got) != 1 || !confirms(t, e, got[0].Owner, got[0]) {
				t.Errorf("%s, %+v: claimed are %+v", name, l, got)
			}
		}
	}
}

func TestCommit_refusesWhatTheContractForbids(t *testing.T) {
	for _, kv := range []engine.KV{memory.New(), memory.Exclusive(memory.New())} {
		e := open(t, kv)
		for name, batches := range map[string][]engine.Batch{
			"two writes of a key in a batch":  {{add("ada"), add("ada")}},
			"two writes of a key in a commit": {{add("ada")}, {add("ada")}},
			"a write without a condition":     {{{Record: engine.Record{Key: "ada"}}}},
		} {
			_, err := e.Commit(t.Context(), 0, batches)
			found, getErr := e.Get(t.Context(), "ada")
			ok(t, getErr)
			if err == nil || len(found) > 0 {
				t.Errorf("%s: the error is %v, and there is %v", name, err, found)
			}
		}
	}
}
