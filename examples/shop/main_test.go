// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// asProgram is set in the environment of a test program that must act as the shop, and of the processes it starts.
const asProgram = "SHOP_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	_ = os.Setenv(asProgram, "1") // for the processes that the tests start
	os.Exit(m.Run())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The demo on both engines, until each kind of trouble has happened.
func TestDemo(t *testing.T) {
	for name, troubles := range map[string][]string{"postgres": {"kill -9", "stop", "away"}, "directory": {"kill -9", "stop"}} {
		t.Run(name, func(t *testing.T) {
			c := config{duration: time.Hour, window: 3 * time.Second, trouble: 300 * time.Millisecond}
			if name == "directory" {
				c.dir = filepath.Join(t.TempDir(), "shop")
			} else {
				s, err := pgtest.Start()
				pgtest.Must(t, err)
				check(t, s.Close())
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			r, w := io.Pipe()
			var text strings.Builder
			var reading sync.WaitGroup
			reading.Go(func() {
				for lines := bufio.NewScanner(r); lines.Scan(); {
					fmt.Fprintln(&text, lines.Text())
					troubles = slices.DeleteFunc(troubles, func(what string) bool {
						return strings.Contains(lines.Text(), " "+what)
					})
					if len(troubles) == 0 {
						interrupt()
					}
				}
			})
			err := drive(ctx, c, w)
			_ = w.Close()
			reading.Wait()
			if err != nil || !strings.Contains(text.String(), "to the unit") {
				t.Errorf("the demo ended with %v:\n%s", err, &text)
			}
			if c.dir == "" {
				return
			}
			entries, err := readJournal(c.dir)
			check(t, err)
			if len(entries) == 0 {
				t.Error("the journal is empty")
			}
			if err := drive(ctx, c, io.Discard); !os.IsExist(err) {
				t.Errorf("on a directory that exists, the demo ended with %v", err)
			}
		})
	}
}

// An interrupt ends the orders, and a second one or a kill everything: no process is left.
func TestMain_signal_leavesNoProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the test finds processes in /proc")
	}
	for _, c := range []struct {
		name         string
		signals      map[string]string // sent when a line contains the key
		want, report string
	}{
		{"interrupted", map[string]string{"node-1": "INT"}, "exit status 0", "to the unit"},
		{"interrupted twice", map[string]string{"node-1": "INT", "no further": "INT"}, "signal: interrupt", ""},
		{"killed", map[string]string{"node-1": "KILL"}, "signal: killed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "shop")
			cmd := exec.Command("setsid", os.Args[0], "-dir", dir, "-for", "1h")
			r, err := cmd.StdoutPipe()
			check(t, err)
			check(t, cmd.Start())
			defer time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
			var text strings.Builder
			for lines := bufio.NewScanner(r); lines.Scan(); {
				fmt.Fprintln(&text, lines.Text())
				for when, s := range c.signals {
					if strings.Contains(lines.Text(), when) {
						time.Sleep(100 * time.Millisecond) // so that there are orders
						to := strconv.Itoa(cmd.Process.Pid)
						if s == "INT" {
							to = "-" + to // a terminal interrupts all processes
						}
						check(t, exec.Command("kill", "-s", s, "--", to).Run())
					}
				}
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.String(); got != c.want || !strings.Contains(text.String(), c.report) {
				t.Errorf("the program ended with %s, want %s, and wrote, without %q\n%s", got, c.want, c.report, &text)
			}
			for left := "?"; left != ""; time.Sleep(20 * time.Millisecond) {
				left = ""
				all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
				for _, name := range all {
					if line, _ := os.ReadFile(name); strings.Contains(string(line), dir) {
						left = name // the test times out if the process does not end
					}
				}
			}
		})
	}
}

// The answers of both books to the same requests, each sent twice, and the effects on the stock and the rechecks.
func TestBook(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		b := &directory{config: config{dir: t.TempDir(), window: time.Hour}}
		e, err := pebble.Open(t.Context(), filepath.Join(b.dir, "tasks"))
		check(t, err)
		testBook(t, e, b, func() ([]entry, error) { return readJournal(b.dir) })
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := pgtest.Start()
		pgtest.Must(t, err)
		defer func() { check(t, s.Close()) }()
		db, err := pgxpool.New(t.Context(), s.URL())
		check(t, err)
		defer db.Close()
		e, err := postgres.OpenPool(t.Context(), db)
		check(t, err)
		defer e.Close()
		b := &database{config{window: time.Hour}, db, e}
		testBook(t, e, b, func() ([]entry, error) { return readTables(t.Context(), s.URL()) })
	})
}

