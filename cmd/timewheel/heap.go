// SPDX-License-Identifier: MIT

package main

import "runtime"

// heapFloor is memory that the garbage collector counts as in use. It collects whenever the heap has doubled: in a
// service that has 10 MB in use, and allocates 160 MB a second, thirty times a second. That takes an eighth of the CPU
// time of the service, and its webhooks are late. The floor is never touched and takes no memory. The garbage that may
// gather instead takes up to twice heapFloor.
const heapFloor = 64 << 20

// raiseHeap sets the floor until the returned function is called, unless the environment says how the garbage collector
// works.
func raiseHeap(getenv func(string) string) (lower func()) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	floor := make([]byte, heapFloor)
	return func() { runtime.KeepAlive(floor) }
}
