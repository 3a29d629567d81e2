// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/bench/internal/rounds"
)

// medians are the figures of each case and peer over the rounds. of is NaN for figures that were not measured.
type medians struct {
	figures  map[string]figures // by case/peer
	failures []string
	rounds   int
}

func (m medians) of(c, p, figure string) float64 {
	if v, ok := m.figures[c+"/"+p][figure]; ok {
		return v
	}
	return math.NaN()
}

// worst are figures for which the maximum is reported instead of the median.
var worst = []string{"lost", "early", "extra", "duplicates", "left"}

func isWorst(figure string) bool {
	return slices.ContainsFunc(worst, func(w string) bool {
		return figure == w || strings.HasSuffix(figure, "_"+w)
	})
}

func summarize(samples []rounds.Sample) medians {
	m := medians{figures: map[string]figures{}, rounds: rounds.Of(samples)}
	values, failures := rounds.Collect(samples)
	m.failures = failures
	for id, f := range values {
		m.figures[id] = figures{}
		for name, v := range f {
			m.figures[id][name] = rounds.Median(v)
			if isWorst(name) {
				m.figures[id][name] = slices.Max(v)
			}
		}
	}
	return m
}

func withUnit(v float64, unit string) string {
	if math.IsNaN(v) {
		return "–"
	}
	return number(v) + unit
}

// number prints a number with its significant digits.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v == math.Trunc(v) && math.Abs(v) < 1000:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 1000:
		return rounds.Thousands(int(math.Round(v)))
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// report returns the text of CLUSTER.md.
func report(at circumstances, m medians, size sizes) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmark results of the cluster

- Machine: %s, %d cores, shared by the nodes and PostgreSQL; load averages at the end: %s
- System: %s, %s, %s
- Peers: %s
- Date: %s, revision %s
- Rounds: %d; each figure is the median, of counts the greatest
- Command: %s

`, at.cpu, at.processors, at.load, at.system, at.goVersion, at.server, at.libraries, at.date, at.revision,
		m.rounds, "`"+at.command+"`")
	fmt.Fprintf(&b, `Each peer and case runs on a PostgreSQL of its own, with the settings that initdb writes, except
for max_connections = 200: fsync and synchronous_commit are on, shared_buffers is 128 MB. The tables are analyzed
after they have been filled. The nodes are processes of their own and connect over the loopback interface. A task
has a key of 16 bytes and a payload of %d. %s has its default settings. River's nodes have %s workers and
fetch every %s, since the defaults serve fewer jobs a second; its other settings are its defaults. The nodes of the
polled table poll from %d goroutines each, %d rows at a time, and rest for %s after a poll that found fewer.

`, payloadLen, ours, rounds.Thousands(riverWorkers), riverCooldown, pollers, pollSize, pollRest)
	b.WriteString("## Goals\n\nThe goals are for " + ours + " on a quiet machine with two cores.\n\n" +
		"| goal | target | " + ours + " | " + riverName + " | ratio to River | " + polledName + " | met |\n" +
		"|:---|:---|---:|---:|---:|---:|:---|\n")
	for _, g := range goals {
		b.WriteString(g.row(m))
	}
	b.WriteByte('\n')
	for _, s := range sections(size) {
		b.WriteString(s.table(m))
	}
	if len(m.failures) > 0 {
		fmt.Fprintf(&b, "## What could not be measured\n\n- %s\n", strings.Join(m.failures, "\n- "))
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
