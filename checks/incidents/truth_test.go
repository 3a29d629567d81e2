// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"strings"
	"testing"
	"time"
)

// The check finds each contradiction once it has lasted, and none before or otherwise.
func TestTruth(t *testing.T) {
	page := func(well bool, kind, text string, notes ...string) reading {
		var r reading
		r.Health.Well, r.Health.Text = well, text
		if kind != "" {
			r.Health.Findings = []finding{{kind, text}}
		}
		for _, n := range notes {
			r.Health.Notes = append(r.Health.Notes, finding{"note", n})
		}
		return r
	}
	calm := page(true, "", "Working")
	orphan := page(false, "unhandled", "Kind mail has no handler")
	away := page(false, "away", "The engine has not served this node for 5 s, and nothing starts here: x")
	for name, c := range map[string]struct {
		pages   []reading // of web-0, web-1
		away    []bool
		orphans []bool
		runs    []int // that begin in a second
		idle    bool  // no tasks fall due
		overdue int
		want    string
	}{
		"all is well":                   {pages: []reading{calm, calm}, away: []bool{false, false}, runs: []int{1, 2}},
		"nothing is due":                {pages: []reading{calm}, runs: []int{0}, idle: true},
		"calm, and nothing starts":      {pages: []reading{calm}, runs: []int{0}, want: "the page of web-0 is calm, and nothing starts anywhere"},
		"calm, and another node starts": {pages: []reading{calm, calm}, runs: []int{0, 1}},
		"a note":                        {pages: []reading{page(true, "", "Working", "All kinds are paused")}, runs: []int{0}, overdue: 5},
		"away":                          {pages: []reading{away}, away: []bool{true}, runs: []int{0}, overdue: 5},
		"nothing starts, and it does":   {pages: []reading{away}, away: []bool{true}, runs: []int{1}, want: "the page of web-0 says that nothing starts, and runs begin there"},
		"away, and the metrics are not": {pages: []reading{away}, away: []bool{false}, runs: []int{0}, want: "the page of web-0 says that the engine is away, and its metrics do not"},
		"the metrics are, the page not": {pages: []reading{calm, calm}, away: []bool{false, true}, runs: []int{1, 1}, want: "the metrics of web-1 say that the engine is away, and its page does not"},
		"nobody takes over": {pages: []reading{page(false, "lease", "Node a is late: other nodes take over its tasks")}, runs: []int{0},
			want: "the page of web-0 says that other nodes take over, and nothing starts anywhere"},
		"overdue tasks":          {pages: []reading{calm, calm}, runs: []int{1, 1}, overdue: 5, want: "the command finds overdue tasks, and the page of web-"},
		"overdue tasks, one red": {pages: []reading{away, calm}, runs: []int{0, 1}, overdue: 5, want: "the command finds overdue tasks, and the page of web-1 is calm"},
		"no handler":             {pages: []reading{orphan}, orphans: []bool{true}, runs: []int{1}},
		"no handler, and the page is calm": {pages: []reading{calm}, orphans: []bool{true}, runs: []int{1},
			want: "the metrics of web-0 say that due tasks have no handler, and its page does not"},
		"no handler, and the metrics do not say it": {pages: []reading{orphan}, orphans: []bool{false}, runs: []int{1},
			want: "the page of web-0 says that due tasks have no handler, and its metrics do not"},
		"no handler, since all are drained": {pages: []reading{page(false, "drained", "All 2 nodes are drained")}, orphans: []bool{true}, runs: []int{0}},
	} {
		for _, lasts := range []time.Duration{12 * time.Second, trueWithin} {
			truth := truth{within: trueWithin}
			at, began := time.Now(), make([]int, len(c.pages))
			step := func() {
				at = at.Add(time.Second)
				s := sight{asked: at, at: at, pages: map[string]reading{}, away: map[string]bool{}, orphans: map[string]bool{}, began: map[string]int{}, steady: !c.idle, overdue: c.overdue}
				for i, p := range c.pages {
					name := "web-" + string(rune('0'+i))
					began[i] += c.runs[i]
					if s.pages[name], s.began[name] = p, began[i]; i < len(c.away) {
						s.away[name] = c.away[i]
					}
					if i < len(c.orphans) {
						s.orphans[name] = c.orphans[i]
					}
				}
				truth.add(s)
			}
			for range lasts / time.Second {
				step()
			}
			got := strings.Join(truth.found, "\n")
			switch {
			case lasts == trueWithin && got != "":
				t.Errorf("%s: after %v it says %s", name, lasts, got)
			case lasts > trueWithin && (len(truth.found) > len(c.pages) || (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want)):
				t.Errorf("%s: it says %q, want %q", name, got, c.want)
			}
		}
	}
}

// A contradiction that ends in time, again and again, is none.
func TestTruth_shortContradictions(t *testing.T) {
	truth := truth{within: trueWithin}
	at := time.Now()
	for i := range 60 {
		at = at.Add(300 * time.Millisecond)
		truth.add(sight{asked: at, at: at, away: map[string]bool{"a": i%6 < 5}, pages: map[string]reading{"a": {}}})
	}
	if truth.found != nil {
		t.Errorf("it says %q", truth.found)
	}
}

// While an engine hangs, a sight takes seconds. A contradiction within it is not known to have lasted for longer than the
// time from one sight to another.
func TestTruth_slowAnswers(t *testing.T) {
	for sights, found := range map[int]int{2: 0, 3: 1} {
		truth := truth{within: trueWithin}
		at := time.Now()
		for range sights {
			truth.add(sight{asked: at, at: at.Add(4 * time.Second), away: map[string]bool{"a": true}, pages: map[string]reading{"a": {}}})
			at = at.Add(4300 * time.Millisecond)
		}
		if len(truth.found) != found {
			t.Errorf("after %d sights it says %q", sights, truth.found)
		}
	}
}
