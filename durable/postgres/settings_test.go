// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A version2 is the engine of a program of version 2: it knows no settings, and uses the tables of that version
// alone.
type version2 struct{ version3 }

func (version2) Settings(context.Context) ([]byte, int64, error) { return nil, 0, nil }

func (version2) SetSettings(context.Context, []byte, int64) (bool, error) {
	return false, errors.New("programs of version 2 have no settings")
}

func (version2) Asked(context.Context, engine.MemberID) ([]engine.Question, error) { return nil, nil }

// What programs of version 2 have written is there, and such a program continues next to those of this version,
// during the migration and afterwards. It does not know what is paused.
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
	w, err := durable.NewWrite(durable.Task{Key: "before", Kind: "new", Delay: 1}, time.Now().UnixNano())
	check(t, err)
	exec(t, conn, text("INSERT INTO $schema.task (key, due, revision, kind, data) VALUES ($1, $2, 1, 'new', $3)"),
		[]byte(w.Key), w.Due, w.Data)

	join := func(e engine.Engine, kind string) (*durable.Scheduler, chan durable.Run) {
		t.Helper()
		s, err := durable.Join(ctx, e, durable.WithLogger(testkit.Quiet()), durable.WithNode(kind))
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
	if settings, revision, err := e.Settings(ctx); err != nil || settings != nil || revision != 0 {
		t.Errorf("the settings are %q at %d, %v", settings, revision, err)
	}
	s2, ranNew := join(e, "new")
	is(ranNew, "before")
	check(t, s2.PauseAll(ctx))
	added(s2, "paused", "new")
	added(s2, "after", "both")
	is(ranOld, "after") // on the program that does not know better
	added(s, "own", "old")
	is(ranOld, "own")
	if n := len(ranNew); n != 0 {
		t.Errorf("while all are paused %d run", n)
	}
	check(t, s2.ResumeAll(ctx))
	is(ranNew, "paused")
}

// Settings are what one row holds: reading them reads little, however often they were written.
func TestSettings_writtenOften_areReadCheaply(t *testing.T) {
	e := open(t)
	for i := range int64(200) {
		if done, err := e.SetSettings(t.Context(), make([]byte, 100), i); err != nil || !done {
			t.Fatalf("%v, %v", done, err)
		}
	}
	if n := readsOf(t, e, connect(t, shared.URL()), postgres.SettingsSQL(e)); n > 16 {
		t.Errorf("to read the settings %d blocks are read", n)
	}
}
