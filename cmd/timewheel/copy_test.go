// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/backup"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// stored returns all records, in due order.
func (r *rig) stored() (all []engine.Record) {
	r.Helper()
	read := func(e engine.Engine) {
		for one, err := range e.Walk(r.Context(), everything) {
			check(r.T, err)
			all = append(all, one.Record)
		}
	}
	if r.place[0] == "-dir" {
		e, err := pebble.Open(r.Context(), r.place[1])
		check(r.T, err)
		read(e)
		check(r.T, e.Close())
		return all
	}
	e := r.engine()
	defer e.Close()
	read(e)
	return all
}

func TestExport_thenImport_keepsEverything(t *testing.T) {
	records := fixture(t)
	everywhere(t, func(from *rig) {
		from.restore(records)
		lines := from.must("export")
		if n := strings.Count(lines, "\n"); n != len(records) {
			from.Fatalf("%d lines for %d tasks:\n%s", n, len(records), lines)
		}
		everywhere(from.T, func(to *rig) {
			to.answer = lines
			to.must("import")
			if got := to.stored(); fmt.Sprint(got) != fmt.Sprint(records) {
				to.Errorf("there are\n%q\nwant\n%q", got, records)
			}
			for _, args := range [][]string{{"ls", "-all", "-json"}, {"show", "-json", "mail:1"}} {
				if got, want := to.must(args[0], args[1:]...), from.must(args[0], args[1:]...); got != want {
					to.Errorf("%q writes\n%s\nand of the original\n%s", args, got, want)
				}
			}
		})
	})
}

func TestExport_toAFile_andImportIntoANewDirectory(t *testing.T) {
	r := inDirectory(t)
	r.restore(fixture(t))
	name := filepath.Join(t.TempDir(), "tasks.jsonl")
	if got := r.do("export", name); got.code != done || got.out != "" || got.err != "Exported 10 tasks.\n" {
		t.Errorf("export: %+v", got)
	}
	if got := r.do("export", name); got.code != failed || !strings.Contains(got.err, "exists") {
		t.Errorf("export over a file: %+v", got)
	}
	to := &rig{T: t, place: []string{"-dir", filepath.Join(t.TempDir(), "new")}}
	if got := to.do("import", name); got.code != done || got.err != "Imported 10 tasks.\n" {
		t.Errorf("import: %+v", got)
	}
	golden(t, "export.golden", r.must("export", "-"))
}

func TestImport_ofKeysThatAreTaken_skipsOrReplaces(t *testing.T) {
	records := fixture(t)
	everywhere(t, func(r *rig) {
		r.restore(records)
		lines := r.must("export")
		r.must("run-now", "mail:3", "order:1")
		r.must("rm", "order:2")
		changed := r.stored()
		r.answer = lines
		if got := r.do("import"); got.code != done || got.err != "Imported 1 task, skipped 9 whose key was taken.\n" {
			r.Errorf("import: %+v", got)
		}
		if got := r.stored(); len(got) != 10 || fmt.Sprint(got) == fmt.Sprint(records) || len(changed) != 9 {
			r.Errorf("it has replaced something")
		}
		got := r.do("import", "-replace")
		if got.code != done || got.err != "Imported 10 tasks, of which 10 replaced another.\n" {
			r.Errorf("import -replace: %+v", got)
		}
		if got := r.stored(); fmt.Sprint(got) != fmt.Sprint(records) {
			r.Errorf("there are\n%q\nwant\n%q", got, records)
		}
	})
}

