// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// drawScaling shows the cost of an add for growing numbers of live timers, both on logarithmic scales.
func drawScaling(r report) (*plot.Plot, vg.Length) {
	var sizes []int
	for _, size := range scaleSizes() {
		if r.results.ran(scaleName(size)) {
			sizes = append(sizes, size)
		}
	}
	if len(sizes) < 2 {
		return nil, 0
	}
	p := newPlot("Cost of an add as the number of live timers grows, one producer", "live timers", "ns per add")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	least, most := math.Inf(1), 0.0
	var ends []curveEnd
	for _, d := range r.peers {
		var points plotter.XYs
		for _, size := range sizes {
			if ns, ok := r.results.median(d.name, scaleName(size), "add_ns"); ok {
				points = append(points, plotter.XY{X: float64(size), Y: ns})
				least, most = min(least, ns), max(most, ns)
			}
		}
		if len(points) > 0 {
			curve(p, points, d)
			ends = append(ends, curveEnd{name: d.name, at: points[len(points)-1]})
		}
	}
	first, last := float64(sizes[0]), float64(sizes[len(sizes)-1])
	p.X.Min, p.X.Max = first, last*math.Pow(last/first, 0.28) // room for the names
	p.X.Tick.Marker = sizeTicks(sizes)
	p.Y.Min, p.Y.Max = least*0.8, most*1.3
	p.Y.Tick.Marker = doublings(p.Y.Min, p.Y.Max)
	nameCurves(p, ends)
	return p, 10 * vg.Centimeter
}

// curve draws the line of one peer.
func curve(p *plot.Plot, points plotter.XYs, d definition) {
	line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: colourOf(d.name), Width: 1.4}}
	if d.name == ours {
		line.Width = 2.6
	}
	if !d.timers {
		line.Dashes = []vg.Length{5, 3}
	}
	p.Add(line, &plotter.Scatter{
		XYs:        points,
		GlyphStyle: draw.GlyphStyle{Color: colourOf(d.name), Radius: 2.6, Shape: draw.CircleGlyph{}},
	})
}

// curveEnd is the end of a line that gets a name.
type curveEnd struct {
	name string
	at   plotter.XY
}

// nameCurves writes the name of each line next to its end, and moves names apart where they would touch.
func nameCurves(p *plot.Plot, ends []curveEnd) {
	slices.SortFunc(ends, func(a, b curveEnd) int { return cmp.Compare(a.at.Y, b.at.Y) })
	gap := math.Pow(p.Y.Max/p.Y.Min, 0.055) // the height of a name, on this scale
	lowest := 0.0
	for _, end := range ends {
		y := max(end.at.Y, lowest)
		label(p, end.at.X, y, end.name, 9, colourOf(end.name))
		lowest = y * gap
	}
}

// sizeTicks marks the numbers of live timers.
func sizeTicks(sizes []int) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, size := range sizes {
		ticks = append(ticks, plot.Tick{Value: float64(size), Label: count(size)})
	}
	return ticks
}

// doublings marks every doubling of a hundred between two numbers.
func doublings(from, to float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for v := 100.0 / 64; v <= to; v *= 2 {
		if v >= from {
			ticks = append(ticks, plot.Tick{Value: v, Label: digits(v)})
		}
	}
	return ticks
}
