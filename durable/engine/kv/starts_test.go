// SPDX-License-Identifier: MIT

package kv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A counting is an exclusive KV that counts its Commits.
type counting struct {
	*memory.KV
	commits int
}

func (*counting) Exclusive() {}

func (c *counting) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	c.commits++
	return c.KV.Commit(ctx, txs...)
}

// starts returns the keys of the tasks with a row of starts.
func starts(t *testing.T, kv engine.KV) (keys []string) {
	t.Helper()
	for _, e := range entries(t, kv) {
		if e.Key[0] == 's' {
			keys = append(keys, e.Key[1:])
		}
	}
	return keys
}

func claims(tasks []engine.Stored) (all []engine.Claim) {
	for _, s := range tasks {
		all = append(all, claimOf(s))
	}
	return all
}

// A task that was due before the engine was opened may have ended the earlier process. The next process knows how often
// it has been started.
func TestExclusive_countsStartsOfOverdueTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const overdue = 100
		m := &counting{KV: memory.New()}
		e := open(t, m)
		for i := range overdue {
			write(t, e, 0, add(fmt.Sprintf("k%02d", i)))
		}
		for life := range 4 {
			time.Sleep(time.Second)
			e := open(t, m)
			time.Sleep(time.Second)
			now := add("now") // "then" is from the life before, and due now as well
			now.If, now.Due = engine.Always, time.Now().UnixNano()
			write(t, e, 0, now)
			id := join(t, e, "a", time.Hour)
			got, err := e.Claim(t.Context(), engine.ClaimRequest{By: id, Kinds: []string{"kind"}, After: -1, Until: now.Due, Most: 1000, Readable: 9})
			ok(t, err)
			if len(got.Tasks) != overdue+1+min(life, 1) {
				t.Fatalf("%d tasks are claimed", len(got.Tasks))
			}
			for _, s := range got.Tasks[:overdue] {
				if s.Starts != life || (s.Started != 0) != (life > 0) {
					t.Fatalf("in life %d, %+v has %d starts", life, s.Record, s.Starts)
				}
			}
			for _, s := range got.Tasks[overdue:] {
				if s.Starts != 0 {
					t.Errorf("of %q %d starts are counted", s.Key, s.Starts)
				}
			}
			before := m.commits
			for range 2 { // as if the first answer was lost
				held, _, err := e.Confirm(t.Context(), id, claims(got.Tasks), 0)
				if ok(t, err); len(held) != len(got.Tasks) || slices.Contains(held, false) {
					t.Errorf("held are %v", held)
				}
			}
			if n := m.commits - before; n > 2 {
				t.Errorf("the starts of %d tasks took %d commits", overdue, n)
			}
			before = m.commits
			if !confirms(t, e, id, got.Tasks[overdue]) || m.commits != before {
				t.Error("the start of a task that falls due now is written")
			}
			if s := starts(t, m); len(s) != overdue {
				t.Errorf("written are the starts of %q", s)
			}
			then := add("then")
			then.If, then.Due = engine.Always, now.Due+int64(3*time.Second/2)
			write(t, e, 0, then)
			whole(t, e)
		}
	})
}

// Every write of a task deletes its starts.
func TestExclusive_startsEndWithTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		e := open(t, memory.Exclusive(m))
		for _, key := range []string{"acknowledged", "held", "lost", "moved", "removed", "replaced"} {
			write(t, e, 0, add(key))
		}
		for range 2 { // also by the next process
			time.Sleep(time.Second)
			e = open(t, memory.Exclusive(m))
			id := join(t, e, "a", time.Hour)
			got := claim(t, e, id)
			_, _, err := e.Confirm(t.Context(), id, claims(got), 0)
			ok(t, err)
			if keys := starts(t, m); len(keys) != len(got) {
				t.Errorf("claimed are %d tasks, and the starts of %q are written", len(got), keys)
			}
			for _, s := range got {
				w := engine.Write{Record: s.Record, Kind: s.Kind, If: engine.IfUnchanged, Revision: s.Revision}
				switch s.Key {
				case "acknowledged", "removed":
					w.Data = nil
				case "held":
					w.Hold = true
				case "lost":
					continue
				case "moved":
					w.Due = time.Now().Add(time.Hour).UnixNano()
				}
				if s.Key == "removed" {
					w.If = engine.IfPresent
				}
				write(t, e, id, w)
			}
			if keys := starts(t, m); len(keys) != 1 || keys[0] != "lost" {
				t.Errorf("written are the starts of %q", keys)
			}
			whole(t, e)
		}
		write(t, open(t, memory.Exclusive(m)), 0, engine.Write{Record: engine.Record{Key: "lost"}, If: engine.IfPresent})
		if keys := starts(t, m); len(keys) != 0 {
			t.Errorf("after the process that started them, written are the starts of %q", keys)
		}
	})
}

// A task that is released while its start is written does not start.
func TestExclusive_releasedWhileItsStartIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meanwhile{KV: memory.New()}
		e := open(t, m)
		write(t, e, 0, add("k"))
		time.Sleep(time.Second)
		e = open(t, m)
		id := join(t, e, "a", time.Hour)
		task := claim(t, e, id)[0]
		m.do = func() { ok(t, e.Release(t.Context(), id, []engine.Claim{claimOf(task)})) }
		if confirms(t, e, id, task) {
			t.Error("a released task starts")
		}
		task = claim(t, e, id)[0]
		if task.Starts != 0 {
			t.Errorf("claimed is %+v", task)
		}
		write(t, e, id, engine.Write{Record: engine.Record{Key: "k"}, If: engine.IfUnchanged, Revision: task.Revision})
		if keys := starts(t, m); len(keys) != 0 {
			t.Errorf("written are the starts of %q", keys)
		}
	})
}

