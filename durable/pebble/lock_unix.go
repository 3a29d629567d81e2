// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockDirectory locks the directory itself, whichever path names it. The lock belongs to the open file: it
// also excludes a second open in the same process, and only closing that file releases it. (A lock by fcntl
// belongs to the process: it does not exclude the process itself, which loses it by closing any other file
// descriptor of the locked file.)
func lockDirectory(dir string) (io.Closer, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w: %s", ErrLocked, dir)
	}
	return nil, errors.Join(err, file.Close())
}
