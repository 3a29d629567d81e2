// SPDX-License-Identifier: MIT

package orders

import (
	"reflect"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

func TestLateness_spread(t *testing.T) {
	l := newLateness()
	due := time.Now()
	run := func(late time.Duration, n int) {
		for range n {
			l.observe(timewheel.Run{Due: due, Started: due.Add(late)})
		}
	}
	run(0, 1)
	run(10*time.Microsecond, 2)
	run(10*time.Microsecond+1, 3) // more than 10 µs
	run(400*time.Microsecond, 90)
	run(time.Millisecond, 10)
	run(3*time.Millisecond, 4)
	got := l.spread()
	want := spread{
		runs: 110, p50: 400 * time.Microsecond, p99: 3 * time.Millisecond, max: 3 * time.Millisecond,
		bands: []band{
			{10 * time.Microsecond, 3},
			{20 * time.Microsecond, 3},
			{50 * time.Microsecond, 0},
			{100 * time.Microsecond, 0},
			{200 * time.Microsecond, 0},
			{500 * time.Microsecond, 90},
			{time.Millisecond, 10},
			{2 * time.Millisecond, 0},
			{5 * time.Millisecond, 4},
		},
	}
	// Three digits are kept, so 3 ms may become a few microseconds more.
	got.p99, got.max = got.p99.Round(10*time.Microsecond), got.max.Round(10*time.Microsecond)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLateness_extremes(t *testing.T) {
	l := newLateness()
	if got := l.spread(); got.runs != 0 || len(got.bands) != 0 {
		t.Errorf("of no run: %+v", got)
	}
	due := time.Now()
	l.observe(timewheel.Run{Due: due, Started: due.Add(-1)})
	l.observe(timewheel.Run{Due: due, Started: due.Add(time.Hour)})
	l.observe(timewheel.Run{Due: due, Started: due.Add(1000 * time.Hour)})
	got := l.spread()
	if got.runs != 3 || got.early != 1 {
		t.Errorf("got %d runs, %d of them early, want 3 and 1", got.runs, got.early)
	}
	if first, last := got.bands[0], got.bands[len(got.bands)-1]; first.runs != 1 || last.runs != 2 {
		t.Errorf("got %+v", got.bands)
	}
}
