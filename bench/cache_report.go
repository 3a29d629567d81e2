// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cacheFile is the file for the report on the caches.
const cacheFile = "CACHES.md"

// cachePlan lists the child processes for the caches, as plan does for the timers.
func cachePlan(rounds int, quick bool) []task {
	var tasks []task
	for round := range rounds {
		for _, c := range cacheCases() {
			for i := range cacheDefinitions() {
				all := cacheDefinitions()
				d := all[(i+round)%len(all)]
				tasks = append(tasks, task{
					peer:  definition{name: d.name},
					bench: benchCase{name: c.name, limit: time.Minute},
					work:  cacheWorkload(quick),
					round: round,
				})
			}
		}
	}
	return tasks
}

// measureCaches runs the child processes and returns the report.
func measureCaches(ctx context.Context, o options, c circumstances, stderr *os.File) (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	var all results
	p := newProgress(stderr)
	run := runner{executable: executable, limit: o.limit}
	err = runAll(ctx, run, cachePlan(o.rounds, o.quick), p, func(s sample) error {
		all.samples = append(all.samples, s)
		return nil
	})
	p.done()
	if err != nil {
		return "", err
	}
	return cacheReport(all, c), nil
}

// cacheColumn is a figure of the table.
type cacheColumn struct {
	bench, figure, title string
	ratio                bool
}

func cacheColumns() []cacheColumn {
	return []cacheColumn{
		{cachePrefix + "set", "set_ns", "set, ns", true},
		{cachePrefix + "set", "again_ns", "set again, ns", true},
		{cachePrefix + "get", "hit_ns", "get, ns", true},
		{cachePrefix + "get", "mixed_ns", "9 gets, 1 set; two goroutines, ns", true},
		{cachePrefix + "expire", "cpu_ms", "expiry of all, CPU, ms", true},
		{cachePrefix + "set", "heap_b", "heap each, B", false},
		{cachePrefix + "expire", "left_b", "left behind, B", false},
	}
}

// cacheReport writes the report as Markdown.
func cacheReport(r results, c circumstances) string {
	w := cacheWorkload(c.Quick)
	var b strings.Builder
	b.WriteString("# Caches\n\n")
	if c.Quick {
		b.WriteString("Quick mode: smaller numbers and fewer rounds than the targets are set for.\n\n")
	}
	b.WriteString(report{circumstances: c, results: r}.setting())
	fmt.Fprintf(&b, "\nEach figure is the median over the rounds, each cache and case in a process of its own. "+
		"Ratios are to `%s` in the same round. %s keys of 14 bytes, values are ints. *Expiry* is the processor "+
		"time from when all are set, as fast as could be, to %v after the last deadline, with a time to live of "+
		"%v; *left behind* is the heap after it, by key that was there.\n\n## Targets\n\n", cacheBaseline, count(w.Live), w.Grace, w.Window)
	b.WriteString(cacheGoals(r).String() + "\n## Figures\n\n")

	t := table{head: []string{"cache"}, numbers: true}
	for _, col := range cacheColumns() {
		t.head = append(t.head, col.title)
		if col.ratio {
			t.head = append(t.head, "ratio")
		}
	}
	for _, d := range cacheDefinitions() {
		row := []string{d.name}
		if d.name == ourCache {
			row[0] = "**" + d.name + "**"
		}
		for _, col := range cacheColumns() {
			cell := "–"
			if v, ok := r.median(d.name, col.bench, col.figure); ok {
				cell = digits(v)
			} else if failure := r.failure(d.name, col.bench); failure != "" {
				cell = failure
			}
			row = append(row, cell)
			if col.ratio {
				row = append(row, ratioText(r.ratio(d.name, cacheBaseline, col.bench, col.figure)))
			}
		}
		t.rows = append(t.rows, row)
	}
	b.WriteString(t.String() + "\n## Features\n\n" + cacheFeatures().String() + "\n## Peers\n\n")

	peers := table{head: []string{"cache", "version", "what it is"}}
	for _, d := range cacheDefinitions() {
		peers.rows = append(peers.rows, []string{d.name, c.version(definition{module: d.module}), d.about})
	}
	b.WriteString(peers.String())
	return b.String()
}

// cacheGoals is the table of targets.
func cacheGoals(r results) table {
	t := table{head: []string{"case", "target", "measured", "met"}}
	add := func(title, target string, v float64, ok bool, limit float64) {
		row := []string{title, target, "–", string(unjudged)}
		if ok {
			row[2], row[3] = ratioCell(v), string(judge(v <= limit))
		}
		t.rows = append(t.rows, row)
	}
	for _, col := range cacheColumns()[:4] {
		v, ok := r.ratio(ourCache, cacheBaseline, col.bench, col.figure)
		add(strings.TrimSuffix(col.title, ", ns"), "≤ 1.0 × "+cacheBaseline, v, ok, 1)
	}
	best, found := 0.0, false
	var name string
	for _, d := range cacheDefinitions() {
		v, ok := r.ratio(ourCache, d.name, cachePrefix+"expire", "cpu_ms")
		if ok && d.name != ourCache && d.name != otterName && (!found || v > best) {
			best, found, name = v, true, d.name
		}
	}
	add("expiry, CPU", "≤ 0.5 × the best of jellydator, go-cache, go-zero", best, found, 0.5)
	if found {
		t.rows[len(t.rows)-1][2] += " × " + name
	}
	return t
}

// reportOnCaches measures the caches and writes or prints the report.
func reportOnCaches(
	ctx context.Context, o options, arguments []string, stdout io.Writer, stderr *os.File,
) error {
	text, err := measureCaches(ctx, o, observe(arguments, o.quick), stderr)
	if err != nil {
		return err
	}
	if o.out == "" {
		_, err := io.WriteString(stdout, text)
		return err
	}
	return os.WriteFile(filepath.Join(o.out, cacheFile), []byte(text), 0o644)
}
