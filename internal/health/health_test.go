// SPDX-License-Identifier: MIT

package health

import (
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// at returns a reading of a running wheel, taken the given time before noon.
func at(ago time.Duration, s timewheel.Stats) Reading {
	return Reading{Time: noon.Add(-ago), Running: true, Stats: s}
}

func TestJudge(t *testing.T) {
	type stats = timewheel.Stats
	const s, m = time.Second, time.Minute
	stuck := func(ago time.Duration) Reading { // since 41 s before noon
		return at(ago, stats{Workers: 8, Running: 8, Waiting: 492, Started: 8, OldestWait: 41*s - ago})
	}
	still := func(ago time.Duration, st stats) Reading {
		return Reading{Time: noon.Add(-ago), Stats: st}
	}
	for _, c := range []struct {
		name string
		now  Reading
		past []Reading
		want []Finding
	}{
		{"nothing", at(0, stats{Workers: 8}), nil, nil},
		{"a burst", at(0, stats{Workers: 8, Running: 8, Waiting: 1000, OldestWait: s - 1}), nil, nil},
		{"the incident", stuck(0), nil, []Finding{{Overloaded, noon.Add(-41 * s),
			"Overloaded for 41 s: 8 of 8 workers busy, 492 runs wait, the oldest for 41 s"}}},
		{"the incident, read before", stuck(0), []Reading{at(45*s, stats{Started: 8}), stuck(40 * s), stuck(35 * s), stuck(5 * s)},
			[]Finding{{Overloaded, noon.Add(-41 * s), "Overloaded for 41 s: 8 of 8 workers busy, 492 runs wait, the oldest for 41 s; " +
				"none has started for 40 s"}}},
		{"a backlog that moves", at(0, stats{Workers: 1, Running: 1, Waiting: 1, Started: 100, OldestWait: 2 * s}), []Reading{
			at(30*s, stats{Waiting: 9, Started: 10, OldestWait: 9 * s}), // another backlog
			at(25*s, stats{Waiting: 0, Started: 20}),
			at(20*s, stats{Waiting: 5, Started: 30, OldestWait: s}),
			at(10*s, stats{Waiting: 5, Started: 60, OldestWait: 3 * s}),
		}, []Finding{{Overloaded, noon.Add(-21 * s), "Overloaded for 21 s: 1 of 1 worker busy, 1 run waits, the oldest for 2 s"}}},
		{"an executor", at(0, stats{Running: 3, Waiting: 2, OldestWait: 90 * s}), nil, []Finding{{Overloaded, noon.Add(-90 * s),
			"Overloaded for 1 m 30 s: 3 runs in progress, 2 runs wait, the oldest for 1 m 30 s"}}},
		{"it is over", at(0, stats{}), []Reading{stuck(5 * s)}, nil},

		{"not started", still(0, stats{Pending: 1204}), []Reading{still(m, stats{})}, []Finding{{Stopped, noon.Add(-m), "Not started: 1,204 tasks will not run"}}},
		{"not started, empty", still(0, stats{}), nil, []Finding{{Stopped, time.Time{}, "Not started"}}},
		{"stopped before the first reading", still(0, stats{Due: 1, Pending: 1}), []Reading{still(m, stats{Due: 1})},
			[]Finding{{Stopped, time.Time{}, "Stopped: 1 task will not run"}}},
		{"stopped just now", still(0, stats{Due: 1}), []Reading{at(s, stats{Due: 1})}, []Finding{{Stopped, time.Time{}, "Stopped"}}},
		{"stopped a while ago", still(0, stats{}), []Reading{at(2*m, stats{}), still(m+5*s, stats{}), still(m, stats{})},
			[]Finding{{Stopped, noon.Add(-m - 5*s), "Stopped for 1 m 5 s"}}},
		{"stopped with a backlog", still(0, stats{Due: 9, Waiting: 9, OldestWait: m}), nil, []Finding{{Stopped, time.Time{}, "Stopped"}}},

		{"missed before the first reading", at(0, stats{Missed: 7}), []Reading{at(m, stats{Missed: 7})}, nil},
		{"missed just now", at(0, stats{Missed: 1}), []Reading{at(m, stats{})}, []Finding{{Missed, noon,
			"1 run missed in the last 5 m, the latest just now"}}},
		{"missed twice", at(0, stats{Missed: 2007}), []Reading{at(10*m, stats{}), at(6*m, stats{Missed: 5}), at(4*m, stats{Missed: 5}),
			at(3*m, stats{Missed: 6}), at(2*m, stats{Missed: 6}), at(m, stats{Missed: 2007})},
			[]Finding{{Missed, noon.Add(-3 * m), "2,002 runs missed in the last 5 m, the latest 1 m ago"}}},
		{"missed long ago", at(0, stats{Missed: 5}), []Reading{at(10*m, stats{}), at(5*m+s, stats{Missed: 5}), at(m, stats{Missed: 5})}, nil},
		{"panicked, with the times", Reading{noon, true, stats{Panicked: 5}, []time.Time{noon.Add(-14 * s), noon.Add(-17 * s)}, 0},
			[]Reading{at(20*s, stats{Panicked: 3}), at(10*s, stats{Panicked: 5})},
			[]Finding{{Panicked, noon.Add(-17 * s), "2 jobs panicked in the last 5 m, the latest 14 s ago"}}},
		{"panicked, with some of the times", Reading{noon, true, stats{Panicked: 5}, []time.Time{noon.Add(-14 * s)}, 0},
			[]Reading{at(20*s, stats{Panicked: 3}), at(10*s, stats{Panicked: 5})},
			[]Finding{{Panicked, noon.Add(-10 * s), "2 jobs panicked in the last 5 m, the latest 14 s ago"}}},
		{"panicked long ago, with the times", Reading{noon, true, stats{Panicked: 5}, []time.Time{noon.Add(-14 * m)}, 0},
			[]Reading{at(20*m, stats{Panicked: 3}), at(10*m, stats{Panicked: 5}), at(s, stats{Panicked: 5})}, nil},
		{"all at once", at(0, stats{Missed: 1, Panicked: 3, Workers: 2, Running: 2, Waiting: 3, OldestWait: m}),
			[]Reading{at(20*s, stats{}), at(12*s, stats{Panicked: 3})}, []Finding{
				{Overloaded, noon.Add(-m), "Overloaded for 1 m: 2 of 2 workers busy, 3 runs wait, the oldest for 1 m; none has started for 20 s"},
				{Panicked, noon.Add(-12 * s), "3 jobs panicked in the last 5 m, the latest 12 s ago"},
				{Missed, noon, "1 run missed in the last 5 m, the latest just now"},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found(t, Judge(c.now, c.past), c.want)
		})
	}
}

// found fails the test unless the findings are the wanted ones, in the same order.
func found(t *testing.T, got, want []Finding) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("found %+v, want %+v", got, want)
	}
	for i, f := range got {
		if f.Kind != want[i].Kind || !f.Since.Equal(want[i].Since) || f.Text != want[i].Text {
			t.Errorf("finding %d is\n%+v, want\n%+v", i, f, want[i])
		}
	}
}

func TestWell(t *testing.T) {
	for want, s := range map[string]timewheel.Stats{
		"Working: 0 of 8 workers busy, no run has waited for 1 s":    {Workers: 8},
		"Working: 1 of 1 worker busy, no run has waited for 1 s":     {Workers: 1, Running: 1, Waiting: 1, OldestWait: TooLong - 1},
		"Working: 1,024 runs in progress, no run has waited for 1 s": {Running: 1024},
	} {
		if got := Well(at(0, s)); got != want {
			t.Errorf("%+v is %q, want %q", s, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		-1: "0 ms", 0: "0 ms", 999 * time.Millisecond: "999 ms", time.Second: "1 s", 41900 * time.Millisecond: "41 s",
		time.Minute: "1 m", 125 * time.Second: "2 m 5 s", time.Hour + 59*time.Second: "1 h", day + 2*time.Hour: "1 d 2 h", 2000 * day: "2,000 d",
	} {
		if got := Span(d); got != want || strings.TrimSpace(got) == "" {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 999: "999", 1204: "1,204", 136_494: "136,494", 9_999_999: "9,999,999", 12_345_678: "12.35 M", 10_000_000: "10 M",
		999_949_999: "999.9 M", 999_999_999: "1 G", 18e18: "18 E",
	} {
		if got := number(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
