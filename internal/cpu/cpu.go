// SPDX-License-Identifier: MIT

// Package cpu measures how long the goroutines of this process wait for a processor. The runtime counts these waits
// (runtime/metrics, /sched/latencies:seconds). They are long if the machine gives the process too little time, or if the
// process computes more than its processors can: its timers are then late by as much.
package cpu

import (
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// over is the least time over which the waits are taken.
	over = 5 * time.Second

	// A wait is long from most on, until it is shorter than least.
	most  = 100 * time.Millisecond
	least = 50 * time.Millisecond

	// fewest is how many waits tell something. Of fewer, a single one may have met a short stall of the machine.
	fewest = 1000
)

// A Watch measures the waits of this process. The zero value is ready to use.
type Watch struct {
	mu     sync.Mutex // protects the fields below
	at     time.Time  // of counts
	counts []uint64
	wait   time.Duration
}

// Wait returns how long goroutines wait for a processor, if that is long, and else 0. One wait in a hundred is longer. The
// waits are those since the last call that is at least five seconds old.
func (w *Watch) Wait() time.Duration {
	return w.read(time.Now(), func() (counts []uint64, bounds []float64) {
		sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
		if metrics.Read(sample); sample[0].Value.Kind() != metrics.KindFloat64Histogram {
			return nil, nil
		}
		h := sample[0].Value.Float64Histogram()
		return h.Counts, h.Buckets
	})
}

// read is Wait with the time, and a function that returns the counts so far, and the bounds of their buckets in seconds.
func (w *Watch) read(now time.Time, count func() (counts []uint64, bounds []float64)) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if age := now.Sub(w.at); w.counts != nil && age >= 0 && age < over {
		return w.wait
	}
	counts, bounds := count()
	before, again := w.counts, !now.Before(w.at)
	w.at, w.counts = now, counts
	if before == nil || !again || counts == nil {
		return w.wait
	}
	wait := quantile(before, counts, bounds)
	if w.wait > 0 && wait >= least || wait >= most {
		w.wait = wait
	} else {
		w.wait = 0
	}
	return w.wait
}

// quantile returns the lower bound of the bucket with the longest wait but for one in a hundred, of those counted since
// before.
func quantile(before, now []uint64, bounds []float64) time.Duration {
	all := uint64(0)
	for i, n := range now {
		all += n - before[i]
	}
	if all < fewest {
		return 0
	}
	for i, rest := len(now)-1, all/100; i > 0; i-- {
		n := now[i] - before[i]
		if n > rest {
			return time.Duration(bounds[i] * float64(time.Second))
		}
		rest -= n
	}
	return 0
}
