// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"slices"
	"time"
)

// measureCreate adds all timers at once and measures their cost: time, memory and the work of the garbage collector.
func measureCreate(w workload, open opener) (figures, error) {
	keys := makeKeys(w.Live)
	var early counter
	p, err := open(settings{tick: w.Tick, ids: len(keys), fire: early.fire})
	if err != nil {
		return nil, err
	}
	defer p.stop()

	before := readHeap()
	cpu, start := cpuTime(), time.Now()
	if err := populateBy(w.Producers[0], p, keys, 0, w.Live, w.Due); err != nil {
		return nil, err
	}
	wall := time.Since(start)
	time.Sleep(w.Watch) // a wheel may still be processing the new timers: that is part of the cost
	cpu = cpuTime() - cpu
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	mallocs := m.Mallocs
	after := readHeap()
	gcWall, gcCPU := collect()
	runtime.KeepAlive(keys)
	return figures{
		"wall_ms":    milliseconds(wall),
		"cpu_ms":     milliseconds(cpu),
		"heap_b":     (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(w.Live),
		"allocs":     float64(mallocs-before.Mallocs) / float64(w.Live),
		"gc_wall_ms": milliseconds(gcWall),
		"gc_cpu_ms":  milliseconds(gcCPU),
		"early":      float64(early.n.Load()),
	}, nil
}

// readHeap collects twice, so that memory held back by finalizers and sweeping is freed, and reads the rest.
func readHeap() runtime.MemStats {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m
}

// collect returns the cost of one collection with everything live: the medians of three.
func collect() (wall, cpu time.Duration) {
	const times = 3
	var walls, cpus []time.Duration
	for range times {
		c, start := cpuTime(), time.Now()
		runtime.GC()
		walls = append(walls, time.Since(start))
		cpus = append(cpus, cpuTime()-c)
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	return walls[times/2], cpus[times/2]
}
