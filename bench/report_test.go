// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 0.188: "0.19", 9.99: "9.99", 9.996: "10.0", 12.34: "12.3", 99.94: "99.9", 99.96: "100",
		612.4: "612", 1620.4: "1,620", 1234567: "1,234,567", -1.5: "-1.50", -1234: "-1,234", 1000005: "1,000,005",
	} {
		if got := digits(v); got != want {
			t.Errorf("digits(%v) = %q, want %q", v, got, want)
		}
	}
	if got := microseconds.format(1500); got != "1.50" {
		t.Errorf("got %q", got)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 999: "999", 1_000: "1k", 1_500: "1,500", 100_000: "100k", 10_000_000: "10M",
	} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	tab := table{
		head:    []string{"peer", "add, µs"},
		rows:    [][]string{{"ours", "1.5"}, {"the other", "–"}},
		numbers: true,
	}
	want := "" +
		"| peer      | add, µs |\n" +
		"|:----------|--------:|\n" +
		"| ours      |     1.5 |\n" +
		"| the other |       – |\n"
	if got := tab.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	tab.numbers = false
	if got := tab.String(); !strings.Contains(got, "|:--------|\n| ours      | 1.5     |") {
		t.Errorf("got\n%s", got)
	}
}

// imagined returns results in which every peer has every figure of all its cases: n, and early and lost as given.
func imagined(quick bool, n, early, lost float64) results {
	var r results
	for _, c := range cases() {
		f := figures{"early": 0}
		for _, s := range sections(quick) {
			for _, col := range s.columns {
				if col.bench == c.name {
					f[col.figure] = n
				}
			}
		}
		if c.needs.timers {
			f["early"], f["lost"] = early, lost
		}
		for _, d := range definitions() {
			if c.lacks(d, c.workload(quick)) == "" && !(quick && c.fullOnly) {
				r.samples = append(r.samples, sample{Peer: d.name, Case: c.name, Figures: f})
			}
		}
	}
	return r
}

// value is the place of one figure.
type value struct {
	peer, bench, figure string
}

// change replaces a figure.
func change(r results, at value, v float64) results {
	var changed results
	for _, s := range r.samples {
		if s.Peer == at.peer && s.Case == at.bench {
			s.Figures = maps.Clone(s.Figures)
			s.Figures[at.figure] = v
		}
		changed.samples = append(changed.samples, s)
	}
	return changed
}

func TestReport_showsEverything(t *testing.T) {
	for _, quick := range []bool{false, true} {
		r := report{
			circumstances: circumstances{CPU: "abacus", Quick: quick, Command: "go run ."},
			peers:         definitions(),
			results:       imagined(quick, 2, 1234, 5),
			plots:         []string{"plots/add.svg"},
		}
		text := r.String()
		for _, want := range []string{"abacus", "`go run .`", "![Cost of adding", "**timewheel**", "floor"} {
			if !strings.Contains(text, want) {
				t.Errorf("quick %v: %q is not in the report", quick, want)
			}
		}
		_, figuresText, _ := strings.Cut(text, "## Figures")
		figuresText, _, _ = strings.Cut(figuresText, "## Peers")
		tables := strings.Split(figuresText, "\n### ")[1:]
		for _, s := range sections(quick) {
			want := s.render(r.results, r.peers, quick) != ""
			if got := strings.Contains(figuresText, "### "+s.title+"\n"); got != want {
				t.Errorf("quick %v: table %q: got %v, want %v", quick, s.title, got, want)
			}
		}
		for _, tab := range tables {
			if !strings.Contains(tab, "EARLY") || !strings.Contains(tab, "LOST") || !strings.Contains(tab, "1,234 |") {
				t.Errorf("quick %v: a table does not tell EARLY and LOST:\n%s", quick, tab)
			}
		}
		if strings.Contains(text, "%!") || strings.Contains(text, "NaN") {
			t.Errorf("quick %v: something is not written right:\n%s", quick, text)
		}
	}
}

func TestSection_tellsWhatFailedAndWhatIsMissing(t *testing.T) {
	r := results{samples: []sample{
		{Peer: ours, Case: "reschedule", Figures: figures{"move_ns": 300, "early": 0, "lost": 0}},
		{Peer: baseline, Case: "reschedule", Figures: figures{"move_ns": 600, "early": 0, "lost": 0}},
		{Peer: "go-zero", Case: "reschedule", Failure: "stopped after 60 s"},
	}}
	var s section
	for _, candidate := range sections(false) {
		if candidate.columns[0].bench == "reschedule" {
			s = candidate
		}
	}
	peers, err := selectPeers("timewheel,stdlib-keyed,go-zero,floor,stdlib")
	if err != nil {
		t.Fatal(err)
	}
	got := s.render(r, peers, false)
	for _, want := range []string{
		"| **timewheel** |                300 |  0.50 |",
		"| go-zero       | stopped after 60 s |     – |             – |     – |              – |",
		"Not measured here: stdlib (no reschedule by key), floor (no timers).",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if other := sections(false)[0].render(r, peers, false); other != "" {
		t.Errorf("a table without figures is written:\n%s", other)
	}
}

func TestSection_jobsThatRanThoughNothingWasDue_areTold(t *testing.T) {
	r := change(imagined(false, 1, 0, 0), value{"go-zero", "add-small", "early"}, 12)
	if got := sections(false)[0].render(r, definitions(), false); !strings.Contains(got,
		"\ngo-zero ran 12 jobs although nothing was due (add-small).\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestKeeper_readsWhatItWrote(t *testing.T) {
	c := circumstances{CPU: "abacus", Quick: true, Versions: map[string]string{"a": "v1"}}
	list := []sample{
		{Peer: ours, Case: "fire", Round: 2, Figures: figures{"p99_ms": 12.5}},
		{Peer: "go-zero", Case: "fire", Failure: "stopped after 60 s"},
	}
	var file bytes.Buffer
	k, err := newKeeper(&file, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if err := k.keep(s); err != nil {
			t.Fatal(err)
		}
	}
	text := file.String()
	gotC, gotR, err := readKept(&file)
	if err != nil || !reflect.DeepEqual(gotC, c) || !reflect.DeepEqual(gotR.samples, list) {
		t.Errorf("got %+v, %+v, %v", gotC, gotR, err)
	}
	if _, r, err := readKept(strings.NewReader(text[:len(text)-10])); err == nil || len(r.samples) != 1 {
		t.Errorf("of a file that is cut off: got %+v, %v", r, err)
	}
}

func TestDrawPlots_areReadableEverywhere(t *testing.T) {
	directory := t.TempDir()
	r := report{peers: definitions(), results: imagined(false, 1.5, 10, 0)}
	drawn, err := drawPlots(directory, r)
	if err != nil {
		t.Fatal(err)
	}
	if len(drawn) != len(pictures()) {
		t.Errorf("drew %v", drawn)
	}
	for _, name := range drawn {
		svg, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(bytes.NewReader(svg))
		for err == nil {
			_, err = d.Token()
		}
		if err != io.EOF {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Contains(svg, []byte("sans-serif")) || !bytes.Contains(svg, []byte("timewheel")) {
			t.Errorf("%s names no font that there is, or not the wheel", name)
		}
		if plotTitle(name) == "" {
			t.Errorf("%s has no title", name)
		}
	}
	if drawn, err := drawPlots(t.TempDir(), report{peers: definitions()}); err != nil || len(drawn) != 0 {
		t.Errorf("of no figures: drew %v, %v", drawn, err)
	}
}
