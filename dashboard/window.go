// SPDX-License-Identifier: MIT

package dashboard

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// A window covers the last minute in windowParts parts of length windowPart. The last part is still in progress.
	windowParts = 6
	windowPart  = 10 * time.Second

	// maxMicros is the largest value of a histogram: one day, in microseconds.
	maxMicros = int64(24 * time.Hour / time.Microsecond)
)

// A window holds histograms of the last minute. The zero value is empty and allocates nothing.
type window struct {
	of   []*hdr.WindowedHistogram
	part time.Time // when the current part began
}

// begin allocates n histograms with the given number of significant digits, unless they already exist.
func (w *window) begin(n, digits int, now time.Time) {
	if w.of != nil {
		return
	}
	w.part = now
	for range n {
		w.of = append(w.of, hdr.NewWindowed(windowParts, 1, maxMicros, digits))
	}
}

// rotate starts new parts until the last part contains now.
func (w *window) rotate(now time.Time) {
	for n := 0; now.Sub(w.part) >= windowPart; n++ {
		if n == windowParts { // nothing was recorded for more than a minute
			w.part = now
			break
		}
		w.part = w.part.Add(windowPart)
		for _, h := range w.of {
			h.Rotate()
		}
	}
}

// record adds one duration to each histogram.
func (w *window) record(ds ...time.Duration) {
	for i, d := range ds {
		// RecordValue fails only for values out of range, and this value is in range.
		_ = w.of[i].Current.RecordValue(min(max(d.Microseconds(), 0), maxMicros))
	}
}

// quantiles returns the quantiles of histogram i, and the number of values in it.
func (w *window) quantiles(i int) (q quantilesJSON, n int64) {
	h := w.of[i].Merge()
	s := func(micros int64) float64 { return float64(micros) / 1e6 }
	at := h.ValueAtPercentilesSlice([]float64{50, 99})
	return quantilesJSON{P50: s(at[0]), P99: s(at[1]), Max: s(h.Max())}, h.TotalCount()
}
