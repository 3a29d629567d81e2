// SPDX-License-Identifier: MIT

package main

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// measureIdle measures the processor time of a process in which timers wait and none is due.
func measureIdle(w workload, open opener) (figures, error) {
	var early counter
	p, _, err := openLive(w, open, early.fire)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	settle(w)
	cpu := watch(w.Watch)
	const nominal = 10 * time.Second
	return figures{
		"idle_ms": milliseconds(cpu) * float64(nominal) / float64(w.Watch),
		"early":   float64(early.n.Load()),
	}, nil
}

// measureScale times the verbs and the ticks with a number of live timers that grows from case to case. A tick is
// measured twice: with nothing to do, when a wheel may rest; and with one timer that restarts itself each time it
// fires, so that a wheel has to wake up at every tick.
func measureScale(w workload, open opener) (figures, error) {
	b := beat{id: w.Live, tick: w.Tick}
	p, keys, err := openLive(w, open, b.fire)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	add, remove, err := timeBatches(w, 1, p, keys)
	if err != nil {
		return nil, err
	}
	settle(w)
	ticks := float64(w.Watch) / float64(w.Tick)
	out := figures{"add_ns": add, "remove_ns": remove, "quiet_ns": float64(watch(w.Watch)) / ticks}

	b.peer = p
	if err := p.add(b.id, keys[b.id], b.tick); err != nil {
		return nil, err
	}
	cpu := watch(w.Watch)
	b.ended.Store(true)
	out["beat_ns"] = float64(cpu) / ticks
	out["beats"] = float64(b.runs.Load()) / ticks
	out["early"] = float64(b.early.Load())
	return out, nil
}

// beat is a timer that restarts itself each time it fires.
type beat struct {
	id   int
	tick time.Duration
	peer peer // set before the timer is first started

	ended atomic.Bool
	runs  atomic.Int64
	early atomic.Int64 // runs of other timers
}

func (b *beat) fire(key string) {
	if idOf(key) != b.id {
		b.early.Add(1)
		return
	}
	b.runs.Add(1)
	if b.ended.Load() {
		return
	}
	if err := b.peer.add(b.id, key, b.tick); err != nil {
		panic("the beat could not be set again: " + err.Error())
	}
}

// settle waits for the end of work that would disturb the quiet. It returns the memory of the setup at once, which the
// runtime would otherwise do bit by bit.
func settle(w workload) {
	debug.FreeOSMemory()
	time.Sleep(min(w.Watch/4, time.Second))
}

// watch returns the processor time that the process uses during d.
func watch(d time.Duration) time.Duration {
	cpu := cpuTime()
	time.Sleep(d)
	return cpuTime() - cpu
}
