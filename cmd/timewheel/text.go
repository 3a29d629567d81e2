// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// quoteText returns a key, a kind or an error for display: unchanged if it is printable text, or else quoted as in Go.
// It also quotes text that begins with a quotation mark, so that unquoteText is the inverse.
func quoteText(s string) string {
	if s == "" || s[0] == '"' || strings.TrimSpace(s) != s || !utf8.ValidString(s) ||
		strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// unquoteText is the inverse of quoteText.
func unquoteText(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	text, err := strconv.Unquote(s)
	if err != nil {
		return "", usagef("%s begins with a quotation mark, and is not quoted text as in Go", s)
	}
	return text, nil
}

// count returns a number with its noun: "1 task", "1,204 tasks".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// number returns a number with commas.
func number(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// span formats a duration with at most two units: 350ms, 4m12s, 3h5m, 12d4h.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(big, small time.Duration, bigUnit, smallUnit string) string {
		s := strconv.FormatInt(int64(d/big), 10) + bigUnit
		if rest := d % big / small; rest > 0 {
			s += strconv.FormatInt(int64(rest), 10) + smallUnit
		}
		return s
	}
	switch {
	case d < time.Second:
		return d.Truncate(time.Millisecond).String()
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return two(time.Minute, time.Second, "m", "s")
	case d < day:
		return two(time.Hour, time.Minute, "h", "m")
	}
	return two(day, time.Hour, "d", "h")
}

// when formats an instant in the time zone of now, followed by its distance from now.
func when(t, now time.Time) string {
	return t.In(now.Location()).Format("2006-01-02 15:04:05 MST") + ", " + distance(t, now)
}

// narrow is the minimum width of a terminal, in columns, for tables with dates.
const narrow = 110

// when formats an instant for a table. On a narrow terminal, the result is only the distance from now.
func (p *program) when(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case p.width > 0 && p.width < narrow:
		return distance(t, p.now())
	}
	return when(t, p.now())
}

// distance formats the distance from now to t, such as "in 4m12s", "4m12s ago" or "now".
func distance(t, now time.Time) string {
	switch d := t.Sub(now); {
	case d >= time.Millisecond:
		return "in " + span(d)
	case d <= -time.Millisecond:
		return span(-d) + " ago"
	}
	return "now"
}

// cells returns the number of terminal columns that a text occupies.
func cells(s string) (n int) {
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

func cellsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut shortens a text to at most the given number of columns. An ellipsis replaces the omitted part.
func cut(s string, most int) string {
	if cells(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += cellsOf(r); n > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// A column describes one column of a table.
type column struct {
	title string
	right bool // right-aligned, for numbers
	least int  // minimum width to which the column may be cut; 0 if it must not be cut
}

// A table is output for people. On a terminal, each row fits on one line if possible.
type table struct {
	columns []column
	rows    [][]string
}

func (t *table) add(row ...string) { t.rows = append(t.rows, row) }

// drop removes a column.
func (t *table) drop(n int) {
	t.columns = slices.Delete(t.columns, n, n+1)
	for i := range t.rows {
		t.rows[i] = slices.Delete(t.rows[i], n, n+1)
	}
}

// write writes the table. If width is not 0, the lines have at most width columns where possible.
func (t *table) write(to io.Writer, width int) {
	widths := make([]int, len(t.columns))
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
		widths[i] = cells(c.title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], cells(row[i]))
		}
	}
	if width > 0 {
		t.fit(widths, width)
	}
	t.line(to, widths, titles)
	for _, row := range t.rows {
		t.line(to, widths, row)
	}
}

const gap = "  "

// fit narrows columns until the table fits, starting with the widest one that may be cut.
func (t *table) fit(widths []int, width int) {
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > width; total-- {
		widest := -1
		for i, c := range t.columns {
			if c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func (t *table) line(to io.Writer, widths []int, row []string) {
	var b strings.Builder
	for i, text := range row {
		text = cut(text, widths[i])
		pad := strings.Repeat(" ", widths[i]-cells(text))
		if i > 0 {
			b.WriteString(gap)
		}
		if t.columns[i].right {
			b.WriteString(pad + text)
		} else {
			b.WriteString(text + pad)
		}
	}
	fmt.Fprintln(to, strings.TrimRight(b.String(), " "))
}
