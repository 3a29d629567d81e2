// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"go/build"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestLook_writesTheSame_whereverTheTasksAre(t *testing.T) {
	records := fixture(t)
	anywhere(t, func(r *rig) {
		r.restore(records)
		for name, args := range map[string][]string{
			"ls":                {"ls"},
			"ls-json":           {"ls", "-json"},
			"ls-prefix":         {"ls", "-prefix", "mail:"},
			"ls-parked":         {"ls", "-state", "parked", "-kind", "mail"},
			"ls-paused":         {"ls", "-state", "paused"},
			"ls-failure":        {"ls", "-failure", "smtp #: connection refused"},
			"ls-repeating":      {"ls", "-repeating"},
			"ls-group":          {"ls", "-group", "acme"},
			"ls-group-bytes":    {"ls", "-group", `"acme\xff"`},
			"ls-all":            {"ls", "-all", "-limit", "2"},
			"show":              {"show", "order:1", "order:2", "order:3", "order:4", "order:5", "mail:1", "Auftrag: Größe 大きさ", `"a key\nof\xffbytes"`},
			"show-json":         {"show", "-json", "mail:1", "order:2", "order:3", "order:4", "Auftrag: Größe 大きさ", `"a key\nof\xffbytes"`},
			"show-payload":      {"show", "-payload", "order:1"},
			"stats":             {"stats"},
			"stats-json":        {"stats", "-json"},
			"stats-groups":      {"stats", "-by", "group", "-kind", "order"},
			"stats-groups-json": {"stats", "-by", "group", "-json"},
			"failures":          {"failures"},
			"failures-json":     {"failures", "-json"},
			"ls-in-80-cells":    {"ls"},
		} {
			if r.serves != nil && (name == "stats" || name == "stats-json") {
				continue // they have the limits of the service's kind
			}
			r.width = 0
			if strings.HasSuffix(name, "80-cells") {
				r.width = 80
			}
			got := r.do(args[0], args[1:]...)
			for got.code == done && strings.Contains(got.err, "that were looked at") { // a slow machine reads fewer
				got = r.do(args[0], args[1:]...)
			}
			if got.code != done {
				r.Fatalf("%q: %s", args, got.err)
			}
			golden(r.T, name+".golden", got.out)
		}
	})
}

// A database whose first answer takes longer than the time limit is queried again.
func TestFailures_ofASlowDatabase_areFound(t *testing.T) {
	records := fixture(t)
	synctest.Test(t, func(t *testing.T) {
		link := enginetest.NewLink(memory.New().Shared())
		s, err := durable.New(t.Context(), link, durable.WithLogger(testkit.Quiet()))
		check(t, err)
		check(t, s.Restore(t.Context(), records...))
		link.Next("Walk Failing", enginetest.Fault{Delay: time.Second}, enginetest.Fault{Delay: time.Second})
		found, err := failuresOf(t.Context(), s)
		if err != nil || len(found.Groups) != 1 || found.Looked != 2 {
			t.Errorf("found are %+v, %v", found, err)
		}
		check(t, s.Shutdown(t.Context()))
	})
}

func TestStats_ofASlowDatabase_sayHowLateItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := enginetest.NewLink(memory.New().Shared())
		s, err := durable.New(t.Context(), link, durable.WithLogger(testkit.Quiet()))
		check(t, err)
		check(t, s.Handle("k", func(context.Context, durable.Run) error { return nil }))
		due := time.Now()
		check(t, s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "k", At: due}))
		link.Next("Walk ByDue", enginetest.Fault{Delay: time.Second}, enginetest.Fault{Delay: time.Second})
		if late, err := overdueOf(t.Context(), s); err != nil || late.tasks != 1 || !late.oldest.Equal(due) {
			t.Errorf("overdue are %+v, %v; want one since %v", late, err, due)
		}
		check(t, s.Shutdown(t.Context()))
	})
}

func TestList_pages_followEachOther(t *testing.T) {
	r := inDirectory(t)
	r.restore(fixture(t))
	var pages []string
	for after := ""; ; {
		got := r.do("ls", "-json", "-limit", "3", "-after", after)
		if got.code != done {
			t.Fatalf("%+v", got)
		}
		pages = append(pages, got.out)
		if got.err == "" {
			break
		}
		_, rest, _ := strings.Cut(got.err, "-after ")
		after, _, _ = strings.Cut(rest, " ")
	}
	if want := r.must("ls", "-json", "-all"); len(pages) != 4 || strings.Join(pages, "") != want {
		t.Errorf("the pages are\n%s\nand all is\n%s", strings.Join(pages, "\n"), want)
	}
}

func TestExitCodes(t *testing.T) {
	r := inDirectory(t)
	r.restore(fixture(t))
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, usage, "usage: timewheel"},
		{[]string{"-h"}, done, ""},
		{[]string{"help"}, done, ""},
		{[]string{"help", "ls"}, done, ""},
		{[]string{"help", "nothing"}, usage, "no command \"nothing\"; `timewheel help help`"},
		{[]string{"help", "stat"}, usage, `no command "stat" (did you mean stats?)`},
		{[]string{"stat"}, usage, "no command \"stat\" (did you mean stats?); `timewheel help` lists them"},
		{[]string{"cancle"}, usage, "(did you mean cancel?)"},
		{[]string{"ls", "-stat", "parked"}, usage, "not defined: -stat (did you mean -state?)"},
		{[]string{"ls", "-state", "parkd"}, usage, "running, parked, paused (did you mean parked?)"},
		{[]string{"ls", "-h"}, done, ""},
		{[]string{"nothing"}, usage, `no command "nothing"`},
		{[]string{"stats", "-dir", empty, "-by", "grup"}, usage, `"grup" must be one of kind, group (did you mean group?)`},
		{[]string{"stats", "-dir", empty, "-kind", "mail"}, usage, "the flags of a search need -by group"},
		{[]string{"ls"}, usage, "Give -db, -dir or -url, or set TIMEWHEEL_DB or TIMEWHEEL_URL"},
		{[]string{"export"}, usage, "Give -db or -dir, or set TIMEWHEEL_DB"},
		{[]string{"ls", "-dir", "x", "-db", "y"}, usage, "two places"},
		{[]string{"ls", "-nothing"}, usage, "-nothing"},
		{[]string{"ls", "-state", "nothing"}, usage, "one of scheduled, retrying, waiting, running, parked, paused"},
		{[]string{"ls", "-limit", "0"}, usage, "-limit 0 is not positive"},
		{[]string{"ls", "-dir", empty, "more"}, usage, `"more" is one argument too many`},
		{[]string{"ls", "-dir", empty}, failed, "there is no store in " + empty},
		{[]string{"ls", r.place[0], r.place[1], "-after", "nonsense"}, failed, "is not the Next of a page"},
		{[]string{"ls", "-db", "postgres://127.0.0.1:1/x?connect_timeout=5"}, failed, "connect"},
		{[]string{"nodes", r.place[0], r.place[1]}, usage, "-dir"},
		{[]string{"show", r.place[0], r.place[1]}, usage, "which task?"},
		{[]string{"show", r.place[0], r.place[1], "mail:1", "none", "nor this"}, notFound, "nor this"},
		{[]string{"show", r.place[0], r.place[1], `"open`}, usage, "quotation mark"},
		{[]string{"show", r.place[0], r.place[1], "-payload", "a", "b"}, usage, "-payload is for one task"},
		{[]string{"rm", r.place[0], r.place[1]}, usage, "which tasks?"},
		{[]string{"rm", r.place[0], r.place[1], "-all", "key"}, usage, "not both"},
		{[]string{"rm", r.place[0], r.place[1], "none"}, notFound, "task key not found: none"},
		{[]string{"rm", r.place[0], r.place[1], "-all"}, notConfirmed, "Remove 10 tasks?"},
		{[]string{"rm", r.place[0], r.place[1], "-wait", "1s", "-all"}, usage, "-wait is for keys"},
		{[]string{"rm", r.place[0], r.place[1], "-wait", "-1s", "none"}, usage, "negative"},
		{[]string{"rm", r.place[0], r.place[1], "-wait", "1s", "none"}, notFound, "task key not found: none"},
		{[]string{"cancel"}, usage, "which tasks?"},
		{[]string{"cancel", r.place[0], r.place[1], "order:1"}, usage, "-dir"},
		{[]string{"unpark", r.place[0], r.place[1], "order:1"}, failed, "not parked, but scheduled"},
		{[]string{"unpark", r.place[0], r.place[1], "none"}, notFound, "none"},
		{[]string{"unpark", r.place[0], r.place[1], "-state", "parked"}, usage, "-state"},
		{[]string{"run-now", r.place[0], r.place[1], "order:5"}, failed, "left alone: task order:5 is paused"},
		{[]string{"pause", r.place[0], r.place[1]}, usage, "which tasks?"},
		{[]string{"pause", r.place[0], r.place[1], "none"}, notFound, "none"},
		{[]string{"pause", r.place[0], r.place[1], "-all"}, notConfirmed, "Pause 9 tasks?"},
		{[]string{"resume", r.place[0], r.place[1], "order:1"}, failed, "not paused, but scheduled"},
		{[]string{"resume", r.place[0], r.place[1], "none"}, notFound, "none"},
		{[]string{"resume", r.place[0], r.place[1], "-state", "paused"}, usage, "-state"},
		{[]string{"pause-kind", r.place[0], r.place[1]}, usage, "which kinds?"},
		{[]string{"pause-kind", r.place[0], r.place[1], "-all", "mail"}, usage, "not both"},
		{[]string{"pause-kind", r.place[0], r.place[1], "-all"}, notConfirmed, "Pause all kinds, with 10 tasks?"},
		{[]string{"resume-kind", r.place[0], r.place[1], "-all"}, notConfirmed, "Resume all kinds, with 10 tasks?"},
		{[]string{"pause-kind", r.place[0], r.place[1], strings.Repeat("k", 257)}, failed, "kind of 257 bytes"},
		{[]string{"reschedule", r.place[0], r.place[1], "-in", "1h"}, usage, "which tasks?"},
		{[]string{"reschedule", r.place[0], r.place[1], "mail:1"}, usage, "Give -in or -at"},
		{[]string{"reschedule", r.place[0], r.place[1], "-in", "1h", "none"}, notFound, "none"},
		{[]string{"reschedule", r.place[0], r.place[1], "-in", "-1h", "mail:1"}, usage, "negative"},
		{[]string{"completion", "sh"}, usage, "bash, zsh, fish"},
		{[]string{"backup", "-dir", empty}, usage, "where to?"},
		{[]string{"backup", "x"}, usage, "which store?"},
		{[]string{"migrate"}, usage, "TIMEWHEEL_DB"},
		{[]string{"version"}, done, ""},
	} {
		got := r.run(c.args...)
		if got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%q: exit code %d, want %d; it says\n%s\nwant %q", c.args, got.code, c.code, got.err, c.says)
		}
		if c.code == done && got.out == "" || c.code != done && got.out != "" && c.code != notFound {
			t.Errorf("%q, exit code %d, writes %q", c.args, got.code, got.out)
		}
	}
	if got := r.keys(); len(got) != 10 {
		t.Errorf("there are %q left", got)
	}
}

