// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"testing"
	"time"
)

// tiny makes a workload small enough for a test of the harness. Its figures mean nothing.
func tiny(w workload) workload {
	w.Live, w.Fresh, w.Operations = min(w.Live, 1000), min(w.Fresh, 100), min(w.Operations, 500)
	w.Lead, w.Window = min(w.Lead, 30*time.Millisecond), min(w.Window, 30*time.Millisecond)
	w.Watch = min(w.Watch, 20*time.Millisecond)
	return w
}

// TestEveryCase_withEveryPeer runs each pair once, and checks that it yields the figures shown in the tables.
func TestEveryCase_withEveryPeer(t *testing.T) {
	for _, c := range cases() {
		if c.fullOnly && c.name != "scale-10m" {
			continue // differs from another case only in its numbers
		}
		for _, d := range definitions() {
			w := tiny(c.full)
			if reason := c.lacks(d, w); reason != "" {
				t.Logf("%s does not measure %s: %s", c.name, d.name, reason)
				continue
			}
			t.Run(c.name+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				f, err := job{Peer: d.name, Case: c.name, Workload: w}.run()
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range sections(false) {
					for _, col := range s.columns {
						_, ok := f[col.figure]
						if col.bench == c.name && !ok && (d.timers || col.unit != microseconds) {
							t.Errorf("figure %q is missing", col.figure)
						}
					}
				}
				if d.ticks && d.name != ours {
					return // early and lost jobs of other wheels are for the report
				}
				if f["early"] != 0 || f["lost"] != 0 || f["again"] != 0 {
					t.Errorf("%v early, %v lost, %v ran twice", f["early"], f["lost"], f["again"])
				}
			})
		}
	}
}

// TestKeyedPeers_verbs checks the semantics of the measured verbs: a key is unique while it is live, can be removed and
// moved, and is free when its job runs, and a removed job does not run.
func TestKeyedPeers_verbs(t *testing.T) {
	for _, d := range definitions() {
		if !d.keyed || d.only != "" {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			fired := make(chan string, 16)
			p, err := d.open(settings{tick: 10 * time.Millisecond, ids: 4, fire: func(key string) { fired <- key }})
			if err != nil {
				t.Fatal(err)
			}
			defer p.stop()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			const far, near = time.Hour, 30 * time.Millisecond
			must(p.add(0, "a", far))
			if d.name != "go-zero" { // which replaces, and does not report a missing key
				if p.add(0, "a", far) == nil {
					t.Error("a second add of a live key is taken")
				}
				if p.remove(1, "b") == nil {
					t.Error("a key that is not there is removed")
				}
			}
			must(p.remove(0, "a"))
			must(p.add(0, "a", far))
			if !d.timers {
				if err := p.reschedule("a", near); !errors.Is(err, errNoVerb) {
					t.Errorf("reschedule: got %v", err)
				}
				return
			}
			must(p.reschedule("a", near))
			must(p.add(1, "b", near))
			must(p.remove(1, "b"))
			must(p.add(2, "c", 5*near))
			for _, want := range []string{"a", "c"} {
				if got := <-fired; got != want {
					t.Errorf("%q ran, want %q", got, want)
				}
			}
			must(p.add(0, "a", near))
			if got := <-fired; got != "a" {
				t.Errorf("%q ran, want a", got)
			}
		})
	}
}

func TestUntilTick(t *testing.T) {
	const ms, tick = time.Millisecond, 10 * time.Millisecond
	grid := []time.Duration{23*ms + 400*time.Microsecond, 33 * ms, 83*ms + 500*time.Microsecond}
	for _, c := range []struct {
		name    string
		instant time.Duration
		after   []time.Duration
		want    time.Duration
	}{
		{"between two ticks", 99 * ms, grid, 4 * ms},
		{"just after a tick", 1003*ms + 1, grid, 10*ms - 1},
		{"around the end of a tick", 105 * ms, []time.Duration{39*ms + 900*time.Microsecond, 50*ms + 100*time.Microsecond}, 4*ms + 900*time.Microsecond},
		{"no grid", 99 * ms, []time.Duration{21 * ms, 37 * ms, 84 * ms}, 0},
		{"no probes", 99 * ms, nil, 0},
	} {
		if got := untilTick(c.instant, c.after, tick); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
