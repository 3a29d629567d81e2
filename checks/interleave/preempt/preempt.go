// SPDX-License-Identifier: MIT

// Package preempt contains the calls that interleave inserts between the statements of a copy of the library. Each call
// may yield the processor, as the scheduler of the runtime might at any instant, but seldom does.
package preempt

import (
	"math"
	"os"
	"runtime"
	"strconv"
)

// The environment of the process determines which calls yield.
var (
	seed  = number("INTERLEAVE_SEED", 1)
	limit = math.MaxUint64 / max(number("INTERLEAVE_EVERY", 16), 1)
	calls uint64
)

func number(key string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(os.Getenv(key), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// Point may yield the processor. One yield in 16 is long: other goroutines can finish a whole function, instead of
// running just to their next yield.
//
// The counter is not atomic, and is hidden from the race detector: an atomic counter would synchronize all goroutines,
// and the detector would find no race. Two calls that draw the same number do no harm.
//
//go:norace
func Point() {
	calls++
	x := mix(seed + calls*0x9E3779B97F4A7C15)
	if x > limit {
		return
	}
	n := 1
	if x%16 == 0 {
		n = 64
	}
	for range n {
		runtime.Gosched()
	}
}

// And is Point for use inside a condition.
func And() bool {
	Point()
	return true
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