// A meanwhile is an exclusive KV that does something else during its next Commit.
type meanwhile struct {
	*memory.KV
	do func()
}

func (*meanwhile) Exclusive() {}

func (m *meanwhile) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	if do := m.do; do != nil {
		m.do = nil
		do()
	}
	return m.KV.Commit(ctx, txs...)
}

// The number of starts that are written is bounded, so a long outage does not cost a write for each task.
func TestExclusive_countsNoMoreStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, counted = 20_000, 1 << 14
		m := memory.New()
		e := open(t, memory.Exclusive(m))
		var batch engine.Batch
		for i := range all {
			batch = append(batch, add(fmt.Sprint(i)))
		}
		_, err := e.Commit(t.Context(), 0, []engine.Batch{batch})
		ok(t, err)
		time.Sleep(time.Second)
		e = open(t, memory.Exclusive(m))
		id := join(t, e, "a", time.Hour)
		for n := 0; n < all; {
			got := claim(t, e, id)
			n += len(got)
			held, _, err := e.Confirm(t.Context(), id, claims(got), 0)
			if ok(t, err); len(held) == 0 {
				t.Fatalf("%d tasks are claimed", n)
			}
		}
		if n := len(starts(t, m)); n < counted || n > counted+1000 {
			t.Errorf("%d starts are written", n)
		}
	})
}

// Starts of a task that is not there, or of another state of it, are damage.
func TestExclusive_startsOfNoTask(t *testing.T) {
	for name, value := range map[string][]byte{"of another revision": {2, 2, 2}, "malformed": {1}} {
		m := memory.New()
		write(t, open(t, memory.Exclusive(m)), 0, add("k"))
		for _, key := range []string{"k", "other"} {
			_, err := m.Commit(t.Context(), engine.Tx{Put: []engine.Entry{{Key: "s" + key, Value: value}}})
			ok(t, err)
			if _, err := kv.New(t.Context(), memory.Exclusive(m)); !errors.Is(err, engine.ErrCorrupt) {
				t.Errorf("%s, %q: the error is %v", name, key, err)
			}
			_, err = m.Commit(t.Context(), engine.Tx{Delete: []string{"s" + key}})
			ok(t, err)
		}
	}
}

// Start decides as Confirm does, unless the start has to be written.
func TestStart_decidesAsConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &counting{KV: memory.New()}
		e := open(t, m)
		write(t, e, 0, add("early")) // due before the next process opens the KV
		time.Sleep(time.Second)
		e = open(t, m)
		id := join(t, e, "a", time.Minute)
		write(t, e, 0, addNow("now"))
		start := e.(engine.Starter).Start
		held := claim(t, e, id)
		if len(held) != 2 || held[0].Key != "early" {
			t.Fatalf("held are %+v", held)
		}
		early, now := claimOf(held[0]), claimOf(held[1])
		before := m.commits
		for name, c := range map[string]struct {
			by       engine.MemberID
			claim    engine.Claim
			held, ok bool
		}{
			"a start that has to be written": {id, early, false, false},
			"one that is held":               {id, now, true, true},
			"the same again":                 {id, now, true, true},
			"another revision":               {id, engine.Claim{Key: "now", Revision: now.Revision + 1}, false, true},
			"another task":                   {id, engine.Claim{Key: "none", Revision: now.Revision}, false, true},
			"a member that is gone":          {id + 1, now, false, false},
		} {
			if held, at, ok := start(c.by, c.claim, time.Second); held != c.held || ok != c.ok || ok && at != time.Now().UnixNano() {
				t.Errorf("%s: %v at %d, %v", name, held, at, ok)
			}
		}
		if found, err := e.Get(t.Context(), "now"); err != nil || found[0].Starts != 1 || found[0].Started != time.Now().UnixNano() {
			t.Errorf("after its start the task is %+v, %v", found, err)
		}
		if m.commits != before {
			t.Errorf("%d commits", m.commits-before)
		}
		time.Sleep(2 * time.Minute)
		if held, _, ok := start(id, now, time.Second); held || !ok {
			t.Errorf("after the lease: %v, %v", held, ok)
		}
	})
}

// A task is not changed while its run may begin. If the clock was set back by more than a second since the confirmation, that is
// not known, and the task is changed.
func TestCommit_whileARunMayBegin_waits(t *testing.T) {
	for name, on := range map[string]func(*memory.KV) engine.KV{
		"shared": func(m *memory.KV) engine.KV { return m }, "own": func(m *memory.KV) engine.KV { return memory.Exclusive(m) },
	} {
		for step, waits := range map[time.Duration]time.Duration{
			0: time.Second, 400 * time.Millisecond: 600 * time.Millisecond, time.Second: 0,
			-time.Second: time.Second, -time.Second - 1: 0,
		} {
			t.Run(fmt.Sprint(name, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := memory.New()
					e := open(t, on(m))
					id := join(t, e, "a", time.Hour)
					write(t, e, 0, add("k"))
					_, _, err := e.Confirm(t.Context(), id, claims(claim(t, e, id)), time.Second)
					ok(t, err)
					m.Step(step)
					results, err := e.Commit(t.Context(), 0, []engine.Batch{{{Record: engine.Record{Key: "k"}, If: engine.IfPresent}}})
					if ok(t, err); results[0].Wait != waits || (len(results[0].Written) == 0) != (waits > 0) {
						t.Errorf("the result is %+v, want to wait %v", results[0], waits)
					}
				})
			})
		}
	}
}
