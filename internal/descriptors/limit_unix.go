// SPDX-License-Identifier: MIT

//go:build unix

package descriptors

import (
	"math"
	"syscall"
)

// Limit returns how many file descriptors the process may have open. It is the soft limit, which the runtime has raised to
// about the hard one at the start of the process.
func Limit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt
	}
	return int(min(uint64(limit.Cur), math.MaxInt))
}
