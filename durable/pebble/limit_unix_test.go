// SPDX-License-Identifier: MIT

//go:build unix

package pebble_test

import (
	"io/fs"
	"syscall"
)

// limitFiles limits the number of files that this process can open.
func limitFiles(n uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
}

// allocated returns how many bytes a file takes on disk.
func allocated(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }
