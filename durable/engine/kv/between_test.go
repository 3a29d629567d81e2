// SPDX-License-Identifier: MIT

package kv_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A between is a KV in which something happens just before the next Commit, after the caller has read the rows that it
// relies on, or in the next Scan of free tasks, after it has read them.
type between struct {
	*memory.KV
	commit, scan func()
}

func once(f *func()) {
	if do := *f; do != nil {
		*f = nil
		do()
	}
}

func (b *between) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	once(&b.commit)
	return b.KV.Commit(ctx, txs...)
}

func (b *between) Scan(ctx context.Context, from, to string) iter.Seq2[engine.Entry, error] {
	scan := b.KV.Scan(ctx, from, to)
	if from[0] != 'f' || b.scan == nil {
		return scan
	}
	return func(yield func(engine.Entry, error) bool) {
		var found []engine.Entry
		for e, err := range scan {
			if err != nil {
				yield(e, err)
				return
			}
			found = append(found, e)
		}
		if len(found) > 0 {
			once(&b.scan)
		}
		for _, e := range found {
			if !yield(e, nil) {
				return
			}
		}
	}
}

type betweenAlone struct{ *between }

func (betweenAlone) Exclusive() {}

func get(t *testing.T, e engine.Engine, key string) engine.Stored {
	t.Helper()
	found, err := e.Get(t.Context(), key)
	ok(t, err)
	if len(found) != 1 {
		t.Fatalf("the key %q has %d tasks", key, len(found))
	}
	return found[0]
}

func remove(key string) engine.Write {
	return engine.Write{Record: engine.Record{Key: key}, If: engine.IfPresent}
}

