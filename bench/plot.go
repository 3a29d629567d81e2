// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// picture is one plot of the report.
type picture struct {
	name  string // of the file, without its extension
	title string
	draw  func(r report) (*plot.Plot, vg.Length) // and its height; nil if there is nothing to draw
}

// plotsDirectory is the directory of the plots, below the report.
const plotsDirectory = "plots"

// plotWidth is the width of every plot. At this size its text is as large as that of the page around it.
const plotWidth = 18 * vg.Centimeter

// pictures lists the plots.
func pictures() []picture {
	return []picture{
		{"overview", "Cost of a keyed timer in proportion to the standard library with a map", drawOverview},
		{"add", "Cost of adding a keyed timer", drawAdd},
		{"scaling", "Cost of an add as the number of live timers grows", drawScaling},
		{"lateness", "When jobs run, against when they are due", drawLateness},
		{"memory", "Heap per live keyed timer", drawMemory},
	}
}

// drawPlots writes the plots for which there are figures, and returns their names relative to the directory.
func drawPlots(directory string, r report) ([]string, error) {
	if err := os.MkdirAll(filepath.Join(directory, plotsDirectory), 0o755); err != nil {
		return nil, err
	}
	// The tables show where the two layouts differ; in the plots one would hide the other.
	another := func(d definition) bool { return oursToo(d) && d.name != ours }
	r.peers = slices.DeleteFunc(slices.Clone(r.peers), another)
	var drawn []string
	for _, pic := range pictures() {
		p, height := pic.draw(r)
		if p == nil {
			continue
		}
		name := plotsDirectory + "/" + pic.name + ".svg"
		svg, err := renderSVG(p, height)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", pic.name, err)
		}
		if err := os.WriteFile(filepath.Join(directory, name), svg, 0o644); err != nil {
			return nil, err
		}
		drawn = append(drawn, name)
	}
	return drawn, nil
}

// plotTitle returns the title of the plot in a file.
func plotTitle(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".svg")
	for _, pic := range pictures() {
		if pic.name == name {
			return pic.title
		}
	}
	return name
}

// renderSVG draws a plot. It is laid out with fonts that have the widths of Helvetica and Arial, one of which exists
// wherever there is a browser. Without the change the file would ask for a font that few machines have.
func renderSVG(p *plot.Plot, height vg.Length) ([]byte, error) {
	const margin = 0.4 * vg.Centimeter
	c := vgsvg.New(plotWidth, height)
	whole := draw.New(c)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	p.Draw(draw.Crop(whole, margin, -margin, margin, -margin))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"),
		[]byte("font-family:Helvetica,Arial,'Liberation Sans',sans-serif")), nil
}

// The colours of the plots. The wheel of this repository is always blue.
func colourOf(peer string) color.Color {
	switch peer {
	case ours:
		return color.RGBA{R: 0x1f, G: 0x6f, B: 0xeb, A: 0xff}
	case baseline:
		return color.RGBA{R: 0x42, G: 0x4a, B: 0x53, A: 0xff}
	case floorName:
		return color.RGBA{R: 0x2d, G: 0xa4, B: 0x4e, A: 0xff}
	case "antlabs-keyed":
		return color.RGBA{R: 0xd9, G: 0x82, B: 0x15, A: 0xff}
	case "russellluo-keyed":
		return color.RGBA{R: 0x82, G: 0x50, B: 0xdf, A: 0xff}
	case "rfyiamcool-keyed":
		return color.RGBA{R: 0xbf, G: 0x39, B: 0x89, A: 0xff}
	case "go-zero":
		return color.RGBA{R: 0xcf, G: 0x22, B: 0x2e, A: 0xff}
	}
	return grey(0x8c)
}

// grey is a grey of that lightness.
func grey(v uint8) color.Color { return color.RGBA{R: v, G: v, B: v, A: 0xff} }

// pale mixes a colour with white.
func pale(c color.Color) color.Color {
	const share = 0.38
	r, g, b, _ := c.RGBA()
	mix := func(v uint32) uint8 { return uint8(255 - share*(255-float64(v>>8))) }
	return color.RGBA{R: mix(r), G: mix(g), B: mix(b), A: 0xff}
}

// newPlot returns an empty plot in the style of all plots.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = 10
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.X.Label.Padding, p.Y.Label.Padding = 6, 6
	for _, s := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		*s = styled(*s, 11, grey(0x33))
	}
	p.Title.TextStyle.Font.Size = 14
	p.Title.TextStyle.Font.Weight = 2
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = grey(0xaa), grey(0xaa)
		a.Padding = 0
	}
	return p
}

// styled returns a text style in the font of the plots.
func styled(s text.Style, size font.Length, c color.Color) text.Style {
	s.Font.Typeface, s.Font.Variant, s.Font.Size, s.Color = "Liberation", "Sans", size, c
	return s
}

// label writes a text that begins dx to the right of a point, or ends there if dx is negative.
func label(p *plot.Plot, x, y float64, words string, dx vg.Length, c color.Color) {
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{words}})
	if err != nil {
		panic(err) // only for points that are not numbers
	}
	l.TextStyle[0] = styled(l.TextStyle[0], 10, c)
	l.TextStyle[0].YAlign = text.YCenter
	if dx < 0 {
		l.TextStyle[0].XAlign = text.XRight
	}
	l.Offset = vg.Point{X: dx, Y: 1} // a line of figures and small letters looks too low in the middle
	p.Add(l)
}

// rows puts names on the vertical axis, the first on top, and draws a line across the plot under each.
func rows(p *plot.Plot, names []string) {
	ticks := make(plot.ConstantTicks, len(names))
	for i, name := range names {
		ticks[i] = plot.Tick{Value: -float64(i), Label: name}
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length = 5
	p.Y.Tick.LineStyle.Color = color.Transparent
	p.Y.LineStyle.Width = 0
	p.Y.Min, p.Y.Max = 0.5-float64(len(names)), 0.5
}

// upright draws a vertical line at x.
func upright(p *plot.Plot, x float64, c color.Color, width vg.Length, dashes ...vg.Length) {
	l := &plotter.Line{
		XYs:       plotter.XYs{{X: x, Y: p.Y.Min}, {X: x, Y: p.Y.Max}},
		LineStyle: draw.LineStyle{Color: c, Width: width, Dashes: dashes},
	}
	p.Add(l)
}

// bar draws a horizontal bar.
func bar(p *plot.Plot, from, to, y, height float64, c color.Color) {
	b, err := plotter.NewPolygon(plotter.XYs{
		{X: from, Y: y - height/2}, {X: to, Y: y - height/2}, {X: to, Y: y + height/2}, {X: from, Y: y + height/2},
	})
	if err != nil {
		panic(err) // only for points that are not numbers
	}
	b.Color = c
	b.LineStyle.Width = 0
	p.Add(b)
}

// dot draws a point.
func dot(p *plot.Plot, x, y float64, radius vg.Length, c color.Color) {
	p.Add(&plotter.Scatter{
		XYs:        plotter.XYs{{X: x, Y: y}},
		GlyphStyle: draw.GlyphStyle{Color: c, Radius: radius, Shape: draw.CircleGlyph{}},
	})
}

// ring draws an open point, in grey.
func ring(p *plot.Plot, x, y float64) {
	p.Add(&plotter.Scatter{
		XYs:        plotter.XYs{{X: x, Y: y}},
		GlyphStyle: draw.GlyphStyle{Color: grey(0x88), Radius: 4, Shape: draw.RingGlyph{}},
	})
}
