// SPDX-License-Identifier: MIT

package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// workload is the amount of work of a case. Each case reads the fields that it needs.
type workload struct {
	Live       int // timers that are live during the measurement
	Fresh      int // timers that are added and removed on top of them
	Operations int // approximate number of calls of the measured verb
	Producers  []int

	Tick   time.Duration // of the wheels
	Due    time.Duration // delay of the timers that must not fire
	Lead   time.Duration // from the start to the first instant at which a timer is due
	Window time.Duration // over which the due instants are spread
	Grace  time.Duration // after the window, until a timer that has not run is lost
	Watch  time.Duration // time in which only the processor time is measured
}

// stride is a prime. Steps of that size visit all ids in a different order than that of the adds.
const stride = 7919

// opener opens the measured peer.
type opener func(s settings) (peer, error)

// figures are the results of one child process, by name.
type figures map[string]float64

// counter counts the runs of timers that are not due during the case.
type counter struct {
	n atomic.Int64
}

func (c *counter) fire(string) { c.n.Add(1) }

// populate starts a timer for every id from from to to, exclusive.
func populate(p peer, keys []string, from, to int, d time.Duration) error {
	for id := from; id < to; id++ {
		if err := p.add(id, keys[id], d); err != nil {
			return err
		}
	}
	return nil
}

// clearOut ends the timers of the ids from from to to, exclusive.
func clearOut(p peer, keys []string, from, to int) error {
	for id := from; id < to; id++ {
		if err := p.remove(id, keys[id]); err != nil {
			return err
		}
	}
	return nil
}

// populateBy is populate with the ids divided among several goroutines.
func populateBy(producers int, p peer, keys []string, from, to int, d time.Duration) error {
	if producers == 1 {
		return populate(p, keys, from, to, d)
	}
	var wg sync.WaitGroup
	errs := make([]error, producers)
	n := to - from
	for i := range producers {
		wg.Go(func() { errs[i] = populate(p, keys, from+i*n/producers, from+(i+1)*n/producers, d) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// perOperation is a duration divided by a number of operations, in nanoseconds.
func perOperation(d time.Duration, n int) float64 { return float64(d) / float64(n) }

// milliseconds is a duration in milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
