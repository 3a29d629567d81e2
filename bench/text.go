// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// unit is the unit in which a figure is written. It is part of the head of its column.
type unit string

const (
	nanoseconds  unit = "ns"
	microseconds unit = "µs" // of a figure in nanoseconds
	millis       unit = "ms"
	bytesEach    unit = "B"
	percent      unit = "% of a core"
	number       unit = ""
)

// format writes a figure with three significant digits.
func (u unit) format(v float64) string {
	if u == microseconds {
		v /= 1000
	}
	return digits(v)
}

// digits writes a number with three significant digits and commas.
func digits(v float64) string {
	size := math.Abs(v)
	switch {
	case size >= 99.95:
		return commas(int(math.Round(v)))
	case size >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// commas writes a number with a comma between thousands.
func commas(n int) string {
	if n < 0 {
		return "-" + commas(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", commas(n/1000), n%1000)
}

// count writes a round number in short form: 1k, 50k, 10M.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1_000 && n%1_000 == 0:
		return fmt.Sprintf("%dk", n/1_000)
	}
	return commas(n)
}

// table is a table of Markdown.
type table struct {
	head    []string
	rows    [][]string
	numbers bool // all columns but the first are of numbers
}

// String writes the table with columns of even width, so that it reads well as plain text too.
func (t table) String() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	t.line(&b, t.head, widths)
	for i, width := range widths {
		dashes := strings.Repeat("-", width+1)
		if t.numbers && i > 0 {
			b.WriteString("|" + dashes + ":")
			continue
		}
		b.WriteString("|:" + dashes)
	}
	b.WriteString("|\n")
	for _, row := range t.rows {
		t.line(&b, row, widths)
	}
	return b.String()
}

// line writes one row.
func (t table) line(b *strings.Builder, row []string, widths []int) {
	for i, cell := range row {
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if t.numbers && i > 0 {
			b.WriteString("| " + space + cell + " ")
			continue
		}
		b.WriteString("| " + cell + space + " ")
	}
	b.WriteString("|\n")
}
