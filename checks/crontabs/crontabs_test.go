// SPDX-License-Identifier: MIT

// Package crontabs compares the calendars of package durable with robfig/cron. Programs that move from one to the other
// need to know where they differ.
package crontabs

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed581295f1/timewheel/durable"
)

// The third cell of each row says how robfig/cron differs.
func TestExpressions_asRobfigCron(t *testing.T) {
	text, err := os.ReadFile("../../durable/internal/task/testdata/crontabs.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows, differing := 0, 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := append(strings.Split(line, " | "), "", "")
		if got := difference(cells[0]); got != cells[2] {
			t.Errorf("%q: robfig/cron %q, want %q", cells[0], got, cells[2])
		}
		if rows++; cells[2] != "" {
			differing++
		}
	}
	if rows < 600 || differing < 50 {
		t.Errorf("%d rows, %d of which differ", rows, differing)
	}
}

// difference says how robfig/cron differs for an expression.
func difference(spec string) string {
	_, here := durable.Next(spec, time.Unix(0, 0), 1)
	schedule, there := cron.ParseStandard(spec)
	switch {
	case here == nil && there != nil:
		return "refuses"
	case here != nil && there == nil:
		return "accepts"
	case here != nil:
		return ""
	}
	for _, date := range []string{"2026-01-01", "2027-02-28", "2028-02-28"} {
		from, _ := time.Parse(time.DateOnly, date)
		times, _ := durable.Next(spec, from, 100)
		for _, at := range times {
			if from = schedule.Next(from); !from.Equal(at) {
				return "other times"
			}
		}
	}
	return ""
}
