// SPDX-License-Identifier: MIT

package cpu

import (
	"testing"
	"time"
)

func TestWatch_read(t *testing.T) {
	bounds := []float64{0, 0.001, 0.05, 0.1, 0.3}
	type step struct {
		at     time.Duration
		counts []uint64
		want   time.Duration
	}
	for name, steps := range map[string][]step{
		"short waits":               {{0, []uint64{9, 0, 0, 0}, 0}, {5 * time.Second, []uint64{9000, 999, 0, 0}, 0}},
		"one in a hundred is long":  {{0, []uint64{0, 0, 0, 0}, 0}, {5 * time.Second, []uint64{990, 0, 0, 10}, 0}},
		"two in a hundred are long": {{0, []uint64{0, 0, 0, 0}, 0}, {5 * time.Second, []uint64{980, 0, 0, 20}, 100 * time.Millisecond}},
		"too few of them":           {{0, []uint64{0, 0, 0, 0}, 0}, {5 * time.Second, []uint64{0, 0, 0, 999}, 0}},
		"no wait":                   {{0, []uint64{0, 0, 0, 9000}, 0}, {5 * time.Second, []uint64{0, 0, 0, 9000}, 0}},
		"it is too early to say":    {{0, []uint64{0, 0, 0, 0}, 0}, {4999 * time.Millisecond, []uint64{0, 0, 0, 9000}, 0}},
		"it stays long until it is short": {{0, []uint64{0, 0, 0, 0}, 0}, {5 * time.Second, []uint64{0, 0, 0, 9000}, 100 * time.Millisecond},
			{8 * time.Second, []uint64{9900, 0, 0, 9000}, 100 * time.Millisecond}, {10 * time.Second, []uint64{9900, 0, 900, 9000}, 50 * time.Millisecond},
			{15 * time.Second, []uint64{9900, 9000, 900, 9000}, 0}, {20 * time.Second, []uint64{9900, 9000, 9900, 9000}, 0}},
		"the clock was set back": {{time.Hour, []uint64{0, 0, 0, 0}, 0}, {0, []uint64{0, 0, 0, 9000}, 0},
			{5 * time.Second, []uint64{0, 0, 0, 19000}, 100 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			var w Watch
			for _, s := range steps {
				if got := w.read(time.Unix(0, int64(s.at)), func() ([]uint64, []float64) { return s.counts, bounds }); got != s.want {
					t.Errorf("after %v it is %v, want %v", s.at, got, s.want)
				}
			}
		})
	}
}

// The runtime has the histogram.
func TestWatch_Wait(t *testing.T) {
	var w Watch
	if w.Wait(); w.counts == nil {
		t.Error("the runtime does not count waits")
	}
}
