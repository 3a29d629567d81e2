// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// rowHeight is the height of one peer in a plot with a row for each.
const rowHeight = 0.95 * vg.Centimeter

// rowPlotHeight is the height of a plot with that many rows.
func rowPlotHeight(n int) vg.Length { return 3*vg.Centimeter + vg.Length(n)*rowHeight }

// keyedPeers returns the peers of a run that have keys and the figure.
func keyedPeers(r report, bench, figure string) []definition {
	var list []definition
	for _, d := range r.peers {
		if _, ok := r.results.median(d.name, bench, figure); ok && d.keyed {
			list = append(list, d)
		}
	}
	return list
}

// drawOverview shows every target that is a ratio, with the positions of the wheel, the other keyed peers and the
// floor.
func drawOverview(r report) (*plot.Plot, vg.Length) {
	const widest = 1.6 // higher values are left out: they would leave too little room to distinguish the others
	var list []goal
	var titles []string
	for _, g := range goals(r.results, r.circumstances.Quick) {
		if _, ok := r.results.ratio(ours, baseline, g.bench, g.figure); ok && g.limit > 0 {
			list = append(list, g)
			titles = append(titles, g.title)
		}
	}
	if len(list) == 0 {
		return nil, 0
	}
	p := newPlot("Cost of a keyed timer", "times that of "+baseline+" (less is better)", "")
	p.X.Min, p.X.Max = 0, widest
	rows(p, titles)
	upright(p, 1, grey(0x66), 1, 4, 3)
	for i, g := range list {
		y := -float64(i)
		bar(p, 0, widest, y, 0.02, grey(0xdd))
		bar(p, g.limit-0.004, g.limit+0.004, y, 0.6, grey(0x33))
		for _, d := range r.peers {
			ratio, ok := r.results.ratio(d.name, baseline, g.bench, g.figure)
			switch {
			case !ok || ratio > widest || !d.keyed || d.name == baseline:
			case d.name == ours:
				dot(p, ratio, y, 6, colourOf(ours))
			case !d.timers:
				dot(p, ratio, y, 4, colourOf(d.name))
			case troubled(r.results, d):
				ring(p, ratio, y)
			default:
				dot(p, ratio, y, 4, grey(0x99))
			}
		}
	}
	overviewLegend(p)
	return p, rowPlotHeight(len(list)) + 1.2*vg.Centimeter
}

// overviewLegend explains the marks of the overview in two lines above its rows.
func overviewLegend(p *plot.Plot) {
	upper, lower := p.Y.Max+0.95, p.Y.Max+0.3
	p.Y.Max += 1.3
	dot(p, 0.02, upper, 6, colourOf(ours))
	label(p, 0.02, upper, ours, 9, grey(0x33))
	dot(p, 0.55, upper, 4, colourOf(floorName))
	label(p, 0.55, upper, floorName, 8, grey(0x33))
	bar(p, 0.896, 0.904, upper, 0.5, grey(0x33))
	label(p, 0.9, upper, "target", 6, grey(0x33))
	ring(p, 0.02, lower)
	label(p, 0.02, lower, "other keyed peer, some of its jobs early or lost", 9, grey(0x33))
}

// drawAdd shows the cost of an add relative to the baseline: one bar for each number of live timers.
func drawAdd(r report) (*plot.Plot, vg.Length) {
	const widest = 2.0 // higher values are cut off: they would make the others too small to distinguish
	peers := keyedPeers(r, "add-large", "add_ns_1")
	if len(peers) == 0 {
		return nil, 0
	}
	large := count(workloadOf("add-large", r.circumstances.Quick).Live)
	p := newPlot("Cost of adding a keyed timer, "+large+" live, one producer",
		"times that of "+baseline+" (less is better; * some jobs early)", "")
	p.X.Min, p.X.Max = 0, widest+0.65
	p.X.Tick.Marker = plot.ConstantTicks{
		{Value: 0, Label: "0"}, {Value: 0.5, Label: "0.5"}, {Value: 1, Label: "1"}, {Value: 1.5, Label: "1.5"},
		{Value: 2, Label: "2"},
	}
	rows(p, marked(r.results, peers))
	for i, d := range peers {
		y := -float64(i)
		ratio, _ := r.results.ratio(d.name, baseline, "add-large", "add_ns_1")
		ns, _ := r.results.median(d.name, "add-large", "add_ns_1")
		bar(p, 0, min(ratio, widest), y, 0.62, barColour(d))
		if ratio > widest {
			label(p, widest, y, "…", 3, grey(0x66))
		}
		label(p, p.X.Max-0.36, y, ratioCell(ratio), -1, grey(0x33))
		label(p, p.X.Max, y, digits(ns)+" ns", -1, grey(0x33))
	}
	upright(p, 1, grey(0x66), 1, 4, 3)
	return p, rowPlotHeight(len(peers))
}

