// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var update = flag.Bool("update", false, "write the files of testdata")

// now is the time of all tests: half a day before the new year 2200.
var now = time.Date(2199, 12, 31, 12, 0, 0, 0, time.FixedZone("CET", 3600))

// shared is the server of all tests.
var shared struct {
	once sync.Once
	*pgtest.Server
	err error
}

func TestMain(m *testing.M) {
	if os.Getenv("TIMEWHEEL_TEST_MAIN") != "" { // a completion script calls this program
		main()
	}
	code := m.Run()
	if shared.Server != nil {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// server returns the URL of the server, or skips the test where none is installed, unless POSTGRES_REQUIRED is
// set.
func server(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() { shared.Server, shared.err = pgtest.Start() })
	pgtest.Must(t, shared.err)
	return shared.URL()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A result is the outcome of a call of the command.
type result struct {
	out, err string
	code     int
}

// A rig is the command with a place of tasks.
type rig struct {
	*testing.T
	place  []string // flags
	answer string   // typed at the terminal; empty if there is none
	width  int
	env    map[string]string

	serves *serving // nil if the place is no service
}

// do calls the command. The flags that name the place of the tasks follow its name.
func (r *rig) do(name string, args ...string) result {
	r.Helper()
	return r.run(append(append([]string{name}, r.place...), args...)...)
}

// run calls the command with these arguments.
func (r *rig) run(args ...string) result {
	r.Helper()
	var out, errOut bytes.Buffer
	p := &program{
		in: strings.NewReader(r.answer), out: &out, err: &errOut, getenv: func(name string) string { return r.env[name] },
		now: func() time.Time { return now }, asks: r.answer != "", width: r.width, who: "ann",
	}
	code := p.run(r.Context(), args)
	return result{out.String(), errOut.String(), code}
}

// must calls the command, which must succeed, and returns its output.
func (r *rig) must(name string, args ...string) string {
	r.Helper()
	got := r.do(name, args...)
	if got.code != done {
		r.Fatalf("%s %q: exit code %d: %s", name, args, got.code, got.err)
	}
	return got.out
}

// schemas numbers the schemas of the tests.
var schemas atomic.Int64

// anywhere is everywhere, and on an empty store that a service has open.
func anywhere(t *testing.T, test func(r *rig)) {
	everywhere(t, test)
	t.Run("service", func(t *testing.T) { test(&newServing(t).rig) })
}

// everywhere runs the test on an empty store in a directory, and on an empty schema of a database.
func everywhere(t *testing.T, test func(r *rig)) {
	t.Run("directory", func(t *testing.T) { test(inDirectory(t)) })
	t.Run("database", func(t *testing.T) { test(inDatabase(t)) })
}

func inDirectory(t *testing.T) *rig {
	dir := filepath.Join(t.TempDir(), "tasks")
	e, err := pebble.Open(t.Context(), dir)
	check(t, err)
	check(t, e.Close())
	return &rig{T: t, place: []string{"-dir", dir}}
}

func inDatabase(t *testing.T) *rig {
	r := &rig{T: t, place: []string{"-db", server(t), "-schema", fmt.Sprint("test ", schemas.Add(1))}}
	r.must("migrate")
	return r
}

// with calls f with a scheduler of the tasks.
func (r *rig) with(f func(s *durable.Scheduler)) {
	r.Helper()
	var s *durable.Scheduler
	dir := r.place[1]
	if r.serves != nil {
		r.serves.stop()
		defer r.serves.start()
		dir = r.serves.dir
	}
	if r.place[0] != "-db" {
		e, err := pebble.Open(r.Context(), dir)
		check(r.T, err)
		s, err = durable.New(r.Context(), e, durable.WithLogger(testkit.Quiet()))
		check(r.T, err)
	} else {
		e := r.engine()
		defer e.Close()
		var err error
		s, err = durable.New(r.Context(), e, durable.WithLogger(testkit.Quiet()))
		check(r.T, err)
	}
	f(s)
	check(r.T, s.Shutdown(r.Context()))
}

func (r *rig) engine() *postgres.Engine {
	r.Helper()
	e, err := postgres.Open(r.Context(), r.place[1], postgres.WithSchema(r.place[3]))
	check(r.T, err)
	return e
}

// restore restores the records.
func (r *rig) restore(records []engine.Record) {
	r.Helper()
	r.with(func(s *durable.Scheduler) { check(r.T, s.Restore(r.Context(), records...)) })
}

// keys returns the keys of all tasks, in due order.
func (r *rig) keys() (keys []string) {
	r.Helper()
	r.with(func(s *durable.Scheduler) {
		for i, err := range s.All(r.Context()) {
			check(r.T, err)
			keys = append(keys, i.Key)
		}
	})
	return keys
}

// everything is the range of all tasks, in due order.
var everything = engine.Range{After: engine.Position{Due: engine.None}, Until: lastDue}

// fixture returns records of tasks in most states.
func fixture(t *testing.T) (all []engine.Record) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		s, err := durable.New(t.Context(), m.Engine(), durable.WithLogger(testkit.Quiet()))
		check(t, err)
		fails := func(ctx context.Context, run durable.Run) error {
			return fmt.Errorf("smtp %s: connection refused", run.Payload)
		}
		check(t, s.Handle("mail", fails, durable.WithRetry(1, time.Second, time.Second)))
		check(t, s.Handle("order", func(_ context.Context, run durable.Run) error { run.Complete("3 rows"); return nil }))
		check(t, s.Start())
		year := now.Add(12 * time.Hour)
		check(t, s.AddTask(t.Context(),
			durable.Task{Key: "mail:1", Kind: "mail", Payload: []byte("17"), Delay: time.Second},
			durable.Task{Key: "mail:2", Kind: "mail", Payload: []byte("18"), Delay: time.Second},
			durable.Task{Key: "mail:3", Kind: "mail", Payload: []byte("19"), At: year},
			durable.Task{Key: "order:1", Kind: "order", Payload: []byte("{\"id\": 1}\n"), At: year.Add(time.Nanosecond)},
			durable.Task{Key: "order:2", Kind: "order", Delay: time.Second, Interval: 90 * time.Minute, Times: durable.Forever},
			durable.Task{Key: "order:3", Kind: "order", Payload: []byte{0, 1, 2, 0xff}, At: year.AddDate(1, 0, 0),
				Interval: 1500 * time.Millisecond, Times: 12_000, PayloadVersion: 2, Group: "acme",
				Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
			durable.Task{Key: "a key\nof\xffbytes", Kind: "order", At: year, Group: "acme\xff", Trace: "\xfe"},
			durable.Task{Key: "Auftrag: Größe 大きさ", Kind: "order", Delay: time.Until(year),
				MaxDelay: time.Until(year.Add(time.Hour))},
			durable.Task{Key: "order:4", Kind: "order", At: year.Add(time.Hour), Cron: "0 9 * * MON",
				Jitter: time.Hour, Times: durable.Forever},
			durable.Task{Key: "order:5", Kind: "order", At: year},
		))
		check(t, s.Pause(t.Context(), "order:5"))
		time.Sleep(time.Minute) // of the bubble
		synctest.Wait()
		check(t, s.Reschedule(t.Context(), "order:2", time.Until(now.Add(4*time.Minute+12*time.Second))))
		check(t, s.Shutdown(t.Context()))
		e := m.Engine()
		for r, err := range e.Walk(t.Context(), everything) {
			check(t, err)
			all = append(all, r.Record)
		}
		check(t, e.Close())
	})
	return all
}

var variable = regexp.MustCompile(`"generation":[0-9]+|[0-9a-f]{14,16}\.|"at":"20[0-9-]+T[0-9:.]+Z"|"record":"[^"]+"`)

// golden compares a text with a file of testdata. The numbers in tokens and the duration of a count vary.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = variable.ReplaceAllString(got, "#")
	name = filepath.Join("testdata", name)
	if *update {
		check(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	check(t, err)
	if got != string(want) {
		t.Errorf("it writes\n%s\nand %s has\n%s", got, name, want)
	}
}
