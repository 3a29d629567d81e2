// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// Every cache keeps its values until they expire. Otherwise the benchmark measures nothing.
func TestCaches_everyCase_measuresEveryCache(t *testing.T) {
	w := workload{Live: 200, Operations: 400, Due: time.Minute, Window: 300 * time.Millisecond, Grace: 100 * time.Millisecond}
	for _, d := range cacheDefinitions() {
		for _, c := range cacheCases() {
			f, err := job{Peer: d.name, Case: c.name, Workload: w}.runCache()
			if err != nil {
				t.Errorf("%s, %s: %v", d.name, c.name, err)
			}
			for name, v := range f {
				if strings.HasSuffix(name, "_ns") && v <= 0 {
					t.Errorf("%s, %s: %s is %v", d.name, c.name, name, v)
				}
			}
		}
	}
}

func TestCaches_unknownNames_areErrors(t *testing.T) {
	for _, j := range []job{{Peer: "nope", Case: cachePrefix + "set"}, {Peer: ourCache, Case: cachePrefix + "nope"}} {
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if err := childMain(string(text), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), "nope") {
			t.Errorf("%+v: the error is %v", j, err)
		}
	}
}

func TestCachePlan_everyRound_startsWithAnotherCache(t *testing.T) {
	tasks := cachePlan(2, true)
	n := len(cacheCases()) * len(cacheDefinitions())
	if len(tasks) != 2*n || tasks[0].peer.name == tasks[n].peer.name {
		t.Errorf("%d tasks, of which the first are for %s and %s", len(tasks), tasks[0].peer.name, tasks[n].peer.name)
	}
}

func TestCacheReport_judgesTheTargets(t *testing.T) {
	var r results
	add := func(peer, bench string, f figures) {
		r.samples = append(r.samples, sample{Peer: peer, Case: bench, Figures: f})
	}
	for name, cost := range map[string]float64{ourCache: 90, cacheBaseline: 100, "go-cache": 150, "go-zero": 400, otterName: 10} {
		add(name, cachePrefix+"set", figures{"set_ns": cost, "again_ns": cost, "heap_b": cost})
		add(name, cachePrefix+"get", figures{"hit_ns": cost, "mixed_ns": cost})
		add(name, cachePrefix+"expire", figures{"cpu_ms": cost, "left_b": 0})
	}
	text := cacheReport(r, circumstances{})
	for _, want := range []string{"0.90 × jellydator | no", "| 0.90 ", "| yes |", "**" + ourCache + "**"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("the report does not say %q:\n%s", want, text)
		}
	}
}

// The same table is in the documentation, and in the report, which is older than a change of the table may be.
func TestCacheFeatures_areInTheDocumentation(t *testing.T) {
	for _, file := range []string{"../docs/comparison.md", cacheFile} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), cacheFeatures().String()) {
			t.Errorf("%s lacks this table, or has another:\n%s", file, cacheFeatures())
		}
	}
}
