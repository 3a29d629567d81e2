// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"runtime"
	"time"
)

// measureAdd times adding fresh timers while the live ones wait, with each number of producers. The added timers are
// removed before the next batch, outside the measured time.
func measureAdd(w workload, open opener) (figures, error) {
	var early counter
	p, keys, err := openLive(w, open, early.fire)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	out := figures{}
	for _, producers := range w.Producers {
		add, _, err := timeBatches(w, producers, p, keys)
		if err != nil {
			return nil, err
		}
		out[fmt.Sprintf("add_ns_%d", producers)] = add
	}
	out["early"] = float64(early.n.Load())
	return out, nil
}

// measureAddRemove times a stream in which each timer is removed some adds later: most timers of this kind never fire.
func measureAddRemove(w workload, open opener) (figures, error) {
	const behind = 1000 // adds between the add of a timer and its removal
	var early counter
	p, keys, err := openLive(w, open, early.fire)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	distance := min(behind, w.Fresh/2)
	id := func(i int) int { return w.Live + i%w.Fresh }
	if err := populate(p, keys, w.Live, w.Live+distance, w.Due); err != nil {
		return nil, err
	}
	cpu, start := cpuTime(), time.Now()
	for i := distance; i < distance+w.Operations; i++ {
		if err := p.add(id(i), keys[id(i)], w.Due); err != nil {
			return nil, err
		}
		if err := p.remove(id(i-distance), keys[id(i-distance)]); err != nil {
			return nil, err
		}
	}
	wall, cpu := time.Since(start), cpuTime()-cpu
	return figures{
		"pair_ns":     perOperation(wall, w.Operations),
		"pair_cpu_ns": perOperation(cpu, w.Operations),
		"early":       float64(early.n.Load()),
	}, nil
}

// measureReschedule times moving live timers to one and a half times their delay and back, in a different order than
// that of the adds. Then some are moved to be due within a second, to check when they really run.
func measureReschedule(w workload, open opener) (figures, error) {
	r := newRecorder(w.Live)
	p, keys, err := openLive(w, open, r.fire)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	delays := [2]time.Duration{w.Due + w.Due/2, w.Due}
	cpu, start := cpuTime(), time.Now()
	for i, id := 0, 0; i < w.Operations; i++ {
		if err := p.reschedule(keys[id], delays[i/w.Live%2]); err != nil {
			return nil, err
		}
		if id += stride; id >= w.Live {
			id %= w.Live
		}
	}
	wall, cpu := time.Since(start), cpuTime()-cpu

	from := r.now() + w.Lead
	for id := range w.Fresh {
		d := r.expect(id, from+spread(id, w.Window), w.Tick)
		if err := p.reschedule(keys[id], d); err != nil {
			return nil, err
		}
	}
	r.wait(from + w.Window + w.Grace)
	l := r.lateness()
	return figures{
		"move_ns":     perOperation(wall, w.Operations),
		"move_cpu_ns": perOperation(cpu, w.Operations),
		"first_ms":    milliseconds(l.first),
		"last_ms":     milliseconds(l.last),
		"early":       float64(l.early),
		"lost":        float64(l.lost),
	}, nil
}

// openLive opens a peer and starts the timers that stay live. It also makes keys for the fresh ones.
func openLive(w workload, open opener, fire func(key string)) (peer, []string, error) {
	keys := makeKeys(w.Live + w.Fresh)
	p, err := open(settings{tick: w.Tick, ids: len(keys), fire: fire})
	if err != nil {
		return nil, nil, err
	}
	if err := populate(p, keys, 0, w.Live, w.Due); err != nil {
		return nil, nil, err
	}
	runtime.GC()
	return p, keys, nil
}

// timeBatches adds and removes the fresh timers repeatedly and returns the average time of each verb in nanoseconds.
// The first batch is not counted.
func timeBatches(w workload, producers int, p peer, keys []string) (add, remove float64, err error) {
	from, to := w.Live, w.Live+w.Fresh
	batches := max(1, w.Operations/w.Fresh)
	var adding, removing time.Duration
	for batch := range 1 + batches {
		start := time.Now()
		if err := populateBy(producers, p, keys, from, to, w.Due); err != nil {
			return 0, 0, err
		}
		added := time.Now()
		if err := clearOut(p, keys, from, to); err != nil {
			return 0, 0, err
		}
		if batch > 0 {
			adding += added.Sub(start)
			removing += time.Since(added)
		}
	}
	return perOperation(adding, batches*w.Fresh), perOperation(removing, batches*w.Fresh), nil
}

// spread returns when in the window the timer of the id is due. The times are spread evenly over the window, and not in
// the order of ids.
func spread(id int, window time.Duration) time.Duration {
	const golden = 0x9e3779b97f4a7c15
	share := float64(uint64(id+1)*golden>>11) / (1 << 53)
	return time.Duration(share * float64(window))
}
