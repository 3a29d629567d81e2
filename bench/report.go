// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strings"
)

// report contains everything written about a run.
type report struct {
	circumstances circumstances
	peers         []definition
	results       results
	plots         []string // file names, relative to the report
}

// String writes the report as Markdown.
func (r report) String() string {
	quick := r.circumstances.Quick
	var b strings.Builder
	b.WriteString("# Benchmark results\n\n")
	if quick {
		b.WriteString("Quick mode: smaller numbers and fewer rounds than the targets are set for. " +
			"It shows the direction, not the distance.\n\n")
	}
	b.WriteString(r.setting())
	b.WriteString("\n## Targets\n\n")
	b.WriteString("Ratios are to `" + baseline + "` in the same round, medians over the rounds.\n" +
		"Less is better. This table is computed from the figures below.\n\n")
	b.WriteString(goalTable(goals(r.results, quick)).String())
	for _, plot := range r.plots {
		fmt.Fprintf(&b, "\n![%s](%s)\n", plotTitle(plot), plot)
	}
	b.WriteString("\n## Figures\n\n" + r.method() + "\n")
	for _, s := range sections(quick) {
		b.WriteString(s.render(r.results, r.peers, quick))
	}
	b.WriteString("## Peers\n\n" + r.peerTable().String())
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// setting describes the machine and the versions behind the figures.
func (r report) setting() string {
	c := r.circumstances
	var b strings.Builder
	for _, line := range [][2]string{
		{"Machine", fmt.Sprintf("%s, %d cores, %s", c.CPU, c.Processors, c.Memory)},
		{"System", c.System},
		{"Go", c.Go},
		{"Revision", c.Revision},
		{"Date", c.Date},
		{"Rounds", fmt.Sprintf("%d, at most %d of the cases that take long", r.results.rounds(), fewRounds)},
		{"Command", "`" + c.Command + "`"},
	} {
		fmt.Fprintf(&b, "- %s: %s\n", line[0], line[1])
	}
	return b.String()
}

// method describes how the figures were measured.
func (r report) method() string {
	return "Each figure is the median over the rounds. Each peer and case runs in a process of its own, " +
		"once in each round, the peers of a case one after another and in another order in every round. Keys are " +
		"made beforehand; they are `order:` and eight digits. GOGC is at its default. The tick is 10 ms unless " +
		"the table says otherwise.\n\n" +
		"EARLY counts jobs that ran before the time of the call and the delay, LOST jobs that never ran, both in " +
		"the worst round. " +
		"A figure of a peer that has them is not comparable. An asterisk marks the two of the table *" +
		fireTitle(workloadOf("fire", r.circumstances.Quick)) + "*, where nothing is due in the case itself.\n"
}

// peerTable describes the peers.
func (r report) peerTable() table {
	t := table{head: []string{"peer", "version", "what it is"}}
	for _, d := range r.peers {
		t.rows = append(t.rows, []string{d.name, r.circumstances.version(d), d.about})
	}
	return t
}
