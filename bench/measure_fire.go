// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"time"
)

// measureFire starts timers that fall due within one window, or at one instant when the window is zero, and
// notes when each runs.
func measureFire(w workload, open opener) (figures, error) {
	keys := makeKeys(w.Live)
	r := newRecorder(w.Live)
	p, err := open(settings{tick: w.Tick, ids: len(keys), fire: r.fire})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	runtime.GC()

	from := r.now() + w.Lead
	cpu := cpuTime()
	for id, key := range keys {
		d := r.expect(id, from+spread(id, w.Window), w.Tick)
		if err := p.add(id, key, d); err != nil {
			return nil, err
		}
	}
	added := r.now()
	time.Sleep(from + w.Window - r.now())
	r.wait(from + w.Window + w.Grace)
	cpu = cpuTime() - cpu

	l := r.lateness()
	return figures{
		"cpu_ms":   milliseconds(cpu),
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