func TestStore_thatIsOpen_saysWhatToDo(t *testing.T) {
	r := inDirectory(t)
	e, err := pebble.Open(t.Context(), r.place[1])
	check(t, err)
	defer func() { check(t, e.Close()) }()
	for _, args := range [][]string{{"ls"}, {"export"}, {"import"}, {"backup", filepath.Join(t.TempDir(), "b.tar")}} {
		got := r.do(args[0], args[1:]...)
		if got.code != locked || !strings.Contains(got.err, "is open in another process") ||
			!strings.Contains(got.err, "Stop that process first, or ask it") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestSchema_thatIsNotThere_saysWhatToDo(t *testing.T) {
	r := &rig{T: t, place: []string{"-db", server(t), "-schema", "not there"}}
	if got := r.do("ls"); got.code != failed || !strings.Contains(got.err, "`timewheel migrate` makes the schema") {
		t.Errorf("%+v", got)
	}
	if got := r.run("migrate", "-schema", "x", "-print"); !strings.Contains(got.out, `CREATE SCHEMA IF NOT EXISTS "x"`) {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if got := r.must("migrate", "-cluster", "shop"); got != "The schema not there is up to date.\n" {
			t.Errorf("migrate writes %q", got)
		}
	}
	if got := r.do("ls", "-cluster", "other"); got.code != failed || !strings.Contains(got.err, `of cluster "shop"`) {
		t.Errorf("%+v", got)
	}
	r.must("ls", "-cluster", "shop")
}

// A paused task has no due time, and a calendar is shown instead of an interval. Both are copied.
func TestPausedTask_withACalendar_isShownAndCopied(t *testing.T) {
	r := inDirectory(t)
	r.with(func(s *durable.Scheduler) {
		check(t, s.Handle("order", func(context.Context, durable.Run) error { return nil }))
		check(t, s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "order", Cron: "@daily", Times: durable.Forever}))
		check(t, s.Pause(t.Context(), "a"))
	})
	for range 2 {
		got := r.must("ls", "-state", "paused")
		if !regexp.MustCompile(`(?m)^a +order +paused +- +forever`).MatchString(got) {
			t.Errorf("the list is\n%s", got)
		}
		if got := r.must("show", "a"); strings.Contains(got, "next") || !strings.Contains(got, "cron       @daily\n") {
			t.Errorf("it is\n%s", got)
		}
		line := r.must("export")
		if strings.Contains(line, `"next"`) || !strings.Contains(line, `"cron":"@daily"`) {
			t.Errorf("the export is %s", line)
		}
		from := filepath.Join(t.TempDir(), "tasks")
		check(t, os.WriteFile(from, []byte(line), 0o600))
		r = inDirectory(t)
		r.must("import", from)
	}
}

func TestChange_ofKeys_isDoneWithoutAsking(t *testing.T) {
	records := fixture(t)
	anywhere(t, func(r *rig) {
		r.restore(records)
		began := time.Now()
		if got := r.must("reschedule", "order:1", "-in", "1h", "mail:1"); got != "Rescheduled 2 tasks.\n" {
			r.Errorf("reschedule writes %q", got)
		}
		r.must("reschedule", "-at", "2199-12-31T11:00:30Z", "order:2") // half a minute from now
		r.with(func(s *durable.Scheduler) {
			for key, d := range map[string]time.Duration{
				"order:1": time.Hour, "mail:1": time.Hour, "order:2": 30 * time.Second,
			} {
				i, _, err := s.Get(r.Context(), key)
				check(r.T, err)
				// The clock of a node is ahead of the engine's by at most the duration of a call.
				ahead := time.Since(began)
				if left := time.Until(i.Next); i.State == durable.Parked || left > d+ahead || left < d-time.Minute {
					r.Errorf("%s is due in %v, want %v: %+v", key, left, d, i)
				}
			}
		})
		if got := r.must("unpark", "mail:2"); got != "Unparked 1 task.\n" {
			r.Errorf("unpark writes %q", got)
		}
		if got := r.must("run-now", "-json", "mail:3"); got != "{\"due\":1}\n" {
			r.Errorf("run-now writes %q", got)
		}
		r.with(func(s *durable.Scheduler) {
			for _, key := range []string{"mail:2", "mail:3"} {
				i, _, err := s.Get(r.Context(), key)
				check(r.T, err)
				if i.Next.IsZero() || time.Until(i.Next) > time.Since(began) || i.Attempts != 0 { // see ahead
					r.Errorf("%s: %+v", key, i)
				}
			}
		})
		got := r.do("rm", "order:1", "none", `"a key\nof\xffbytes"`)
		if got.out != "Removed 2 tasks.\n" || got.code != notFound {
			r.Errorf("rm: %+v", got)
		}
		if keys := r.keys(); len(keys) != 8 || slices.Contains(keys, "order:1") {
			r.Errorf("there are %q left", keys)
		}
	})
}

func TestChange_ofASearch_countsAndAsksFirst(t *testing.T) {
	records := fixture(t)
	anywhere(t, func(r *rig) {
		r.restore(records)
		for _, answer := range []string{"\n", "n\n", "no\n", "perhaps"} {
			r.answer = answer
			got := r.do("rm", "-prefix", "order:")
			if got.code != notConfirmed || !strings.HasPrefix(got.err, "Remove 5 tasks? [y/N] ") || got.out != "" {
				r.Errorf("answer %q: %+v", answer, got)
			}
		}
		if keys := r.keys(); len(keys) != 10 {
			r.Fatalf("there are %q left", keys)
		}
		r.answer = "y\n"
		got := r.do("unpark", "-prefix", "mail:")
		if got.out != "Unparked 2 tasks.\n" || !strings.HasPrefix(got.err, "Unpark 2 ") {
			r.Errorf("unpark: %+v", got)
		}
		if got := r.do("unpark", "-all"); got.out != "Unparked 0 tasks.\n" || got.err != "" || got.code != done {
			r.Errorf("unpark again: %+v", got)
		}
		if got := r.do("rm", "-prefix", "order:", "-repeating"); got.out != "Removed 3 tasks.\n" {
			r.Errorf("rm: %+v", got)
		}
		r.answer = "" // no terminal
		got = r.do("run-now", "-kind", "order")
		if got.code != notConfirmed || !strings.Contains(got.err, "Run 3 tasks?") || !strings.Contains(got.err, "-yes") {
			r.Errorf("run-now without a terminal: %+v", got)
		}
		if got := r.must("run-now", "-kind", "order", "-yes"); got != "Made due 3 tasks.\n" {
			r.Errorf("run-now writes %q", got)
		}
		if got := r.must("rm", "-all", "-yes", "-json"); got != "{\"removed\":7}\n" {
			r.Errorf("rm writes %q", got)
		}
		if keys := r.keys(); len(keys) != 0 {
			r.Errorf("there are %q left", keys)
		}
	})
}

// A task that is paused or resumed is counted once, and unchanged tasks are not counted.
func TestPauseAndResume(t *testing.T) {
	records := fixture(t)
	anywhere(t, func(r *rig) {
		r.restore(records)
		paused := func(want string) {
			r.Helper()
			var keys []string
			for line := range strings.Lines(r.must("ls", "-state", "paused", "-json", "-all")) {
				_, rest, _ := strings.Cut(line, `"key":"`)
				key, _, _ := strings.Cut(rest, `"`)
				keys = append(keys, key)
			}
			slices.Sort(keys)
			if got := strings.Join(keys, " "); got != want {
				r.Errorf("paused are %q, want %q", got, want)
			}
		}
		got := r.do("pause", "order:5", "order:1", "none", "mail:1")
		if got.out != "Paused 2 tasks.\n" || got.code != notFound || !strings.Contains(got.err, "task order:5 is paused") {
			r.Errorf("pause: %+v", got)
		}
		paused("mail:1 order:1 order:5")
		got = r.do("resume", "order:2", "order:1", "mail:1")
		if got.out != "Resumed 2 tasks.\n" || got.code != failed || !strings.Contains(got.err, "order:2 is not paused") {
			r.Errorf("resume: %+v", got)
		}
		if got := r.must("ls", "-state", "parked"); !strings.Contains(got, "mail:1") {
			r.Errorf("parked, paused and resumed is\n%s", got)
		}
		r.answer = "y\n"
		got = r.do("pause", "-prefix", "order:")
		if got.out != "Paused 4 tasks.\n" || !strings.HasPrefix(got.err, "Pause 4 tasks?") {
			r.Errorf("pause: %+v", got)
		}
		paused("order:1 order:2 order:3 order:4 order:5")
		for _, args := range [][]string{{"pause", "-prefix", "order:"}, {"pause", "-state", "paused"}} {
			if got := r.do(args[0], args[1:]...); got.out != "Paused 0 tasks.\n" || got.err != "" || got.code != done {
				r.Errorf("%q again: %+v", args, got)
			}
		}
		if got := r.must("stats"); !regexp.MustCompile(`(?m)^order +7 +0 +0 +5\n`).MatchString(got) {
			r.Errorf("the stats are\n%s", got)
		}
		got = r.do("resume", "-all", "-json")
		if got.out != "{\"resumed\":5}\n" || !strings.HasPrefix(got.err, "Resume 5 tasks?") {
			r.Errorf("resume: %+v", got)
		}
		r.answer = ""
		if got := r.must("pause", "-state", "scheduled", "-prefix", "order:1", "-yes"); got != "Paused 1 task.\n" {
			r.Errorf("pause: %s", got)
		}
		paused("order:1")
	})
}

// timeless replaces the times of pauses.
func timeless(text string) string {
	return regexp.MustCompile(`20[-0-9]{8} [:0-9]{8} CET, \w+ ago|20[-0-9]{8}T[:.0-9]+Z`).ReplaceAllString(text, "AT")
}

