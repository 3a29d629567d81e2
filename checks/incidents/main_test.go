// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeEnv); text != "" {
		os.Exit(serve(text))
	}
	os.Exit(m.Run())
}

// newWorld returns a world that is closed at the end of the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// short are the incidents that are replayed for every change: they take less than ten seconds.
var short = regexp.MustCompile(`^(all workers stuck|a kind always fails) on wheel$|^(a kind without a handler|a kind hangs) on store$|` +
	`^(leases cannot be renewed|all nodes are drained) on one node$`)

// inShort is how long a report stays true in the short form, and within which an alert must fire to be awaited.
const inShort = 4 * time.Second

// The reports match the table, appear and disappear. make incidents checks how soon: here other tests may keep the
// processors busy.
func TestIncidents_someOfThem_areReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.within, w.gone = 8*trueWithin, 4*goneWithin
	if err := w.needCommand(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = w.postgres() // starts it once; the incidents that need it see the error
	replayed := 0
	for _, i := range incidents {
		i.holds = min(i.holds, inShort)
		if i.seen.alarm > inShort {
			i.seen.may, i.seen.alerts = slices.Concat(i.seen.may, i.seen.alerts), nil
		}
		for _, on := range i.on {
			name := i.name + " on " + string(on)
			if !short.MatchString(name) {
				continue
			}
			replayed++
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if on.onPostgres() {
					pgtest.Must(t, w.postgres())
				}
				if r := w.replay(t.Context(), i, on); len(r.wrong) > 0 || r.skipped != "" {
					t.Error(r.skipped, strings.Join(r.wrong, "\n"))
				}
			})
		}
	}
	if replayed != 6 {
		t.Errorf("%d incidents were replayed", replayed)
	}
}

// The check finds an incident that is not reported as in the table.
func TestIncidents_notReported_isFound(t *testing.T) {
	w := newWorld(t)
	w.within, w.gone = time.Second, 2*time.Second
	t.Parallel()
	r := w.replay(t.Context(), incident{
		begin: add("kind=fails&n=1"),
		seen: view{
			headline: "overloaded", metrics: []string{"timewheel_runs_waiting > 5"}, alerts: []string{"TimewheelStopped"},
		},
		never: "panicked",
		also:  started(hang, 3),
	}, wheel)
	got := strings.Join(r.wrong, "\n")
	for _, want := range []string{
		"the headline is not overloaded, but panicked: 1 job panicked", "metrics: not so: timewheel_runs_waiting > 5",
		"no alert TimewheelStopped", "0 runs of kind hang have begun, not 3", "after the end: page of web-1",
		"false: page of web-1: panicked: 1 job panicked",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	if r.isTrue != 0 || r.isGone != 0 {
		t.Errorf("it is true after %v, and gone after %v", r.isTrue, r.isGone)
	}
}

// The documentation of the dashboard has a row for each incident, with the headline of the table and the alerts.
func TestIncidents_areInTheReadme(t *testing.T) {
	text, err := os.ReadFile("../../dashboard/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, found := strings.Cut(string(text), "\n## Incidents\n")
	if !found {
		t.Fatal("there is no section Incidents")
	}
	rows := make(map[string]string) // the documented report, by the name of the incident
	var names []string
	for line := range strings.Lines(text2) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "incident" {
			continue
		}
		if len(cells) != 4 || slices.Contains(cells, "") {
			t.Errorf("this row does not have four cells: %s", line)
			continue
		}
		names = append(names, cells[0])
		rows[cells[0]] = cells[1]
	}
	var want []string
	alerts, headlines := make(map[string][]string), make(map[string]bool)
	for _, i := range incidents {
		if !slices.Contains(want, i.name) {
			want = append(want, i.name)
		}
		alerts[i.name] = append(alerts[i.name], i.seen.alerts...)
		for _, quoted := range regexp.MustCompile(`"[^"]*"`).FindAllString(rows[i.name], -1) {
			if matches(i.seen.says, strings.Trim(quoted, `"`)) {
				headlines[i.name] = true
			}
		}
	}
	for _, name := range want {
		if !headlines[name] {
			t.Errorf("%s: no headline of the row is one of the table: %s", name, rows[name])
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("the rows are\n%q, want\n%q", names, want)
	}
	for name, want := range alerts {
		slices.Sort(want)
		got := regexp.MustCompile(`Timewheel[A-Za-z]+`).FindAllString(rows[name], -1)
		slices.Sort(got)
		if want := slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("%s: the row has the alerts %v, want %v", name, got, want)
		}
	}
}

// Each name stands for one incident, and none takes so long that the night is too short.
func TestIncidents_table(t *testing.T) {
	names := make(map[string]bool)
	for _, i := range incidents {
		for _, on := range i.on {
			name := i.name + " on " + string(on)
			if names[name] {
				t.Errorf("%s is there twice", name)
			}
			names[name] = true
		}
		if i.after > time.Minute || i.holds > time.Minute || i.seen.alarm > time.Minute {
			t.Errorf("%s takes longer than a minute", i.name)
		}
	}
}