// A call takes effect on the rows as they are when it commits, whatever it read before.
func TestShared_whatHappensBetween(t *testing.T) {
	type world struct {
		*testing.T
		kv     *between
		e      engine.Engine // the affected engine
		other  engine.Engine
		id, by engine.MemberID // of the one, and of the other
		task   engine.Stored   // that the one holds
	}
	for name, test := range map[string]func(w *world){
		"a start, and its member ends": func(w *world) {
			w.kv.commit = func() { ok(w.T, w.other.Leave(w.Context(), w.id)) }
			if confirms(w.T, w.e, w.id, w.task) || get(w.T, w.other, "held").Starts != 0 {
				w.Error("the run starts")
			}
		},
		"a start, and its member has begun to end": func(w *world) {
			w.kv.commit = func() {
				m := &broken{KV: w.kv.KV}
				m.after.Store(1)
				if err := open(w.T, m).Leave(w.Context(), w.id); !errors.Is(err, errBroken) {
					w.Errorf("Leave returns %v", err)
				}
			}
			if confirms(w.T, w.e, w.id, w.task) {
				w.Error("the run starts")
			}
		},
		"a start, and the task is removed": func(w *world) {
			w.kv.commit = func() { write(w.T, w.other, 0, remove("held")) }
			if confirms(w.T, w.e, w.id, w.task) {
				w.Error("the run starts")
			}
			write(w.T, w.other, 0, add("held"))
			if got := get(w.T, w.other, "held").Starts; got != 0 {
				w.Errorf("a new task has %d starts", got)
			}
		},
		"a claim, and its member ends": func(w *world) {
			w.kv.commit = func() { ok(w.T, w.other.Leave(w.Context(), w.id)) }
			if got := claim(w.T, w.e, w.id); len(got) != 0 || get(w.T, w.other, "free").Owner != 0 {
				w.Errorf("claimed are %+v", got)
			}
		},
		"a claim, and the task is claimed": func(w *world) {
			w.kv.commit = func() { claim(w.T, w.other, w.by) }
			if got := claim(w.T, w.e, w.id); len(got) != 0 || get(w.T, w.other, "free").Owner != w.by {
				w.Errorf("claimed are %+v", got)
			}
		},
		"a claim of one, and of two tasks the first is removed": func(w *world) {
			write(w.T, w.other, 0, add("more"))
			w.kv.commit = func() { write(w.T, w.other, 0, remove("free")) }
			got, err := w.e.Claim(w.Context(), engine.ClaimRequest{By: w.id, Kinds: []string{"kind"}, Until: 1, Most: 1, Readable: 9})
			if ok(w.T, err); len(got.Tasks) != 1 || got.Tasks[0].Key != "more" {
				w.Errorf("claimed are %+v", got)
			}
		},
		"a write that is to be held, and its member ends": func(w *world) {
			w.kv.commit = func() { ok(w.T, w.other.Leave(w.Context(), w.id)) }
			hold := add("new")
			hold.Hold = true
			if done := write(w.T, w.e, w.id, hold); done.Held || get(w.T, w.other, "new").Owner != 0 {
				w.Errorf("written is %+v", done)
			}
		},
		"a write of what is unstarted, and a start": func(w *world) {
			w.kv.commit = func() { confirms(w.T, w.other, w.id, w.task) }
			unstarted := add("held")
			unstarted.If, unstarted.Revision = engine.IfUnstarted, w.task.Revision
			r, err := w.e.Commit(w.Context(), 0, []engine.Batch{{unstarted}})
			if ok(w.T, err); !slices.Equal(r[0].Unmet, []string{"held"}) {
				w.Errorf("the result is %+v", r)
			}
		},
		"a write, and a start": func(w *world) {
			w.kv.commit = func() { confirms(w.T, w.other, w.id, w.task) }
			always := add("held")
			always.If = engine.Always
			write(w.T, w.e, 0, always)
			if got := get(w.T, w.other, "held").Starts; got != 0 {
				w.Errorf("a task that was written since has %d starts", got)
			}
		},
		"a release, and a start": func(w *world) {
			w.kv.commit = func() { confirms(w.T, w.other, w.id, w.task) }
			ok(w.T, w.e.Release(w.Context(), w.id, []engine.Claim{claimOf(w.task)}))
			if get(w.T, w.other, "held").Owner != w.id {
				w.Error("a task that runs is released")
			}
		},
		"a reaping, and the lease is renewed": func(w *world) {
			w.kv.Step(2 * time.Hour)
			_, _, err := w.other.Renew(w.Context(), w.by, nil)
			ok(w.T, err)
			w.kv.commit = func() { _, _, err = w.other.Renew(w.Context(), w.id, nil) }
			if names, failed := w.e.Reap(w.Context()); len(names) > 0 || failed != nil || err != nil {
				w.Errorf("reaped are %q, %v (%v)", names, failed, err)
			}
		},
		"a renewal, and a later one": func(w *world) {
			w.kv.commit = func() { _, _, _ = w.other.Renew(w.Context(), w.id, []byte("2")) }
			members, _, err := w.e.Renew(w.Context(), w.id, []byte("1"))
			ok(w.T, err)
			for _, m := range members {
				if m.ID == w.id && string(m.Report) != "2" {
					w.Errorf("the report is %q", m.Report)
				}
			}
		},
		"a renewal, and its member ends": func(w *world) {
			w.kv.commit = func() { ok(w.T, w.other.Leave(w.Context(), w.id)) }
			if _, _, err := w.e.Renew(w.Context(), w.id, nil); !errors.Is(err, engine.ErrMemberGone) {
				w.Errorf("the error is %v", err)
			}
		},
		"two members join": func(w *world) {
			var second engine.MemberID
			w.kv.commit = func() { second = join(w.T, w.other, "second", time.Hour) }
			if first := join(w.T, w.e, "first", time.Hour); first == second {
				w.Errorf("both have the number %d", first)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := memory.New()
			w := &world{T: t, kv: &between{KV: m}, other: open(t, m)}
			w.e = open(t, w.kv)
			w.id, w.by = join(t, w.e, "one", time.Hour), join(t, w.other, "other", time.Hour)
			write(t, w.e, 0, add("held"))
			w.task = claim(t, w.e, w.id)[0]
			write(t, w.e, 0, add("free"))
			test(w)
		})
	}
}