// Kinds are paused and resumed by name, and all of them after a confirmation. The pauses are stored with the tasks.
func TestPauseAndResumeKinds(t *testing.T) {
	records := fixture(t)
	anywhere(t, func(r *rig) {
		r.restore(records)
		for _, c := range []struct{ command, answer, out, stats string }{
			{"resume-kind mail", "", "No kind is paused.\n", `"pauses":{"all":false,"kinds":[],"by":[]}`},
			{"pause-kind order mail", "", "Kind mail is paused, AT, by ann.\nKind order is paused, AT, by ann.\n", `"pauses":{"all":false,"kinds":["mail","order"],"by":[{"kind":"mail","at":"AT","who":"ann","why":""},{"kind":"order",`},
			{"pause-kind -why smtp mail", "", "Kind mail is paused, AT, by ann.\nKind order is paused, AT, by ann.\n", `"pauses":{"all":false,"kinds":["mail","order"],`},
			{"pause-kind -all", "n\n", "", `"pauses":{"all":false,"kinds":["mail","order"],`},
			{"resume-kind -json mail", "", `{"all":false,"kinds":["order"],"by":[{"kind":"order","at":"AT","who":"ann","why":""}]}` + "\n", `"pauses":{"all":false,"kinds":["order"],`},
			{"pause-kind -why smtp -all", "y\n", "All kinds are paused, AT, by ann: smtp.\nKind order is paused, AT, by ann.\n", `"pauses":{"all":true,"kinds":["order"],"by":[{"at":"AT","who":"ann","why":"smtp"},{"kind":"order",`},
			{"resume-kind order", "", "All kinds are paused, AT, by ann: smtp.\n", `"pauses":{"all":true,"kinds":[],`},
			{"resume-kind -all -yes", "", "No kind is paused.\n", `"pauses":{"all":false,"kinds":[],"by":[]}`},
		} {
			r.answer = c.answer
			args := strings.Fields(c.command)
			if got := r.do(args[0], args[1:]...); timeless(got.out) != c.out || (got.code == done) != (c.out != "") {
				r.Errorf("%s: %+v", c.command, got)
			}
			if got := timeless(r.must("stats", "-json")); !strings.Contains(got, c.stats) {
				r.Errorf("after %s the stats are %s", c.command, got)
			}
		}
		r.must("pause-kind", "mail")
		if got := timeless(r.must("stats")); !strings.Contains(got, "\nKind mail is paused, AT, by ann.\n") {
			r.Errorf("the stats are\n%s", got)
		}
		r.with(func(s *durable.Scheduler) {
			if p, err := s.Paused(r.Context()); err != nil || p.All || fmt.Sprint(p.Kinds) != "[mail]" || len(p.By) != 1 || p.By["mail"].Who != "ann" {
				r.Errorf("a scheduler has %v paused, %v", p, err)
			}
		})
	})
}

// Every due task that is not running is overdue, whatever its kind: the command has no handlers.
func TestStats_sayWhatIsOverdue(t *testing.T) {
	records := fixture(t)
	anywhere(t, func(r *rig) {
		r.restore(records)
		// A task has just become due by the engine's time, for which each process knows only a lower bound.
		until := func(want *regexp.Regexp, args ...string) (got string) {
			for range 100 {
				if got = r.must("stats", args...); want.MatchString(got) {
					break
				}
			}
			return got
		}
		r.must("run-now", "order:1")
		one := regexp.MustCompile(`\n1 task is overdue; it was due 20`)
		if got := until(one); !one.MatchString(got) {
			r.Errorf("the stats are\n%s", got)
		}
		r.must("unpark", "mail:1")
		two := regexp.MustCompile(`"overdue":{"tasks":2,"oldest":"20[^"]+Z"}`)
		if got := until(two, "-json"); !two.MatchString(got) {
			r.Errorf("the stats are %s", got)
		}
		r.must("pause", "mail:1", "order:1")
		if got := r.must("stats"); !strings.Contains(got, "\nNothing is overdue.\n") {
			r.Errorf("the stats are\n%s", got)
		}
	})
}

// The command is never a node of the cluster: it does not join, and claims and starts nothing.
func TestCommands_areNoNodes(t *testing.T) {
	r := inDatabase(t)
	r.restore(fixture(t))
	r.must("unpark", "mail:1") // it is due, and no node runs it
	e := r.engine()
	defer e.Close()
	before, err := e.Get(t.Context(), "mail:1")
	if err != nil || len(before) != 1 {
		t.Fatal(before, err)
	}
	_, _, err = e.Join(t.Context(), "the only node", time.Hour)
	check(t, err)
	conn, err := pgx.Connect(t.Context(), r.place[1])
	check(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), fmt.Sprintf("ALTER TABLE %s.member ADD CHECK (name = 'the only node') NOT VALID",
		pgx.Identifier{r.place[3]}.Sanitize())) // a command that joins fails
	check(t, err)
	for _, args := range [][]string{
		{"ls"}, {"show", "mail:1"}, {"stats"}, {"failures"}, {"nodes"}, {"export"}, {"pause", "order:1"},
		{"resume", "order:1"}, {"rm", "-prefix", "order", "-yes"},
	} {
		r.must(args[0], args[1:]...)
	}
	after, err := e.Get(t.Context(), "mail:1")
	if err != nil || fmt.Sprint(before) != fmt.Sprint(after) || after[0].Owner != 0 || after[0].Starts != 0 {
		t.Errorf("it was %+v, and is %+v, %v", before, after, err)
	}
	if got := r.must("nodes"); !strings.Contains(got, "the only node") || strings.Count(got, "\n") != 2 {
		t.Errorf("the nodes are\n%s", got)
	}
}

// A run on a node is cancelled and awaited. Until it ends, the command reports where it is running.
func TestCancel_andRemoveWait_ofARunOnANode(t *testing.T) {
	r := inDatabase(t)
	e := r.engine()
	defer e.Close()
	s, err := durable.New(t.Context(), e, durable.WithLogger(testkit.Quiet()), durable.WithNodeName("web-1"))
	check(t, err)
	begun, end, cancelled := make(chan bool, 1), make(chan bool), make(chan error, 1)
	check(t, s.Handle("k", func(ctx context.Context, _ durable.Run) error {
		begun <- true
		<-ctx.Done()
		cancelled <- context.Cause(ctx)
		<-end
		return nil
	}))
	check(t, s.Start())
	check(t, s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "k", Delay: time.Millisecond},
		durable.Task{Key: "later", Kind: "k", Delay: time.Hour}))
	<-begun
	if got := r.must("cancel", "a"); got != "Cancelled the runs of 1 task.\n" {
		t.Errorf("cancel writes %q", got)
	}
	if cause := <-cancelled; !errors.Is(cause, durable.ErrCancelled) {
		t.Errorf("the cause is %v", cause)
	}
	if got := r.do("cancel", "later"); got.code != failed || !strings.Contains(got.err, "no run of task later is in progress") {
		t.Errorf("of a task that waits: %+v", got)
	}
	if got := r.do("cancel", "none"); got.code != notFound || !strings.Contains(got.err, "none") {
		t.Errorf("of no task: %+v", got)
	}
	got := r.do("rm", "-wait", "2s", "a")
	if got.code != failed || got.out != "Removed 1 task.\n" || !regexp.MustCompile(`run [0-9a-f]+\.0\.a: `).MatchString(got.err) ||
		!strings.Contains(got.err, `still running on node "web-1"`) {
		t.Errorf("of a run that does not end: %+v", got)
	}
	close(end)
	if got := r.must("rm", "-wait", "1m", "later"); got != "Removed 1 task.\n" {
		t.Errorf("rm -wait writes %q", got)
	}
	check(t, s.Shutdown(t.Context()))
}

// A deaf engine hides the questions of the other nodes from its node.
type deafEngine struct{ engine.Engine }

