// SPDX-License-Identifier: MIT

//go:build !unix

package pebble_test

import (
	"errors"
	"io/fs"
)

// limitFiles is for systems with such a limit: TestPebble_fewFileDescriptors_… is skipped on the others.
func limitFiles(uint64) error { return errors.ErrUnsupported }

// allocated returns the length of a file, because nothing better is available.
func allocated(info fs.FileInfo) int64 { return info.Size() }
