// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"slices"
	"time"
)

// probes is the number of single timers that find the ticks of a peer.
const probes = 30

// measureFire starts timers that fall due within one window, or at one instant if the window is zero, and records when
// each runs.
func measureFire(w workload, open opener) (figures, error) {
	keys := makeKeys(w.Live + probes)
	r := newRecorder(w.Live)
	probed := make(chan time.Duration, 1)
	fire := func(key string) {
		if idOf(key) < w.Live {
			r.fire(key)
			return
		}
		probed <- r.now()
	}
	p, err := open(settings{tick: w.Tick, ids: len(keys), fire: fire})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	var ticks []time.Duration
	if w.Window == 0 {
		for id := w.Live; id < len(keys); id++ {
			if err := p.add(id, keys[id], w.Tick/10); err != nil {
				return nil, err
			}
			ticks = append(ticks, <-probed)
		}
	}
	runtime.GC()

	from := r.now() + w.Lead
	cpu := cpuTime()
	for id, key := range keys[:w.Live] {
		d := r.expect(id, from+spread(id, w.Window), w.Tick)
		if err := p.add(id, key, d); err != nil {
			return nil, err
		}
	}
	added, addCPU := r.now(), cpuTime()
	time.Sleep(from + w.Window - r.now())
	r.wait(from + w.Window + w.Grace)
	end := cpuTime()

	l := r.lateness()
	return figures{
		"cpu_ms":   milliseconds(end - cpu),
		"fire_ms":  milliseconds(end - addCPU),
		"tick_ms":  milliseconds(l.first - untilTick(from, ticks, w.Tick)),
		"add_ms":   milliseconds(added - from + w.Lead),
		"first_ms": milliseconds(l.first),
		"p50_ms":   milliseconds(l.p50),
		"p99_ms":   milliseconds(l.p99),
		"last_ms":  milliseconds(l.last),
		"span_ms":  milliseconds(l.last - min(l.first, 0)),
		"early":    float64(l.early),
		"lost":     float64(l.lost),
		"again":    float64(l.again),
	}, nil
}

// untilTick returns the time from the instant to the next tick, given instants shortly after ticks. It returns 0 for a
// peer without ticks, whose timers do not fire on a grid.
func untilTick(instant time.Duration, after []time.Duration, tick time.Duration) time.Duration {
	if len(after) == 0 {
		return 0
	}
	// The offset of each one within its tick relative to the first, starting at -tick/2.
	var offsets []time.Duration
	for _, at := range after {
		offsets = append(offsets, (at-after[0]+tick*probes*100+tick/2)%tick-tick/2)
	}
	slices.Sort(offsets)
	if offsets[len(offsets)/2]-offsets[0] > tick/10 {
		return 0
	}
	phase := after[0] + offsets[0]
	return tick - (instant-phase+tick*1_000_000)%tick
}
