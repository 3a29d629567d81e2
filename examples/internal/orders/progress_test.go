// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"
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
	c.draw(status{settled: 1200, total: -1, live: 30})
	wrote("the total is not known", "1,200 settled, 30 held")
	c.draw(status{settled: 1500, total: 2000, live: 30})
	wrote("it is", "\x1b[2K\r", " 75% ███████████████░░░░░", "1,500 of 2,000 settled, 30 held")
	c.println("a complaint")
	wrote("a line", "\x1b[2K\ra complaint\n")
	c.draw(status{settled: 2000, total: 2000})
	wrote("all is settled", " 99% ", "2,000 of 2,000 settled, 0 held")
	c.clear()
	wrote("the end", "\x1b[2K\r")
	if c.bar != nil {
		t.Error("the bar is still there")
	}
	c.clear()
}

func TestConsole_withoutTerminal_drawsNothing(t *testing.T) {
	var text strings.Builder
	c := &console{w: &text}
	c.follow(nil, nil) // returns at once
	if text.Len() > 0 {
		t.Errorf("it wrote %q", text.String())
	}
}