func (e deafEngine) Walk(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		for s, err := range e.Engine.Walk(ctx, over) {
			if over.Order == engine.Notes && strings.HasPrefix(s.Key, "question/") {
				continue
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// A node that does not answer does not prevent a removal.
func TestRemoveWait_ofANodeThatDoesNotAnswer_removesAll(t *testing.T) {
	r := inDatabase(t)
	e := r.engine()
	defer e.Close()
	s, err := durable.New(t.Context(), deafEngine{e}, durable.WithLogger(testkit.Quiet()))
	check(t, err)
	check(t, s.Handle("k", func(context.Context, durable.Run) error { return nil }))
	check(t, s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "k", Delay: time.Hour},
		durable.Task{Key: "b", Kind: "k", Delay: time.Hour}))
	check(t, s.Start())
	got := r.do("rm", "-wait", "1s", "a", "b")
	if got.code != failed || strings.Count(got.err, "no answer of a node in 1s") != 2 {
		t.Errorf("%+v", got)
	}
	for _, key := range []string{"a", "b"} {
		if exists, err := s.Exist(t.Context(), key); exists || err != nil {
			t.Errorf("task %s exists: %v, %v", key, exists, err)
		}
	}
	check(t, s.Shutdown(t.Context()))
}

// Read-only commands write nothing to a database.
func TestLook_inReadOnlyTransactions(t *testing.T) {
	r := inDatabase(t)
	r.restore(fixture(t))
	url, err := url.Parse(r.place[1])
	check(t, err)
	query := url.Query()
	query.Set("default_transaction_read_only", "on")
	url.RawQuery = query.Encode()
	r.place[1] = url.String()
	for _, args := range [][]string{
		{"ls"}, {"ls", "-prefix", "mail:"}, {"show", "mail:1"}, {"stats"}, {"failures"}, {"nodes"}, {"export"}, {"history"},
	} {
		r.must(args[0], args[1:]...)
	}
	if got := r.do("rm", "mail:1"); got.code != failed || !strings.Contains(got.err, "read-only") {
		t.Errorf("rm: %+v", got)
	}
}

// An imported calendar has a time zone, which the machine may not know.
func TestTimeZones_areInTheProgram(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	if err != nil || !slices.Contains(p.Imports, "time/tzdata") {
		t.Errorf("the program imports %q, %v", p.Imports, err)
	}
}

// The JSON has the number of a node as a text, because programs that read numbers as floating point would round it.
func TestNodes_areATable(t *testing.T) {
	nodes := []durable.NodeInfo{
		{Name: "web-1", ID: 7, Lease: 5 * time.Second, Left: 3800 * time.Millisecond,
			NodeReport: durable.NodeReport{Held: 1204, Version: "v0.1.0", Kinds: []string{"mail", "order"}, Waiting: 3, Running: 8,
				Workers: 8, Started: now.Add(-26 * time.Hour), OldestWait: 41500 * time.Millisecond, SinceStart: 38 * time.Second,
				Busiest: durable.KindRuns{Kind: "mail", Running: 7, Longest: 41 * time.Second}, Leaving: true,
				Limits: []durable.KindLimits{{Kind: "order", Cluster: durable.Limit{Concurrency: 1}, Here: durable.Limit{Rate: 100, Per: time.Minute}}}}},
		{Name: "web\n2", ID: 1<<53 + 1, Lease: 5 * time.Second, Left: -1300 * time.Millisecond},
		{Name: "web-3", ID: 3, Lease: 5 * time.Second, Left: 2 * time.Second},
	}
	for name, asJSON := range map[string]bool{"nodes.golden": false, "nodes-json.golden": true} {
		var out strings.Builder
		p := &program{out: &out, err: &out, now: func() time.Time { return now }}
		check(t, p.writeNodes(nodes, asJSON))
		golden(t, name, out.String())
	}
}

// A running task shows since when it is running, and on which node.
func TestRunning_sinceWhenAndWhere(t *testing.T) {
	var out strings.Builder
	p := &program{out: &out, err: &out, now: func() time.Time { return now }}
	runs := durable.Info{Token: durable.Token{Key: "order:1"}, Kind: "order", State: durable.Running, Times: 1, Next: now.Add(-42 * time.Second),
		Started: now.Add(-41 * time.Second), Node: "web-1"}
	waits := durable.Info{Token: durable.Token{Key: "order:2"}, Kind: "order", State: durable.Waiting, Times: 1, Next: now.Add(-time.Second)}
	w := bufio.NewWriter(&out)
	for _, asJSON := range []bool{false, true} {
		check(t, p.writeTasks(w, []durable.Info{runs, waits}, asJSON))
	}
	runs.Node = "" // as on a store
	check(t, p.writeTasks(w, []durable.Info{runs, waits}, false))
	check(t, w.Flush())
	runs.Node = "web\n1"
	p.showTask(runs)
	golden(t, "running.golden", out.String())
}

func TestStats_ofABacklog(t *testing.T) {
	var out strings.Builder
	p := &program{out: &out, now: func() time.Time { return now }}
	r := statsReading{
		counts: durable.Counts{Kinds: []durable.KindCounts{
			{Kind: "mail", Tasks: 1204331, Failing: 17, Parked: 2, Paused: 1000}, {Kind: "push", Tasks: 3},
		}},
		overdue: overdue{tasks: 1_000_000, oldest: now.Add(-3 * time.Hour)},
		paused:  durable.Pauses{All: true, Kinds: []string{"mail", "s\nms"}},
		handled: handling{nodes: 2, kinds: []string{"mail"}, limits: map[string][]string{"mail": {"1 at once on all nodes", "8 at once on all nodes"}}},
		still:   still{[]durable.Info{{Token: durable.Token{Key: "cron/report"}, Kind: "mail"}, {Token: durable.Token{Key: "cron/sum\n"}, Kind: "mail"}}, true},
		tuned: durable.Tuning{PoolSize: 8, CatchUp: 500, Limits: []durable.KindLimits{{Kind: "mail", Cluster: durable.Limit{Concurrency: 1}}},
			By: map[string]durable.Pause{"pool size": {At: now.Add(-time.Hour), Who: "ann", Why: "a slow receiver"}}},
	}
	p.writeStats(r)
	check(t, writeJSON(&out, newStatsJSON(r)))
	golden(t, "stats-backlog.golden", out.String())
}

// A nodes is a cluster of the given nodes.
type nodes struct {
	scheduler
	of []durable.NodeInfo
}

func (n nodes) Nodes(context.Context) ([]durable.NodeInfo, error) { return n.of, nil }

// Kinds are reported as having no handler only while every node has reported all its kinds.
func TestHandledKinds_ofANodeThatAreNotKnown(t *testing.T) {
	tasks := durable.Counts{Kinds: []durable.KindCounts{{Kind: "mail", Tasks: 3}}}
	for _, c := range []struct {
		report  durable.NodeReport
		without int
	}{
		{durable.NodeReport{Workers: 1, Kinds: []string{"push"}}, 1},
		{durable.NodeReport{Workers: 1, Kinds: []string{"mail"}}, 0},
		{durable.NodeReport{Workers: 1, Kinds: []string{"push"}, More: true}, 0},
		{durable.NodeReport{}, 0}, // it joined just now
	} {
		h, err := handledKinds(t.Context(), nodes{of: []durable.NodeInfo{
			{ID: 1, NodeReport: durable.NodeReport{Workers: 1}}, {ID: 2, NodeReport: c.report},
		}})
		check(t, err)
		if kinds := h.without(tasks); len(kinds) != c.without {
			t.Errorf("the other node's report is %+v: %q have no handler", c.report, kinds)
		}
	}
}

// A group that floods a kind comes first, with the time since when it waits. One row sums up the groups that are not
// listed.
func TestStats_ofGroups(t *testing.T) {
	var out strings.Builder
	p := &program{out: &out, err: &out, now: func() time.Time { return now }}
	g := durable.Groups{
		Largest: []durable.GroupCounts{
			{Kind: "mail", Group: "acme", Tasks: 10_000, Due: 9_800, Oldest: now.Add(-3 * time.Minute)},
			{Kind: "mail", Tasks: 41, Due: 1, Oldest: now.Add(-12 * time.Second)}, {Kind: "s\nms", Group: "-\xff", Tasks: 2},
		},
		More: 1234, Others: durable.GroupCounts{Tasks: 2345, Due: 2, Oldest: now.Add(-time.Second)},
	}
	check(t, p.writeGroups(g, false))
	check(t, p.writeGroups(durable.Groups{}, false))
	check(t, p.writeGroups(durable.Groups{}, true))
	g.Cut = true
	check(t, p.writeGroups(g, false))
	check(t, p.writeGroups(g, true))
	golden(t, "groups.golden", out.String())
}

func TestHelp_ofEachCommand(t *testing.T) {
	r := &rig{T: t}
	golden(t, "help.golden", r.run("help").out)
	var all strings.Builder
	for _, c := range commands() {
		got := r.run(c.name, "-h")
		if got.code != done || got.err != "" || !strings.HasPrefix(got.out, "usage: timewheel "+c.name) {
			t.Errorf("%s -h: %+v", c.name, got)
		}
		fmt.Fprintf(&all, "== %s\n%s\n", c.name, got.out)
	}
	golden(t, "help-commands.golden", all.String())
	for line := range strings.Lines(r.run("help").out + all.String()) {
		if cells(line) > 101 {
			t.Errorf("the help has a line of %d columns: %s", cells(line), line)
		}
	}
}

func TestEnvironment_namesTheDatabase(t *testing.T) {
	r := inDatabase(t)
	var out strings.Builder
	p := &program{in: strings.NewReader(""), out: &out, err: &out, now: time.Now, getenv: func(name string) string {
		if name == "TIMEWHEEL_DB" {
			return r.place[1]
		}
		return ""
	}}
	if code := p.run(t.Context(), []string{"ls", "-schema", r.place[3]}); code != done {
		t.Errorf("exit code %d: %s", code, &out)
	}
	dir := inDirectory(t)
	if code := p.run(t.Context(), append([]string{"ls"}, dir.place...)); code != done {
		t.Errorf("-dir with TIMEWHEEL_DB: exit code %d: %s", code, &out)
	}
	if _, err := os.Stat(dir.place[1]); err != nil {
		t.Error(err)
	}
}

// Declared schedules show which node has declared which version, and a version that is not applied in full.
func TestSchedules(t *testing.T) {
	sets := []durable.SetInfo{
		{Prefix: "cron/", Version: 42, Unfinished: -1, At: now.Add(-26 * time.Hour), By: "web-1"},
		{Prefix: "report\n", Version: -1, Unfinished: 7},
	}
	var out strings.Builder
	p := &program{out: &out, err: &out, now: func() time.Time { return now }}
	for _, asJSON := range []bool{false, true} {
		check(t, p.writeSchedules(sets, asJSON))
	}
	check(t, p.writeSchedules(nil, false))
	golden(t, "schedules.golden", out.String())
	anywhere(t, func(r *rig) {
		r.with(func(s *durable.Scheduler) {
			check(t, s.Handle("k", func(context.Context, durable.Run) error { return nil }))
			_, err := s.Schedule(r.Context(), durable.TaskSet{Prefix: "cron/", Version: 3, Tasks: []durable.Task{{Key: "cron/a", Kind: "k", Interval: time.Hour}}})
			check(t, err)
		})
		if got := r.must("schedules", "-json"); !strings.HasPrefix(got, `{"prefix":"cron/","version":3,"at":"`) {
			r.Errorf("the schedules are %s", got)
		}
	})
}

// Numbers that an operator has set are listed, with the operator and the reason.
func TestTune(t *testing.T) {
	records := fixture(t)
	anywhere(t, func(r *rig) {
		r.restore(records)
		if got := r.must("tune"); got != "Every number is that of the code.\n" {
			r.Errorf("at first it prints %q", got)
		}
		r.must("tune", "-kind", "mail", "-cluster-concurrency", "20", "-rate", "100/1m", "-why", "the new relay bears it")
		r.must("tune", "-pool-size", "64")
		got := timeless(r.must("tune", "-catch-up", "500"))
		const want = "Kind mail: 20 at once on all nodes, 100 per minute on each node, set AT by ann: the new relay bears it.\n" +
			"Each node runs 64 handlers at once, set AT by ann.\nOf the overdue tasks 500 a second start, set AT by ann.\n"
		if got != want {
			r.Errorf("it prints %q, want %q", got, want)
		}
		if got := timeless(r.must("stats")); !strings.HasSuffix(got, want) {
			r.Errorf("the stats are %q", got)
		}
		if got := r.must("tune", "-json"); !strings.HasPrefix(got, `{"pool_size":64,"catch_up":500,"limits":[{"kind":"mail","here":{"rate":100,"per":60000000000},"cluster":{"concurrency":20}}],"by":{`) {
			r.Errorf("in JSON it is %s", got)
		}
		r.must("tune", "-kind", "mail", "-reset")
		if got := r.must("tune", "-reset", "-pool-size", "0", "-catch-up", "0"); got != "Every number is that of the code.\n" {
			r.Errorf("when it is reset it prints %q", got)
		}
		for _, args := range [][]string{{"-concurrency", "1"}, {"-kind", "mail"}, {"-reset"}, {"-pool-size", "0"}, {"-reset", "-pool-size", "5"},
			{"-kind", "mail", "-reset", "-rate", "1/1s"}, {"-kind", "mail", "-rate", "5"}, {"-kind", "mail", "-rate", "0/1s"}} {
			if got := r.do("tune", args...); got.code != usage {
				r.Errorf("%q: %+v", args, got)
			}
		}
	})
}