// While a Commit is in progress, its tasks are neither claimed nor started, and reads see them as they were.
func TestExclusive_whatHappensDuringACommit(t *testing.T) {
	m := &between{KV: memory.New()}
	e := open(t, betweenAlone{m})
	id := join(t, e, "a", time.Hour)
	write(t, e, 0, add("k"))
	task := claim(t, e, id)[0]
	during := func(w engine.Write, do func()) engine.Written {
		t.Helper()
		m.commit = do
		return write(t, e, id, w)
	}
	unstarted := add("k")
	unstarted.If, unstarted.Revision, unstarted.Hold = engine.IfUnstarted, task.Revision, true
	done := during(unstarted, func() {
		if got := get(t, e, "k"); got.Revision != task.Revision || got.Owner != id {
			t.Errorf("before it is written the task is %+v", got)
		}
		if confirms(t, e, id, task) {
			t.Error("a task starts that is being written as unstarted")
		}
	})
	if task = get(t, e, "k"); task.Revision != done.Revision || task.Owner != id || !confirms(t, e, id, task) {
		t.Errorf("written is %+v, and the task is %+v", done, task)
	}
	free := add("k")
	free.If = engine.Always
	during(free, func() {
		if got := claim(t, e, id); len(got) != 0 {
			t.Errorf("claimed are %+v", got)
		}
	})
	during(remove("k"), func() {
		if got := claim(t, e, id); len(got) != 0 {
			t.Errorf("of what is being removed claimed are %+v", got)
		}
	})
	hold := add("k")
	hold.Hold = true
	during(hold, func() { ok(t, e.Leave(t.Context(), id)) })
	if got := get(t, e, "k"); got.Owner != 0 {
		t.Errorf("a member that has left holds %+v", got)
	}
}

// A task that changes while a claim reads it is not claimed in its old state.
func TestExclusive_whatHappensDuringAClaim(t *testing.T) {
	m := &between{KV: memory.New()}
	e := open(t, betweenAlone{m})
	id, other := join(t, e, "a", time.Hour), join(t, e, "b", time.Hour)
	write(t, e, 0, add("k"))
	m.scan = func() { write(t, e, 0, remove("k")) }
	if got := claim(t, e, id); len(got) != 0 {
		t.Errorf("of what was removed claimed are %+v", got)
	}
	write(t, e, 0, add("k"))
	before := get(t, e, "k")
	m.scan = func() { ok(t, e.Leave(t.Context(), id)) }
	got, err := e.Claim(t.Context(), engine.ClaimRequest{By: id, Kinds: []string{"kind"}, Until: 1, Most: 1})
	if !errors.Is(err, engine.ErrMemberGone) || len(got.Tasks) != 0 {
		t.Errorf("a member that has left claims %+v, %v", got, err)
	}
	tasks := claim(t, e, other)
	if len(tasks) != 1 || tasks[0].Revision <= before.Revision || get(t, e, "k").Revision != tasks[0].Revision {
		t.Errorf("after that claimed are %+v", tasks)
	}
}

// A task that changes while a walk by due time reads it is yielded once, in its new state.
func TestExclusive_whatHappensDuringAWalk(t *testing.T) {
	m := &between{KV: memory.New()}
	e := open(t, betweenAlone{m})
	for _, key := range []string{"a", "gone", "k", "moved"} {
		write(t, e, 0, add(key))
	}
	var now engine.Written
	m.scan = func() {
		changed, moved := add("k"), add("moved")
		changed.If, changed.Data, moved.If, moved.Due = engine.Always, []byte("\x01new"), engine.Always, 2
		now = write(t, e, 0, changed)
		write(t, e, 0, moved)
		write(t, e, 0, remove("gone"))
	}
	var keys []string
	for s, err := range e.Walk(t.Context(), engine.Range{Order: engine.ByDue, Until: 1}) {
		if ok(t, err); s.Key == "k" && (string(s.Data) != "\x01new" || s.Revision != now.Revision) {
			t.Errorf("a task that has changed to %+v is %+v", now, s)
		}
		keys = append(keys, s.Key)
	}
	if !slices.Equal(keys, []string{"a", "k"}) {
		t.Errorf("the tasks are %q", keys)
	}
}