func TestImport_ofALineThatIsWrong_namesItAndCanBeRunAgain(t *testing.T) {
	source := inDirectory(t)
	source.restore(fixture(t))
	lines := strings.SplitAfter(strings.TrimSuffix(source.must("export"), "\n"), "\n")
	for name, c := range map[string]struct{ bad, says string }{
		"no JSON":               {"{\n", "line 4: unexpected end of JSON"},
		"no record":             {`{"key":"k"}` + "\n", `line 4: it has no field "record"`},
		"a record that is cut":  {`{"key":"k","record":"AQ=="}` + "\n", "line 4: durable: the store is corrupt"},
		"of a later version":    {`{"key":"k","record":"/w=="}` + "\n", "line 4: durable: the store has a format of another"},
		"an edited kind":        {strings.Replace(lines[3], `"kind":"mail"`, `"kind":"post"`, 1), `line 4: its field "kind"`},
		"an edited due time":    {strings.Replace(lines[3], `"due":72`, `"due":71`, 1), `line 4: its field "next"`},
		"a line that is longer": {strings.Repeat("x", mostLine+1), "line 4: bufio.Scanner: token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.bad == lines[3] {
				t.Fatal("the line is not changed")
			}
			r := inDirectory(t)
			r.answer = strings.Join(slices.Concat(lines[:3], []string{c.bad}, lines[4:]), "")
			got := r.do("import")
			if got.code != failed || !strings.Contains(got.err, c.says) || !strings.Contains(got.err, "Imported 3 tasks.") {
				t.Errorf("%+v, want %q", got, c.says)
			}
			r.answer = strings.Join(lines, "")
			if got := r.do("import"); got.code != done || got.err != "Imported 7 tasks, skipped 3 whose key was taken.\n" {
				t.Errorf("again: %+v", got)
			}
		})
	}
}

// A file may have any length, and contain a key more than once, within a batch and across batches.
func TestImport_ofManyLines_addsThemInBatches(t *testing.T) {
	const tasks = 2*batchTasks + 500
	for name, c := range map[string]struct {
		replace                  bool
		added, replaced, skipped int
		payload                  string
	}{
		"skip":    {false, tasks, 0, tasks + 1, "first"},
		"replace": {true, 2 * tasks, tasks + 1, 0, "third"},
	} {
		t.Run(name, func(t *testing.T) {
			out, in := io.Pipe()
			go func() {
				var err error
				for _, payload := range []string{"first", "second"} {
					for n := range tasks {
						err = errors.Join(err, writeLine(t, in, fmt.Sprint(n), payload))
					}
				}
				_ = in.CloseWithError(errors.Join(err, writeLine(t, in, fmt.Sprint(tasks-1), "third")))
			}()
			s, err := durable.New(t.Context(), memory.New().Engine(), durable.WithLogger(testkit.Quiet()))
			check(t, err)
			i := importer{s: s, replace: c.replace, so: func(int) {}}
			check(t, i.read(t.Context(), out))
			if s.Len() != tasks || i.skipped != c.skipped || i.replaced != c.replaced || cap(i.batch) > 2*batchTasks {
				t.Errorf("%d tasks, %d skipped, %d replaced; a batch of %d", s.Len(), i.skipped, i.replaced, cap(i.batch))
			}
			if info, ok, err := s.Get(t.Context(), fmt.Sprint(tasks-1)); !ok || err != nil || string(info.Payload) != c.payload {
				t.Errorf("the last is %+v, %v", info, err)
			}
			check(t, s.Shutdown(t.Context()))
		})
	}
}

// writeLine writes a task as an export would.
func writeLine(t *testing.T, to io.Writer, key, payload string) error {
	e := memory.New().Engine()
	s, err := durable.New(t.Context(), e, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		return err
	}
	err = errors.Join(s.Handle("k", func(context.Context, durable.Run) error { return nil }),
		s.AddTask(t.Context(), durable.Task{Key: key, Kind: "k", Payload: []byte(payload), At: now}))
	stored, bad := e.Get(t.Context(), key)
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	l, wrong := newLine(stored[0].Record)
	return errors.Join(wrong, s.Shutdown(t.Context()), writeJSON(to, l))
}

func TestSeconds_areExact(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 1: "0.000000001", -1: "-0.000000001", time.Second: "1", 90 * time.Minute: "5400",
		1500 * time.Millisecond: "1.5", math.MaxInt64: "9223372036.854775807", math.MinInt64: "-9223372036.854775808",
	} {
		b, err := seconds(d).MarshalJSON()
		if err != nil || string(b) != want {
			t.Errorf("%v is %s, %v, want %s", d, b, err, want)
		}
		var back seconds
		if err := back.UnmarshalJSON(b); err != nil || time.Duration(back) != d {
			t.Errorf("%s is read as %v, %v", b, time.Duration(back), err)
		}
	}
	var s seconds
	for _, bad := range []string{"x", `"1"`, "1e3", "99999999999"} {
		if s.UnmarshalJSON([]byte(bad)) == nil {
			t.Errorf("%s is read as %v", bad, time.Duration(s))
		}
	}
}