// drawMemory shows the heap memory of one live timer.
func drawMemory(r report) (*plot.Plot, vg.Length) {
	peers := keyedPeers(r, "create", "heap_b")
	if len(peers) == 0 {
		return nil, 0
	}
	live := count(workloadOf("create", r.circumstances.Quick).Live)
	p := newPlot("Heap per live keyed timer, "+live+" live",
		"bytes, without those of the key (less is better; * some jobs early)", "")
	most := 0.0
	rows(p, marked(r.results, peers))
	for i, d := range peers {
		b, _ := r.results.median(d.name, "create", "heap_b")
		most = max(most, b)
		bar(p, 0, b, -float64(i), 0.62, barColour(d))
		label(p, b, -float64(i), digits(b)+" B", 5, grey(0x33))
	}
	p.X.Min, p.X.Max = 0, most*1.15
	return p, rowPlotHeight(len(peers))
}

// drawLateness draws a bar for each peer, from its earliest job to the 99th percentile, with a point at the
// median and the numbers of early and lost jobs.
func drawLateness(r report) (*plot.Plot, vg.Length) {
	peers := keyedPeers(r, "fire", "p99_ms")
	if len(peers) == 0 {
		return nil, 0
	}
	w := workloadOf("fire", r.circumstances.Quick)
	p := newPlot("When jobs run, "+fireTitle(w)+", tick "+w.Tick.String(),
		"ms after the due instant; bar from the earliest job to the 99th percentile, point at the median", "")
	rows(p, marked(r.results, peers))
	least, most := 0.0, 0.0
	for _, d := range peers {
		first, _ := r.results.median(d.name, "fire", "first_ms")
		p99, _ := r.results.median(d.name, "fire", "p99_ms")
		least, most = min(least, first), max(most, p99)
	}
	width := most - least
	p.X.Min, p.X.Max = least-0.04*width, most+0.55*width
	tooEarly := color.RGBA{R: 0xff, G: 0xee, B: 0xec, A: 0xff}
	bar(p, p.X.Min, 0, -float64(len(peers)-1)/2, float64(len(peers)), tooEarly)
	upright(p, 0, grey(0x66), 1, 4, 3)
	for i, d := range peers {
		y := -float64(i)
		first, _ := r.results.median(d.name, "fire", "first_ms")
		p50, _ := r.results.median(d.name, "fire", "p50_ms")
		p99, _ := r.results.median(d.name, "fire", "p99_ms")
		bar(p, first, p99, y, 0.36, pale(colourOf(d.name)))
		dot(p, p50, y, 4, colourOf(d.name))
		early, lost, _ := r.results.troubles(d.name, "fire")
		label(p, max(p99, 0), y, fmt.Sprintf("%s early, %s lost", commas(early), commas(lost)), 8, grey(0x33))
	}
	return p, rowPlotHeight(len(peers))
}

// barColour is the colour of a peer's bar: strong for the wheel of this repository, the baseline and the
// floor.
func barColour(d definition) color.Color {
	switch d.name {
	case ours:
		return colourOf(ours)
	case baseline, floorName:
		return pale(colourOf(d.name))
	}
	return grey(0xcc)
}

// marked returns the names of the peers, with an asterisk after each peer that ran jobs early or lost them.
func marked(r results, peers []definition) []string {
	var list []string
	for _, d := range peers {
		name := d.name
		if troubled(r, d) {
			name += " *"
		}
		list = append(list, name)
	}
	return list
}

// troubled reports whether jobs of a peer were early or lost.
func troubled(r results, d definition) bool {
	early, lost, _ := r.troubles(d.name, "fire")
	return early+lost > 0
}
