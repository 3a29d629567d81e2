package test

import (
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// These run in real time. How late a run is depends on the machine; that it is not early does not.

func TestAccuracy_inRealTime_neverEarly(t *testing.T) {
	if testing.Short() {
		t.Skip("takes real time")
	}
	for _, tick := range []time.Duration{100 * time.Microsecond, ms, 7 * ms, 50 * ms} {
		tw := startWheel(t, tick, 32)
		random := seeded()
		const n = 500
		early := make(chan time.Duration, n)
		for range n {
			d := time.Duration(random.Int64N(int64(150 * ms)))
			start := time.Now()
			tw.AfterFunc(d, func() { early <- d - time.Since(start) })
		}
		for range n {
			select {
			case e := <-early:
				if e > 0 {
					t.Errorf("tick %v: a run began %v early", tick, e)
				}
			case <-time.After(time.Minute):
				t.Fatalf("tick %v: not all of %d tasks have run within a minute", tick, n)
			}
		}
		balanced(t, tw, n)
	}
}

func TestAccuracy_inRealTime_repeatsKeepTheirGrid(t *testing.T) {
	if testing.Short() {
		t.Skip("takes real time")
	}
	const interval, n = 7 * ms, 30
	runs := make(chan timewheel.Run, n)
	tw := startWheel(t, 2*ms, 16, timewheel.WithObserver(func(r timewheel.Run) { runs <- r }))
	start := time.Now()
	must(t, tw.AddTask(times("k", interval, n, nothing)))
	latest := time.Now()
	var first time.Time
	for k := range n {
		r := <-runs
		if k == 0 {
			first = r.Due
			if first.Before(start.Add(interval)) || first.After(latest.Add(interval)) {
				t.Errorf("the first run was due %v after AddTask", first.Sub(start))
			}
		}
		// The order of the accounts may differ from that of the runs, and a stalled machine misses periods.
		if off := r.Due.Sub(first) % interval; off != 0 || r.Started.Before(r.Due) || r.Handed.Before(r.Due) {
			t.Errorf("%v off the grid; due %v, handed %v, started %v", off, r.Due, r.Handed, r.Started)
		}
	}
	tw.Stop()
	balanced(t, tw, 1)
}
