// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/bench/internal/rounds"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// TestMain lets the test program act as a node, like the benchmark.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-node" {
		if err := runNode(os.Args[2]); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestSettle_countsWhatWentWrong(t *testing.T) {
	t0 := time.Unix(1_800_000_000, 0)
	tasks := spread(4, 1, t0) // due at 0, 1, 2 and 3 s
	start := func(id int, s float64) event { return event{id: id, at: t0.Add(time.Duration(s * 1e9))} }
	end := func(id int, s float64) event { return event{id: id, at: t0.Add(time.Duration(s * 1e9)), end: true} }
	good := []event{
		start(0, 0.1), end(0, 0.2), start(1, 1), end(1, 1), start(2, 2.5), end(2, 2.5), start(3, 3.2), end(3, 3.2),
	}
	with := func(more ...event) []event { return append(good[:len(good):len(good)], more...) }
	for _, c := range []struct {
		name                             string
		events                           []event
		lost, early, duplicates, strange int
		most                             time.Duration
	}{
		{"as it should be", good, 0, 0, 0, 0, 500 * time.Millisecond},
		{"one did not run", good[:6], 1, 0, 0, 0, 500 * time.Millisecond},
		{"one did not end", good[:7], 1, 0, 0, 0, 500 * time.Millisecond},
		{"one ran twice", with(start(2, 9), end(2, 9)), 0, 0, 1, 0, 500 * time.Millisecond},
		{"the first of two runs is later in the ledgers", with(start(2, 2.1)), 0, 0, 1, 0, 200 * time.Millisecond},
		{"a run is early", with(start(3, 2.9)), 0, 1, 1, 0, 500 * time.Millisecond},
		{"a run is of no task", with(start(4, 9)), 0, 0, 0, 1, 500 * time.Millisecond},
		{"nothing ran", nil, 4, 0, 0, 0, 0},
	} {
		a := settle(tasks, c.events)
		f := a.figures()
		if a.lost != c.lost || a.early != c.early || a.duplicates != c.duplicates || a.strange != c.strange {
			t.Errorf("%s: %+v", c.name, a)
		}
		if c.most > 0 && f["most_ms"] != ms(c.most) {
			t.Errorf("%s: %v ms late at most, want %v", c.name, f["most_ms"], c.most)
		}
		if (a.check() != nil) != (c.strange > 0) {
			t.Errorf("%s: %v", c.name, a.check())
		}
	}
}

func TestLongestWait_countsFromTheEndOfTheNode(t *testing.T) {
	t0 := time.Unix(1_800_000_000, 0)
	tasks := spread(3, 1, t0)
	ended := t0.Add(1500 * time.Millisecond)
	events := []event{
		{id: 0, at: t0.Add(time.Hour)}, // due too early
		{id: 1, at: t0.Add(time.Second)},
		{id: 1, at: t0.Add(5 * time.Second)}, // again, on another node
		{id: 2, at: t0.Add(5 * time.Second)},
		{id: 2, at: t0.Add(time.Hour), end: true},
	}
	if d := longestWait(tasks, events, ended.Add(-time.Second), ended); d != 3500*time.Millisecond {
		t.Errorf("%v, want 3.5s: task 1 waited from the end of the node", d)
	}
}

func TestLedger_isReadAsWritten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "ledger")
	l, err := createLedger(name)
	if err != nil {
		t.Fatal(err)
	}
	want := []event{{7, time.Unix(0, 1_800_000_000_000_000_001), false}, {1 << 40, time.Unix(5, 0), true}}
	for _, e := range want {
		if err := l.note(e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readLedgers([]string{name})
	if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if err := os.Truncate(name, countLen+2*eventLen-1); err != nil {
		t.Fatal(err)
	}
	if _, err := readLedgers([]string{name}); err == nil {
		t.Error("a torn ledger was read")
	}
}

func TestParseStat_survivesAnyName(t *testing.T) {
	const line = "4711 (postgres: ) R 1) S 42 4711 4711 0 -1 4194560 1 2 3 4 150 50 700 300 20 0 1 0 12345 0 0"
	u, err := parseStat(line)
	if err != nil || u.parent != 42 || u.own != 2*time.Second || u.children != 10*time.Second {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := parseStat("4711 (x) S"); err == nil {
		t.Error("a short line was read")
	}
}

func TestGoals_areJudged(t *testing.T) {
	for _, c := range []struct {
		title     string
		good, bad float64
	}{
		{"adds a second, 64 callers", 10_000, 9_999},
		{"5,000 runs a second over two nodes: lateness, p99", 19, 19.1},
		{"a killed node's tasks elsewhere, past the lease", ms(lease) + 500, ms(lease) + 501},
		{"tasks lost, sustained", 0, 1},
	} {
		found := false
		for _, g := range goals {
			if g.title != c.title {
				continue
			}
			found = true
			for v, want := range map[float64]string{c.good: "yes", c.bad: "**no**", math.NaN(): "not measured"} {
				m := medians{figures: map[string]figures{g.c + "/" + ours: {g.figure: v}}}
				if row := g.row(m); !strings.HasSuffix(row, "| "+want+" |\n") {
					t.Errorf("%s at %v: %s", c.title, v, row)
				}
			}
		}
		if !found {
			t.Errorf("no goal is titled %q", c.title)
		}
	}
}

func TestReport_hasTheWorstCountAndTheMedianFigure(t *testing.T) {
	var samples []rounds.Sample
	for round, f := range []figures{{"p99_ms": 10}, {"p99_ms": 30, "lost": 2}, {"p99_ms": 20, "lost": 0}} {
		samples = append(samples, rounds.Sample{Round: round, Case: "sustained", Peer: ours, Figures: f})
	}
	samples = append(samples, rounds.Sample{Case: "burst", Peer: riverName, Failure: "the disk is full"})
	m := summarize(samples)
	if m.rounds != 3 || m.of("sustained", ours, "p99_ms") != 20 || m.of("sustained", ours, "lost") != 2 {
		t.Errorf("%+v", m)
	}
	text := report(circumstances{}, m, small)
	for _, want := range []string{"| 20 ms |", "burst/River, round 1: the disk is full", "## Sustained runs"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "## Removes") {
		t.Error("a case is there that was not measured")
	}
}

func TestCases_areAllReported(t *testing.T) {
	columns := map[string]bool{}
	for _, s := range sections(small) {
		columns[s.c] = true
	}
	for _, c := range caseNames() {
		if measurements[c] == nil || !columns[c] {
			t.Errorf("case %s has no measurement or no table", c)
		}
	}
	if len(caseNames()) != len(measurements) {
		t.Errorf("%d names of %d cases", len(caseNames()), len(measurements))
	}
	for _, p := range peerNames {
		if peers[p] == nil {
			t.Errorf("there is no peer %s", p)
		}
	}
}

func TestPeers_runEachTaskOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	for _, name := range peerNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := measureLoad(peers[name], name, 100, 0, time.Minute)
			pgtest.Must(t, err)
			for _, count := range []string{"lost", "early", "duplicates", "left"} {
				if f[count] != 0 {
					t.Errorf("%s: %v", count, f[count])
				}
			}
			if _, ok := f["server_us"]; !ok || !(f["p99_ms"] > 0) { // the system counts in steps of 10 ms
				t.Errorf("figures: %v", f)
			}
		})
	}
}

