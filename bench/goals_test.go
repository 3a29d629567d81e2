// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"
)

// verdictOn returns the verdict on the goal whose title contains the words.
func verdictOn(t *testing.T, list []goal, words string) verdict {
	t.Helper()
	for _, g := range list {
		if strings.Contains(g.title, words) {
			return g.verdict
		}
	}
	t.Fatalf("no goal is titled %q", words)
	return ""
}

func TestGoals_areComputed(t *testing.T) {
	for _, c := range []struct {
		name, title string
		decides     value
		enough      float64 // values of the deciding figure
		short       float64
		given       value
		givenAt     float64
	}{
		{"add", "add, 1k live", value{ours, "add-small", "add_ns_1"}, 0.70, 0.71, value{}, 0},
		{
			"add, far from the baseline", "add, 1M live, one", value{ours, "add-large", "add_ns_1"}, 0.65, 0.66,
			value{floorName, "add-large", "add_ns_1"}, 0.5,
		},
		{
			"add, far from the floor", "add, 1M live, one", value{floorName, "add-large", "add_ns_1"}, 0.5, 0.4,
			value{ours, "add-large", "add_ns_1"}, 0.6,
		},
		{"reschedule", "reschedule", value{ours, "reschedule", "move_ns"}, 0.9, 0.91, value{}, 0},
		{"allocations", "allocations", value{ours, "create", "allocs"}, 1.01, 1.2, value{}, 0},
		{"lateness", "lateness", value{ours, "fire", "p99_ms"}, 18, 18.1, value{}, 0},
		{"early", "lateness", value{ours, "fire", "early"}, 0, 1, value{}, 0},
		{"lost", "lateness", value{ours, "fire", "lost"}, 0, 1, value{}, 0},
		{"burst", "to the last job", value{ours, "burst", "span_ms"}, 0.35, 0.36, value{}, 0},
		{
			"burst, lost", "to the last job", value{ours, "burst", "lost"}, 0, 1,
			value{ours, "burst", "span_ms"}, 0.3,
		},
		{"first of a burst", "first job", value{ours, "burst", "tick_ms"}, 3, 3.1, value{}, 0},
		{"firing", "CPU of firing", value{ours, "burst", "fire_ms"}, 1.6, 1.7, value{}, 0},
		{"idle", "idle", value{ours, "idle-live-1ms", "idle_ms"}, 6, 6.1, value{antsName, "idle-live-1ms", "idle_ms"}, 5},
		{
			"walk", "during a walk", value{ours, "walk", "all_p99_ms"}, 4, 4.1,
			value{ours, "walk", "other_walk_p99_ms"}, 2,
		},
		{"tick", "a tick", value{ours, "scale-10m", "beat_ns"}, 1.2, 1.21, value{}, 0},
		{
			"growth", "add at 10M", value{ours, "scale-10m", "add_ns"}, 2, 2.1,
			value{floorName, "scale-10m", "add_ns"}, 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := change(imagined(false, 1, 0, 0), c.given, c.givenAt)
			for v, want := range map[float64]verdict{c.enough: met, c.short: missed} {
				if got := verdictOn(t, goals(change(r, c.decides, v), false), c.title); got != want {
					t.Errorf("at %v: got %q, want %q", v, got, want)
				}
			}
		})
	}
}

func TestGoals_withoutFigures_areNotJudged(t *testing.T) {
	for _, g := range goals(results{}, false) {
		if g.verdict != unjudged || g.measured != "–" || g.best != "–" {
			t.Errorf("%+v", g)
		}
	}
}

func TestGoals_bestPeer_isNamedWithWhatItOwes(t *testing.T) {
	r := change(imagined(false, 1, 0, 0), value{"antlabs-keyed", "add-small", "add_ns_1"}, 0.5)
	r = change(r, value{"antlabs-keyed", "fire", "early"}, 493120)
	r = change(r, value{"antlabs-keyed", "fire", "lost"}, 7)
	if got, want := goals(r, false)[0].best, "antlabs-keyed 0.50, 493,120 early, 7 lost"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGoals_caseInWhichTheWheelFails_isMissed(t *testing.T) {
	r := results{samples: []sample{{Peer: ours, Case: "fire", Failure: "stopped after 60 s"}}}
	for _, g := range goals(r, false) {
		want := unjudged
		if g.bench == "fire" {
			want = missed
		}
		if g.verdict != want || want == missed && g.measured != "stopped after 60 s" {
			t.Errorf("%+v", g)
		}
	}
}