func testBook(t *testing.T, e engine.Engine, b book, read func() ([]entry, error)) {
	tasks, err := durable.New(t.Context(), e)
	check(t, err)
	defer func() { check(t, tasks.Shutdown(context.Background())) }()
	check(t, tasks.Handle(recheck, b.giveBack))
	check(t, b.open(t.Context(), tasks))
	check(t, tasks.Start())
	web := routes(b)
	for _, c := range []struct {
		path, body string
		want       int
		held, gone int // orders, and units of the article
	}{
		{"/orders", `{"id": "a", "article": 1, "units": 2}`, http.StatusOK, 1, 2},
		{"/orders", `{"id": "b", "article": 1, "units": 3}`, http.StatusOK, 2, 5},
		{"/orders", `{"id": "c", "article": 1, "units": 496}`, http.StatusConflict, 2, 5},
		{"/orders", `{"id": "", "article": 1, "units": 1}`, http.StatusBadRequest, 2, 5},
		{"/orders", `{"id": "d", "article": 1, "units": -1}`, http.StatusBadRequest, 2, 5},
		{"/orders", `{"id": "d", "article": 21, "units": 1}`, http.StatusBadRequest, 2, 5},
		{"/orders", `{`, http.StatusBadRequest, 2, 5},
		{"/orders/c/pay", "", http.StatusGone, 2, 5},
		{"/orders/a/pay", "", http.StatusOK, 1, 5},
		{"run", "b", 0, 0, 2},
		{"/orders/b/pay", "", http.StatusGone, 0, 2},
	} {
		for range 2 { // the first answer may be lost
			if c.path == "run" {
				_ = tasks.Reschedule(t.Context(), c.body, 0) // there is nothing to run the second time
				continue
			}
			w := httptest.NewRecorder()
			web.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", c.path, strings.NewReader(c.body)))
			if w.Code != c.want {
				t.Errorf("%s %s: the status is %d, want %d", c.path, c.body, w.Code, c.want)
			}
		}
		for { // until the run is complete; otherwise the test times out
			found, err := tasks.Find(t.Context(), durable.Query{})
			check(t, err)
			if len(found.Tasks) == c.held {
				break
			}
			time.Sleep(time.Millisecond)
		}
		entries, err := read()
		check(t, err)
		s := audit(entries, nil)
		if s.orders[held] != c.held || s.sold+s.missing != c.gone {
			t.Errorf("%s %s: %d orders are held and %d units gone, want %d and %d", c.path, c.body, s.orders[held],
				s.sold+s.missing, c.held, c.gone)
		}
	}
	entries, err := read()
	check(t, err)
	s := audit(entries, map[string]*answers{"a": {http.StatusOK, http.StatusOK}, "b": {http.StatusOK, http.StatusGone}})
	if s.faults != nil || s.sold != 2 {
		t.Errorf("the books are %+v", s)
	}
}

// A directory whose process was killed between its two writes.
func TestDirectory_open(t *testing.T) {
	b := &directory{config: config{dir: t.TempDir(), window: time.Hour}}
	const line = `{"id":"a","article":1,"units":2,"state":"held","gone":2}` + "\n"
	check(t, os.WriteFile(journalIn(b.dir), []byte(line), 0o600))
	e, err := pebble.Open(t.Context(), filepath.Join(b.dir, "tasks"))
	check(t, err)
	tasks, err := durable.New(t.Context(), e)
	check(t, err)
	defer func() { check(t, tasks.Shutdown(context.Background())) }()
	check(t, tasks.Handle(recheck, b.giveBack))
	check(t, b.open(t.Context(), tasks))
	there, err := tasks.Exist(t.Context(), "a")
	check(t, err)
	if !there || b.gone[1] != 2 {
		t.Errorf("a recheck: %v, units: %v", there, b.gone)
	}
}

// The faults that the audit finds.
func TestAudit(t *testing.T) {
	const ok, gone, conflict = http.StatusOK, http.StatusGone, http.StatusConflict
	line := func(id, state string, gone int) entry { return entry{order{id, 1, 2}, state, gone} }
	for _, c := range []struct {
		name    string
		entries []entry
		answers answers
		want    string
	}{
		{"paid", []entry{line("a", held, 2), line("a", paid, 2)}, answers{ok, ok}, ""},
		{"returned", []entry{line("a", held, 2), line("a", returned, 0)}, answers{ok, 0}, ""},
		{"paid too late", []entry{line("a", held, 2), line("a", returned, 0)}, answers{ok, gone}, ""},
		{"sold out", nil, answers{conflict, 0}, ""},
		{"returned twice", []entry{line("a", held, 2), line("a", returned, -2)}, answers{ok, 0}, "article 1"},
		{"paid and returned", []entry{line("a", held, 2), line("a", paid, 0)}, answers{ok, ok}, "article 1"},
		{"still held", []entry{line("a", held, 2)}, answers{ok, 0}, `"held"`},
		{"lost", nil, answers{ok, 0}, `order a is ""`},
		{"the payment is lost", []entry{line("a", held, 2), line("a", returned, 0)}, answers{ok, ok}, `"returned"`},
		{"paid without an answer", []entry{line("a", held, 2), line("a", paid, 2)}, answers{ok, gone}, `"paid"`},
		{"never answered", []entry{line("a", held, 2), line("a", paid, 2)}, answers{}, `"paid"`},
	} {
		faults := strings.Join(audit(c.entries, map[string]*answers{"a": &c.answers}).faults, "; ")
		if (faults == "") != (c.want == "") || !strings.Contains(faults, c.want) {
			t.Errorf("%s: the faults are %q, want %q", c.name, faults, c.want)
		}
	}
}
