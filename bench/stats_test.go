// SPDX-License-Identifier: MIT

package main

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
		ok     bool
	}{
		{nil, 0, false},
		{[]float64{7}, 7, true},
		{[]float64{9, 1}, 5, true},
		{[]float64{100, 1, 3}, 3, true},
		{[]float64{4, 100, 1, 2}, 3, true},
		{[]float64{2, 2, 2, 0, -5}, 2, true},
	} {
		got, ok := median(c.values)
		if got != c.want || ok != c.ok {
			t.Errorf("median(%v) = %v, %v; want %v, %v", c.values, got, ok, c.want, c.ok)
		}
	}
}

// measured returns results with a figure of the case "x" by peer; the index in the list is the round.
func measured(figure string, byPeer map[string][]float64) results {
	var r results
	for peer, values := range byPeer {
		for round, v := range values {
			if !math.IsNaN(v) {
				s := sample{Peer: peer, Case: "x", Round: round, Figures: figures{figure: v}}
				r.samples = append(r.samples, s)
			}
		}
	}
	return r
}

func TestResults_ratio_isTakenWithinARound(t *testing.T) {
	// The machine is ten times slower in the second round: a ratio of medians would be 55/110, or worse.
	r := measured("ns", map[string][]float64{
		ours:     {5, 50, 6, 40},
		baseline: {10, 100, 10, math.NaN()},
	})
	if got, ok := r.ratio(ours, baseline, "x", "ns"); got != 0.5 || !ok {
		t.Errorf("got %v, %v; want 0.5", got, ok)
	}
	if got, ok := r.median(ours, "x", "ns"); got != 23 || !ok {
		t.Errorf("median: got %v, %v; want 23", got, ok)
	}
	for _, absent := range [][3]string{{"go-zero", "x", "ns"}, {ours, "y", "ns"}, {ours, "x", "ms"}} {
		if _, ok := r.ratio(absent[0], baseline, absent[1], absent[2]); ok {
			t.Errorf("%v: there is no such ratio", absent)
		}
	}
	if r.rounds() != 4 {
		t.Errorf("got %d rounds", r.rounds())
	}
}

func TestResults_ratio_toNothing_isNone(t *testing.T) {
	r := measured("ns", map[string][]float64{ours: {1}, baseline: {0}})
	if got, ok := r.ratio(ours, baseline, "x", "ns"); ok {
		t.Errorf("got %v", got)
	}
}

func TestResults_growth(t *testing.T) {
	r := results{samples: []sample{
		{Peer: ours, Case: "small", Round: 0, Figures: figures{"ns": 10}},
		{Peer: ours, Case: "small", Round: 1, Figures: figures{"ns": 100}},
		{Peer: ours, Case: "large", Round: 0, Figures: figures{"ns": 30}},
		{Peer: ours, Case: "large", Round: 1, Figures: figures{"ns": 200}},
	}}
	if got, _ := r.growth(ours, "small", "large", "ns"); got != 2.5 {
		t.Errorf("got %v, want 2.5", got)
	}
	if got, ok := r.worst(ours, "large", "ns"); got != 200 || !ok {
		t.Errorf("worst: got %v, want 200", got)
	}
	if _, ok := r.worst(ours, "none", "ns"); ok {
		t.Error("worst: there is none")
	}
}

func TestRecorder_lateness(t *testing.T) {
	r := newRecorder(6)
	due := []int64{100, 100, 100, 0, 0, 100}
	ran := []int64{150, 90, 0, 70, 0, 200}
	copy(r.due, due)
	for id, at := range ran {
		r.ran[id].Store(at)
	}
	r.fire("order:00000005")
	got := r.lateness()
	want := lateness{early: 2, lost: 1, again: 1, first: -10, p50: 50, p99: 50, last: 100}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if r.complete() {
		t.Error("complete although one has not run")
	}
	r.fire("order:00000002")
	if !r.complete() {
		t.Error("not complete although all have run")
	}
}

func TestSpread_isEvenOverTheWindow(t *testing.T) {
	const n, window = 10_000, 1_000_000
	var tenths [10]int
	for id := range n {
		d := spread(id, window)
		if d < 0 || d >= window {
			t.Fatalf("spread(%d) = %d", id, d)
		}
		tenths[d*10/window]++
	}
	for i, got := range tenths {
		if got < n/10-10 || got > n/10+10 {
			t.Errorf("tenth %d has %d of %d", i, got, n)
		}
	}
}

func TestKeys_idOf_isThePlaceOfTheKey(t *testing.T) {
	keys := makeKeys(1001)
	for id, key := range keys {
		if idOf(key) != id {
			t.Fatalf("idOf(%q) = %d, want %d", key, idOf(key), id)
		}
	}
	if keys[1000] != "order:00001000" {
		t.Errorf("got %q", keys[1000])
	}
}
