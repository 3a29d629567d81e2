// SPDX-License-Identifier: MIT

package orders

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestConsole_barAndLines_keepApart(t *testing.T) {
	var text strings.Builder
	c := &console{w: &text}
	wrote := func(what string, want ...string) {
		t.Helper()
		for _, part := range want {
			if !strings.Contains(text.String(), part) {
				t.Errorf("%s: %q has no %q", what, text.String(), part)
			}
		}
		text.Reset()
	}
	c.println("before")
	if text.String() != "before\n" {
		t.Errorf("without a bar a line is %q", text.String())
	}
	text.Reset()
	c.draw(status{settled: 1200, total: -1, live: 30}, 80)
	wrote("the total is not known", "1,200 settled, 30 held")
	c.draw(status{settled: 1500, total: 2000, live: 30}, 80)
	wrote("it is", "\r\x1b[2K", " 75 % ███████████████░░░░░ 1,500 of 2,000 settled, 30 held")
	c.println("a complaint")
	wrote("a line", "\r\x1b[2Ka complaint\n")
	c.draw(status{settled: 2000, total: 2000}, 80)
	wrote("all is settled", " 99 % ", "2,000 of 2,000 settled, 0 held")
	c.clear()
	wrote("the end", "\r\x1b[2K")
	c.clear()
	if text.Len() > 0 {
		t.Errorf("a bar that is gone is cleared with %q", text.String())
	}
}

// A line that is as wide as the terminal, or wider, would be broken, and each drawing would leave a line behind.
func TestStatus_line_isShorterThanTheTerminalIsWide(t *testing.T) {
	for columns := 1; columns <= 200; columns++ {
		for _, s := range []status{
			{settled: 123_456, total: -1, live: 23_456},
			{settled: 0, total: 1_000_000, live: 0},
			{settled: 123_456, total: 1_000_000, live: 535_468},
			{settled: 1_000_000_000, total: 999_999_999, live: 535_468_000},
		} {
			line := s.line(columns)
			if n := utf8.RuneCountInString(line); n >= max(columns, 2) || strings.ContainsAny(line, "\r\n") {
				t.Fatalf("at %d columns the line has %d: %q", columns, n, line)
			}
			if columns >= 60 && s.live < 1_000_000 && (!strings.Contains(line, thousands(s.live)+" held") || strings.Contains(line, "…")) {
				t.Errorf("at %d columns something is missing: %q", columns, line)
			}
		}
	}
	const want = " 12 % █░░░░░░░░░░░░░░░ 123,456 of 1,000,000 settled, 5 held"
	if got := (status{settled: 123_456, total: 1_000_000, live: 5}).line(60); got != want {
		t.Errorf("at 60 columns\n%q, want\n%q", got, want)
	}
}

func TestConsole_withoutTerminal_drawsNothing(t *testing.T) {
	var text strings.Builder
	c := &console{w: &text}
	c.follow(nil, nil) // returns at once
	if text.Len() > 0 {
		t.Errorf("it wrote %q", text.String())
	}
}
