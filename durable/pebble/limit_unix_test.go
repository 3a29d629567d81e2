// SPDX-License-Identifier: MIT

//go:build unix

package pebble_test

import (
	"io/fs"
	"syscall"
)

// limitFiles lets this process have no more files open than that.
func limitFiles(n uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
}

// allocated returns how many bytes of the disk a file takes.
func allocated(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }
