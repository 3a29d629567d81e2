// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

var garbage []byte // a global, so that it is on the heap

// collections returns how often the garbage collector runs while a process with little in use allocates 1 GB.
func collections(env map[string]string) uint32 {
	runtime.GC()
	lower := raiseHeap(func(name string) string { return env[name] })
	defer lower()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1 << 14 {
		garbage = make([]byte, 1<<16)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

// A service with little in memory collects its garbage rarely, unless the environment says otherwise.
func TestRaiseHeap(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	if n := collections(nil); n > 20 {
		t.Errorf("%d collections during 1 GB of garbage", n)
	}
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if n := collections(map[string]string{name: "as it was"}); n < 40 {
			t.Errorf("with %s: %d collections during 1 GB of garbage", name, n)
		}
	}
}
