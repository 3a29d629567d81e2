// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// cachePrefix begins the names of the cases that measure caches.
const cachePrefix = "cache-"

// cacheCase is one measurement of every cache.
type cacheCase struct {
	name    string
	measure func(w workload, open func(ttl time.Duration) (cacher, error)) (figures, error)
}

func cacheCases() []cacheCase {
	return []cacheCase{
		{cachePrefix + "set", measureCacheSet},
		{cachePrefix + "get", measureCacheGet},
		{cachePrefix + "expire", measureCacheExpire},
	}
}

// cacheWorkload returns the amount of work of a case.
func cacheWorkload(quick bool) workload {
	w := workload{
		Live: 1_000_000, Operations: 2_000_000, Due: farOff, Window: 5 * time.Second, Grace: 3 * time.Second,
	}
	if quick {
		w.Live, w.Operations, w.Window, w.Grace = 100_000, 500_000, 2*time.Second, 2*time.Second
	}
	return w
}

// runCache measures a cache in this process.
func (j job) runCache() (figures, error) {
	d, err := cacheByName(j.Peer)
	if err != nil {
		return nil, err
	}
	for _, c := range cacheCases() {
		if c.name == j.Case {
			return c.measure(j.Workload, d.open)
		}
	}
	return nil, fmt.Errorf("unknown case %q", j.Case)
}

// isCache reports whether the job measures a cache.
func (j job) isCache() bool { return strings.HasPrefix(j.Case, cachePrefix) }

// measureCacheSet fills an empty cache, sets every key again, and measures the memory per value.
func measureCacheSet(w workload, open func(time.Duration) (cacher, error)) (figures, error) {
	keys := makeKeys(w.Live)
	c, err := open(w.Due)
	if err != nil {
		return nil, err
	}
	defer c.close()
	before := readHeap()
	start := time.Now()
	for i, key := range keys {
		c.set(key, i)
	}
	fresh := time.Since(start)
	time.Sleep(100 * time.Millisecond)
	after := readHeap()
	start = time.Now()
	for i := range keys {
		id := i * stride % len(keys)
		c.set(keys[id], id)
	}
	again := time.Since(start)
	runtime.KeepAlive(keys)
	return figures{
		"set_ns":   perOperation(fresh, w.Live),
		"again_ns": perOperation(again, w.Live),
		"heap_b":   (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(w.Live),
	}, nil
}

var errWrongValue = errors.New("a key does not have its value")

// measureCacheGet looks up existing keys, from one goroutine and, with a set in every tenth operation, from two.
func measureCacheGet(w workload, open func(time.Duration) (cacher, error)) (figures, error) {
	keys := makeKeys(w.Live)
	c, err := open(w.Due)
	if err != nil {
		return nil, err
	}
	defer c.close()
	for i, key := range keys {
		c.set(key, i)
	}
	runtime.GC()
	start := time.Now()
	for i := range w.Operations {
		id := i * stride % len(keys)
		if v, ok := c.get(keys[id]); !ok || v != id {
			return nil, errWrongValue
		}
	}
	hit := time.Since(start)

	const goroutines = 2
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	start = time.Now()
	for g := range goroutines {
		wg.Go(func() {
			for i := range w.Operations / goroutines {
				id := (i*stride + g*len(keys)/2) % len(keys)
				if i%10 == 0 {
					c.set(keys[id], id)
				} else if v, ok := c.get(keys[id]); !ok || v != id {
					errs[g] = errWrongValue
				}
			}
		})
	}
	wg.Wait()
	mixed := time.Since(start)
	return figures{
		"hit_ns":   perOperation(hit, w.Operations),
		"mixed_ns": perOperation(mixed, w.Operations),
	}, errors.Join(errs...)
}

// measureCacheExpire sets all values as fast as it can, lets them expire, and measures the processor time from the last
// set to some seconds after the last deadline. A lookup must find no value by then.
func measureCacheExpire(w workload, open func(time.Duration) (cacher, error)) (figures, error) {
	keys := makeKeys(w.Live)
	c, err := open(w.Window)
	if err != nil {
		return nil, err
	}
	defer c.close()
	before := readHeap()
	for i, key := range keys {
		c.set(key, i)
	}
	set := time.Now()
	runtime.GC()
	cpu := cpuTime()
	time.Sleep(time.Until(set.Add(w.Window + w.Grace)))
	cpu = cpuTime() - cpu
	after := readHeap()
	left := 0
	for _, key := range keys {
		if _, ok := c.get(key); ok {
			left++
		}
	}
	return figures{
		"cpu_ms": milliseconds(cpu),
		"left_b": (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(w.Live),
		"left":   float64(left),
	}, nil
}
