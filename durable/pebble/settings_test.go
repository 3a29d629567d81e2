// SPDX-License-Identifier: MIT

package pebble_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A store of format 3 loses nothing, and has no settings. Then it has the format of this version, so that no earlier
// program runs paused tasks.
func TestOpen_format3_losesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := pebble.OpenFormat3(dir)
	must(t, err)
	_, failing := format2Records(t)
	c := engine.Change{Key: "a", From: engine.None, Due: 7, Data: failing, Failing: true}
	must(t, s.Commit([]engine.Change{c}))
	must(t, s.Close())
	s, err = pebble.Open(dir)
	must(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "FORMAT"))
	if err != nil || !strings.HasPrefix(string(text), "timewheel/durable 4\n") {
		t.Errorf("the format is %q, %v", text, err)
	}
	if settings, err := s.Settings(); err != nil || settings != nil {
		t.Errorf("the settings are %q, %v", settings, err)
	}
	if r, ok, err := s.Get("a"); err != nil || !ok || !bytes.Equal(r.Data, failing) || len(lines(t, s.Failing(""))) != 1 {
		t.Errorf("%v, %v, %v", r, ok, err)
	}
	must(t, s.SetSettings([]byte("{}")))
	must(t, s.Close())
	s, err = pebble.Open(dir)
	must(t, err)
	if settings, err := s.Settings(); err != nil || string(settings) != "{}" {
		t.Errorf("the settings are %q, %v", settings, err)
	}
	must(t, s.Close())
}

// A backup includes pauses: paused tasks that are restored from it do not run.
func TestBackup_hasWhatIsPaused(t *testing.T) {
	open := func(dir string) *durable.Scheduler {
		t.Helper()
		s, err := newScheduler(dir)
		must(t, err)
		must(t, s.Handle("k", func(context.Context, durable.Run) error { t.Error("it runs"); return nil }))
		must(t, s.Start())
		return s
	}
	s := open(filepath.Join(t.TempDir(), "store"))
	must(t, s.PauseKind(ctx, "k"))
	must(t, s.AddTask(ctx, durable.Task{Key: "a", Kind: "k", Delay: time.Millisecond}))
	var tape bytes.Buffer
	must(t, s.Backup(ctx, &tape))
	must(t, s.Shutdown(ctx))
	dir := filepath.Join(t.TempDir(), "copy")
	must(t, os.Mkdir(dir, 0o700))
	must(t, unpack(dir, &tape))
	s = open(dir)
	if p, err := s.Paused(ctx); err != nil || !p.Has("k") || p.All {
		t.Errorf("%+v, %v", p, err)
	}
	must(t, s.Shutdown(ctx))
}
