// SPDX-License-Identifier: MIT

package main

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time that this process has used, in user and system mode, on all processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("getrusage: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
