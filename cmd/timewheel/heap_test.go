// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// heapGoal returns the size of the heap at which the garbage collector begins, in bytes.
func heapGoal(env map[string]string) int64 {
	lower := raiseHeap(func(name string) string { return env[name] })
	defer lower()
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	return int64(goal[0].Value.Uint64())
}

// A service with little in memory collects its garbage rarely, unless the environment says otherwise.
func TestRaiseHeap(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		as := heapGoal(map[string]string{name: "as it was"})
		// What other tests left in use may have changed by a few megabytes in between.
		if raised := heapGoal(nil) - as; raised < 3*heapFloor/2 || raised > 3*heapFloor {
			t.Errorf("with %s the garbage collector begins at %d bytes, and without it %d later; want %d", name, as, raised, 2*heapFloor)
		}
	}
}
