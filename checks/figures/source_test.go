// SPDX-License-Identifier: MIT

package figures

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A source is a file that a benchmark has written, or another file with a figure.
type source struct{ name, text string }

func readSource(root, name string) (source, error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	return source{name, string(text)}, err
}

// A value is a number of a source, or NaN if the source does not have it.
type value struct {
	n    float64
	from string // the source, and the place in it
}

// section returns the text between a heading and the next one.
func (s source) section(title string) string {
	_, rest, found := strings.Cut(s.text, "# "+title+"\n")
	if !found {
		return ""
	}
	text, _, _ := strings.Cut(rest, "\n#")
	return text
}

// cell returns the number in the first table of a section, in the row of a peer and the column of a title.
func (s source) cell(title, peer, column string) value { return s.right(title, peer, column, 0) }

// ratio returns the number to the right of that cell.
func (s source) ratio(title, peer, column string) value {
	v := s.right(title, peer, column, 1)
	v.from += ", ratio"
	return v
}

// right returns the number some columns to the right of a title, which must be unique.
func (s source) right(title, peer, column string, by int) value {
	v := value{math.NaN(), strings.Join([]string{s.name, title, peer, column}, ": ")}
	var head []string
	for line := range strings.Lines(s.section(title)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range row {
			row[i] = strings.Trim(row[i], " *")
		}
		if head == nil {
			head = row
		}
		at := slices.Index(head, column)
		if at >= 0 && slices.Contains(head[at+1:], column) { // it might be the other
			return v
		}
		if at >= 0 && row[0] == peer && at+by < len(row) {
			v.n = parse(row[at+by])
		}
	}
	return v
}

// find returns the number in the place of # in a text.
func (s source) find(text string) value {
	v := value{math.NaN(), s.name + ": " + text}
	if found := pattern(text).FindStringSubmatch(s.text); found != nil {
		v.n = parse(found[1])
	}
	return v
}

// isWhole reports whether a source was written by a run of all cases, in three rounds or more, and names its date and
// commit.
func (s source) isWhole() bool {
	head, _, _ := strings.Cut(s.text, "\n## ")
	has := func(pattern string) bool { return regexp.MustCompile(`(?m)` + pattern).MatchString(head) }
	return s.find("- Rounds: #").n >= 3 && has(`^- Date: \d{4}-\d\d-\d\d`) && has(`(?i)\brevision:? [0-9a-f]{7,}(,? |\n)`) &&
		has(`^- Command: .cd bench.*-out [\w.]+.$`) && !has(`-(quick|cases?|peers)\b`) && !strings.Contains(head, "not committed")
}

func parse(text string) float64 {
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

func (v value) minus(n float64) value {
	return value{v.n - n, fmt.Sprintf("%s, minus %g", v.from, n)}
}

func (v value) over(w value) value { return value{v.n / w.n, v.from + ", divided by " + w.from} }

func (v value) per(n float64) value {
	return value{v.n / n, fmt.Sprintf("%s, divided by %g", v.from, n)}
}

// A figure is a value as written in prose, or empty if the source does not have it.
type figure struct{ want, from string }

func (v value) figure(text string) figure {
	if math.IsNaN(v.n) {
		text = ""
	}
	return figure{text, v.from}
}

// whole writes a value without decimals.
func (v value) whole() figure { return v.digits(0) }

// digits writes a value with n decimals.
func (v value) digits(n int) figure {
	text := strconv.FormatFloat(v.n, 'f', n, 64)
	for i := len(regexp.MustCompile(`^-?\d*`).FindString(text)) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return v.figure(text)
}

// about writes a value with n significant digits.
func (v value) about(n int) figure {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v.n, 'e', n-1, 64), 64)
	after := max(n-1-int(math.Floor(math.Log10(max(math.Abs(rounded), 1e-9)))), 0)
	return value{rounded, v.from}.digits(after)
}

// saved writes the difference between one and a ratio, in percent.
func (v value) saved() figure { return v.figure(value{100 * (1 - v.n), ""}.whole().want) }

// count writes a value without decimals, and zero as a word.
func (v value) count() figure {
	if v.n == 0 {
		return v.figure("none")
	}
	return v.whole()
}

var counts = []string{"One", "Two", "Three", "Four", "Five", "Six", "Seven"}

// rounds writes a number of rounds as a word.
func (v value) rounds() figure {
	switch {
	case v.n == 1:
		return v.figure("One round")
	case v.n >= 2 && int(v.n) <= len(counts):
		return v.figure(counts[int(v.n)-1] + " rounds")
	}
	return v.whole()
}