// unpacked returns the command on the store from a tar file.
func unpacked(t *testing.T, name string) *rig {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xf", name, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	return &rig{T: t, place: []string{"-dir", dir}}
}

func TestBackup_ofAStoreThatIsInUse_isAStore(t *testing.T) {
	records := fixture(t)
	dir := filepath.Join(t.TempDir(), "tasks")
	e, err := pebble.Open(t.Context(), dir)
	check(t, err)
	s, err := durable.New(t.Context(), e, durable.WithLogger(testkit.Quiet()))
	check(t, err)
	defer func() { check(t, s.Shutdown(t.Context())) }()
	check(t, s.Restore(t.Context(), records...))
	web := httptest.NewServer(backup.Handler(s, func(r *http.Request) error {
		if user, password, _ := r.BasicAuth(); (user != "ada" || password != "pw") && r.Header.Get("X-Token") != "t" {
			return errors.New("who is there?")
		}
		return nil
	}))
	defer web.Close()
	r := &rig{T: t}
	name := filepath.Join(t.TempDir(), "tasks.tar")
	if got := r.run("backup", "-url", web.URL, name); got.code != failed || !strings.Contains(got.err, "who is there?") {
		t.Errorf("without a password: %+v", got)
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("a backup that was refused leaves a file: %v", err)
	}
	for i, args := range [][]string{
		{"-url", strings.Replace(web.URL, "//", "//ada:pw@", 1)}, {"-header", "X-Token: t", "-url", web.URL},
	} {
		name := fmt.Sprint(name, i)
		if got := r.run(append([]string{"backup", name}, args...)...); got.code != done {
			t.Fatalf("%+v", got)
		}
		if got := unpacked(t, name).stored(); fmt.Sprint(got) != fmt.Sprint(records) {
			t.Errorf("the copy has\n%q\nwant\n%q", got, records)
		}
	}
	if got := r.run("backup", "-header", "X-Token: t", "-url", web.URL, name+"0"); got.code != failed ||
		!strings.Contains(got.err, "exists") {
		t.Errorf("over a file: %+v", got)
	}
}

func TestBackup_withoutAProcess_isAStore(t *testing.T) {
	r := inDirectory(t)
	records := fixture(t)
	r.restore(records)
	name := filepath.Join(t.TempDir(), "tasks.tar")
	r.must("backup", name)
	if got := unpacked(t, name).stored(); fmt.Sprint(got) != fmt.Sprint(records) {
		t.Errorf("the copy has\n%q\nwant\n%q", got, records)
	}
	if got := r.stored(); fmt.Sprint(got) != fmt.Sprint(records) {
		t.Errorf("the original has\n%q\nwant\n%q", got, records)
	}
	if out := r.must("backup", "-"); !bytes.Contains([]byte(out), []byte("INVENTORY")) {
		t.Errorf("the standard output has %d bytes", len(out))
	}
}

func TestBackup_thatIsCutOff_leavesNothing(t *testing.T) {
	r := &rig{T: t}
	for says, handler := range map[string]http.HandlerFunc{
		"unexpected EOF": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-tar")
			_, _ = w.Write(make([]byte, 1<<16))
			panic(http.ErrAbortHandler)
		},
		"200 OK: hello":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
		"303 See Other":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusSeeOther) },
		"404 Not Found:": http.NotFound,
	} {
		web := httptest.NewServer(handler)
		name := filepath.Join(t.TempDir(), "tasks.tar")
		if got := r.run("backup", "-url", web.URL, name); got.code != failed || !strings.Contains(got.err, says) {
			t.Errorf("%+v, want %q", got, says)
		}
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Errorf("%s leaves a file: %v", says, err)
		}
		web.Close()
	}
}