func TestPeers_removeWhatTheyAdded(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	for _, name := range peerNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			size := sizes{live: 200, verbs: time.Minute}
			f, err := measureRemoves(peers[name], name, size)
			pgtest.Must(t, err)
			if f["lost"] != 0 || f["extra"] != 0 || !(f["ops"] > 0) {
				t.Errorf("figures: %v", f)
			}
		})
	}
}

// hasAll fails the test unless the figures are all that the columns and goals of the case need.
func hasAll(t *testing.T, name string, size sizes, f figures) {
	t.Helper()
	for _, s := range sections(size) {
		for _, c := range s.columns {
			if _, ok := f[c.figure]; s.c == name && !ok {
				t.Errorf("%s: %s was not measured", s.title, c.figure)
			}
		}
	}
	for _, g := range goals {
		if _, ok := f[g.figure]; g.c == name && !ok {
			t.Errorf("%s: %s was not measured", g.title, g.figure)
		}
	}
}

func TestMany_measuresEveryColumn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	t.Parallel()
	size := sizes{few: 100, many: 300, cycles: 2000, verbs: 10 * time.Millisecond, sustain: time.Second, patience: time.Minute}
	f, err := measureMany(peers[ours], ours, size)
	pgtest.Must(t, err)
	hasAll(t, tenMillion, size, f)
	for _, count := range []string{"few_lost", "many_lost", "many_early", "many_cycle_lost", "many_cycle_duplicates"} {
		if f[count] != 0 {
			t.Errorf("%s: %v", count, f[count])
		}
	}
}

func TestHistory_measuresEveryColumn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	t.Parallel()
	size := sizes{rate: 200, sustain: 2 * time.Second, patience: time.Minute}
	f, err := measureHistory(peers[ours], ours, size)
	pgtest.Must(t, err)
	hasAll(t, historyCase, size, f)
	if f["kept_lost"]+f["plain_lost"] != 0 || !(f["kept_notes_mb"] > f["plain_notes_mb"]) {
		t.Errorf("figures: %v", f)
	}
}

// A task that was copied in is read and removed like an added one.
func TestMany_copiesTasksAsTheyAreAdded(t *testing.T) {
	s, err := pgtest.Start()
	pgtest.Must(t, err)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, p := t.Context(), oursPeer{}
	due := time.Now().Add(time.Hour)
	at := func(int) time.Time { return due }
	if err := errors.Join(p.migrate(ctx, s.URL()), p.copyIn(ctx, s.URL(), 7, 2, at)); err != nil {
		t.Fatal(err)
	}
	c, err := oursPeer{}.join(ctx, s.URL(), func(context.Context, durable.Run) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	found, err := c.engine.Get(ctx, task{id: 8}.key())
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if err := c.add(ctx, task{9, due}); err != nil {
		t.Fatal(err)
	}
	added, err := c.engine.Get(ctx, task{id: 9}.key())
	if err != nil || len(added) != 1 || added[0].Revision <= found[0].Revision {
		t.Fatalf("%+v, %v; the revision is to be greater than %d", added, err, found[0].Revision)
	}
	info, ok, err := c.node.Get(ctx, task{id: 8}.key())
	if err != nil || !ok || !info.Next.Equal(due) || idOf(info.Payload) != 8 {
		t.Errorf("%+v, %v, %v", info, ok, err)
	}
	if err := c.remove(ctx, 8); err != nil {
		t.Error(err)
	}
}
