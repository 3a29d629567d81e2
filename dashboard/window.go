// SPDX-License-Identifier: MIT

package dashboard

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// A window covers the last minute: windowParts parts, the last of which is not over.
	windowParts = 6
	windowPart  = 10 * time.Second

	// The histograms count in microseconds, from one up to a day.
	maxMicros = int64(24 * time.Hour / time.Microsecond)
)

// A window has histograms of the last minute. The zero value is empty, and takes no memory.
type window struct {
	of   []*hdr.WindowedHistogram
	part time.Time // when the present part began
}

// begin makes room for n histograms with that many significant digits, if there is none yet.
func (w *window) begin(n, digits int, now time.Time) {
	if w.of != nil {
		return
	}
	w.part = now
	for range n {
		w.of = append(w.of, hdr.NewWindowed(windowParts, 1, maxMicros, digits))
	}
}

// rotate begins new parts for the time that has passed.
func (w *window) rotate(now time.Time) {
	for n := 0; now.Sub(w.part) >= windowPart; n++ {
		if n == windowParts { // nothing ran for long
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
		// The only error is that of a value out of range, and this one is in range.
		_ = w.of[i].Current.RecordValue(min(max(d.Microseconds(), 0), maxMicros))
	}
}

// quantiles returns the quantiles of a histogram, and its number of values.
func (w *window) quantiles(i int) (q quantilesJSON, n int64) {
	h := w.of[i].Merge()
	s := func(micros int64) float64 { return float64(micros) / 1e6 }
	at := h.ValueAtPercentilesSlice([]float64{50, 99})
	return quantilesJSON{P50: s(at[0]), P99: s(at[1]), Max: s(h.Max())}, h.TotalCount()
}
