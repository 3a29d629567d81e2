// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
	"strings"
)

// section is one table of figures: a row for each peer, a column for each figure.
type section struct {
	title   string
	text    string // describes the measurement
	columns []column
	fires   bool // EARLY and LOST come from its own case
}

// column is one figure.
type column struct {
	label  string
	bench  string // name of the case
	figure string
	unit   unit
	ratio  bool // followed by a column with the ratio to the baseline
}

// render writes the section for the peers of a run, or nothing if none of its cases were run.
func (s section) render(r results, peers []definition, quick bool) string {
	s.columns = slices.DeleteFunc(slices.Clone(s.columns), func(c column) bool { return !r.ran(c.bench) })
	if len(s.columns) == 0 {
		return ""
	}
	var notes []string
	t := table{head: s.head(quick), numbers: true}
	for _, d := range peers {
		if reason := s.lacks(d, quick); reason != "" {
			notes = append(notes, fmt.Sprintf("%s (%s)", d.name, reason))
			continue
		}
		t.rows = append(t.rows, s.row(r, d))
	}
	text := fmt.Sprintf("### %s\n\n%s\n\n%s", s.title, s.text, t)
	if len(notes) > 0 {
		text += "\nNot measured here: " + strings.Join(notes, ", ") + ".\n"
	}
	for _, remark := range s.remarks(r, peers) {
		text += "\n" + remark + "\n"
	}
	return text + "\n"
}

// head is the first line of the table. EARLY and LOST are in every table. They are figures of the section's own case,
// or of the case in which a million timers fire.
func (s section) head(quick bool) []string {
	head := []string{"peer"}
	for _, c := range s.columns {
		label := c.label
		if c.unit != number {
			label += ", " + string(c.unit)
		}
		head = append(head, label)
		if c.ratio {
			head = append(head, "ratio")
		}
	}
	if s.fires {
		return append(head, "EARLY", "LOST")
	}
	return append(head, "EARLY of "+count(workloadOf("fire", quick).Live)+"*", "LOST*")
}

func (s section) row(r results, d definition) []string {
	name := d.name
	if name == ours {
		name = "**" + name + "**"
	}
	row := []string{name}
	told := ""
	for _, c := range s.columns {
		cell := "–"
		if v, ok := r.median(d.name, c.bench, c.figure); ok {
			cell = c.unit.format(v)
		} else if failure := r.failure(d.name, c.bench); failure != "" && failure != told {
			cell, told = failure, failure
		}
		row = append(row, cell)
		if c.ratio {
			row = append(row, ratioText(r.ratio(d.name, baseline, c.bench, c.figure)))
		}
	}
	if early, lost, ok := r.troubles(d.name, s.columns[0].bench); ok {
		return append(row, commas(early), commas(lost))
	}
	return append(row, "–", "–")
}

// ratioText writes a ratio.
func ratioText(v float64, ok bool) string {
	if !ok {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

// lacks returns why no case of the section measures a peer.
func (s section) lacks(d definition, quick bool) string {
	reason := ""
	for _, c := range s.columns {
		picked, err := selectCases(c.bench)
		if err != nil {
			panic(err)
		}
		reason = picked[0].lacks(d, picked[0].workload(quick))
		if reason == "" {
			return ""
		}
	}
	return reason
}

// remarks lists jobs that ran although nothing was due, jobs that ran twice, and a beat that stopped.
func (s section) remarks(r results, peers []definition) []string {
	var list []string
	for _, d := range peers {
		for _, name := range s.benches() {
			if n, ok := r.worst(d.name, name, "early"); ok && n > 0 && !s.fires {
				list = append(list, fmt.Sprintf("%s ran %s jobs although nothing was due (%s).",
					d.name, commas(int(n)), name))
			}
			if n, ok := r.worst(d.name, name, "again"); ok && n > 0 {
				list = append(list, fmt.Sprintf("%s ran %s jobs twice (%s).", d.name, commas(int(n)), name))
			}
			if n, ok := r.median(d.name, name, "beats"); ok && n < 0.2 && s.columns[0].figure == "beat_ns" {
				list = append(list, fmt.Sprintf("%s fired only %.2f times a tick (%s).", d.name, n, name))
			}
		}
	}
	return list
}

// benches are the names of the section's cases, each once.
func (s section) benches() []string {
	var names []string
	for _, c := range s.columns {
		if !slices.Contains(names, c.bench) {
			names = append(names, c.bench)
		}
	}
	return names
}
