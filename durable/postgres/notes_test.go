// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/author"
	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A version2 is the engine of a program of version 2: it knows no notes, and uses only the tables of that version.
type version2 struct{ version3 }

func (v version2) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	if over.Order == engine.Notes {
		return func(func(engine.Stored, error) bool) {}
	}
	return v.version3.Walk(ctx, over)
}

// The tasks of programs of version 2 are still there, and such a program continues next to programs of this version,
// during the migration and afterwards. It does not know the pauses.
func TestMigrate_fromVersion2_withProgramsOfIt(t *testing.T) {
	ctx, at := t.Context(), schema()
	conn := connect(t, server(t))
	text := func(sql string) string { return postgres.Text(sql, at) }
	old, err := postgres.OpenOld(ctx, server(t), postgres.Schema2, at)
	check(t, err)
	defer old.Close()
	if _, err := postgres.Open(ctx, shared.URL(), at, postgres.WithoutMigration()); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("an older schema: %v", err)
	}
	w, err := author.Add(durable.Task{Key: "before", Kind: "new", Delay: 1}, time.Now().UnixNano())
	check(t, err)
	exec(t, conn, text("INSERT INTO $schema.task (key, due, revision, kind, data) VALUES ($1, $2, 1, 'new', $3)"),
		[]byte(w.Key), w.Due, w.Data)

	join := func(e engine.Engine, kind string) (*durable.Scheduler, chan durable.Run) {
		t.Helper()
		s, err := durable.New(ctx, e, durable.WithLogger(testkit.Quiet()), durable.WithNodeName(kind))
		check(t, err)
		t.Cleanup(func() { check(t, s.Shutdown(context.Background())) })
		ran := make(chan durable.Run, 10)
		for _, kind := range []string{kind, "both"} {
			check(t, s.Handle(kind, func(_ context.Context, run durable.Run) error { ran <- run; return nil }))
		}
		check(t, s.Start())
		return s, ran
	}
	added := func(s *durable.Scheduler, key, kind string) {
		t.Helper()
		check(t, s.AddTask(ctx, durable.Task{Key: key, Kind: kind, Delay: time.Millisecond}))
	}
	is := func(ran chan durable.Run, want string) {
		t.Helper()
		select {
		case run := <-ran:
			if run.Key != want {
				t.Errorf("%q ran, want %q", run.Key, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q does not run", want)
		}
	}
	s, ranOld := join(version2{version3{old}}, "old")
	added(s, "during", "old")
	is(ranOld, "during")

	e := open(t, at) // which migrates
	if got := notes(t, e); got != nil {
		t.Errorf("the notes are %q", got)
	}
	s2, ranNew := join(e, "new")
	is(ranNew, "before")
	check(t, s2.PauseAll(ctx))
	added(s2, "paused", "new")
	added(s2, "after", "both")
	is(ranOld, "after") // on the program that does not know the pause
	added(s, "own", "old")
	is(ranOld, "own")
	if n := len(ranNew); n != 0 {
		t.Errorf("while all are paused %d run", n)
	}
	check(t, s2.ResumeAll(ctx))
	is(ranNew, "paused")
}

// notes returns the notes of the engine except the time, which a node stores at any moment. The note of the pauses has its
// revision.
func notes(t *testing.T, e engine.Engine) (all []string) {
	t.Helper()
	for note, err := range e.Walk(t.Context(), engine.Range{Order: engine.Notes}) {
		check(t, err)
		data := string(note.Data)
		switch note.Key {
		case "time":
			continue
		case "pauses":
			data = fmt.Sprint(note.Revision, ":", data)
		}
		all = append(all, note.Key+"="+data)
	}
	return all
}

// Programs of version 5 read the pauses from the table settings, and programs of this version from a note. Each sees
// the last write of the other, and of two writes at the same revision one is refused.
func TestMigrate_fromVersion5_withProgramsOfIt(t *testing.T) {
	ctx, at := t.Context(), schema()
	old, err := postgres.OpenVersion5(ctx, server(t), at)
	check(t, err)
	t.Cleanup(old.Close)
	conn := connect(t, shared.URL())
	oldSets := func(data string, revision int64, want bool) { // as such a program does
		t.Helper()
		done, err := conn.Exec(ctx, old.Text("INSERT INTO $schema.settings AS s (revision, data) SELECT 1, $1 "+
			"WHERE $2::bigint = 0 OR EXISTS (SELECT FROM $schema.settings) "+
			"ON CONFLICT (one) DO UPDATE SET revision = s.revision + 1, data = $1 WHERE s.revision = $2"), []byte(data), revision)
		if err != nil || (done.RowsAffected() == 1) != want {
			t.Errorf("the old program has set %q at %d: %v, %v", data, revision, done, err)
		}
	}
	oldSees := func(want string, at int64) {
		t.Helper()
		var data []byte
		var revision int64
		err := conn.QueryRow(ctx, old.Text("SELECT data, revision FROM $schema.settings")).Scan(&data, &revision)
		if err != nil || string(data) != want || revision != at {
			t.Errorf("the old program sees %q at %d, %v; want %q at %d", data, revision, err, want, at)
		}
	}
	oldSets("a", 0, true)
	e := open(t, at) // which migrates
	sets := func(w engine.Write, revision int64, want bool) {
		t.Helper()
		w.If, w.Revision = engine.IfUnchanged, revision
		if revision == 0 {
			w.If = engine.IfAbsent
		}
		results, err := e.Commit(ctx, 0, []engine.Batch{{w, note("other", "x")}})
		if err != nil || (len(results[0].Unmet) == 0) != want {
			t.Errorf("the new program has set %q at %d: %+v, %v", w.Data, revision, results, err)
		}
	}
	sees := func(want ...string) {
		t.Helper()
		if got := notes(t, e); !slices.Equal(got, want) {
			t.Errorf("the new program sees %q, want %q", got, want)
		}
		if got := notes(t, old); !slices.Equal(got, want[len(want)-1:]) {
			t.Errorf("the old program sees %q, want %q", got, want[len(want)-1:])
		}
	}
	sees("pauses=1:a")
	sets(note("pauses", "b"), 0, false)
	sees("pauses=1:a") // nothing of the batch
	sets(note("pauses", "b"), 1, true)
	oldSees("b", 2)
	oldSets("late", 1, false)
	oldSets("c", 2, true)
	sets(note("pauses", "late"), 2, false)
	sees("other=x", "pauses=3:c")

	// After that nothing is paused for the old program, and no revision is reused.
	gone := note("pauses", "")
	gone.Data = nil
	sets(gone, 3, true)
	oldSees("", 4)
	if got := notes(t, e); !slices.Equal(got, []string{"other=x"}) {
		t.Errorf("after that note is deleted there are %q", got)
	}
	oldSets("late", 3, false)
	sets(note("pauses", "late"), 4, false)
	sets(note("pauses", "d"), 0, true)
	sees("other=x", "pauses=5:d")
}

// Notes are read every half second. That reads little, however often they were written.
func TestNotes_writtenOften_areReadCheaply(t *testing.T) {
	e := open(t)
	for range 200 {
		commit(t, e, 0, note("a", strings.Repeat("x", 100)), note("pauses", strings.Repeat("y", 100)))
	}
	if n := readsOf(t, e, connect(t, shared.URL()), postgres.NotesSQL(e), []byte("a"), []byte{0xff}, false, 64); n > 16 {
		t.Errorf("to read the notes %d blocks are read", n)
	}
}
