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

// lockDirectory locks the directory itself, so the path used to open it does not matter. The lock belongs to the open
// file. It also excludes a second open in the same process, and is released only when that file is closed. (An fcntl
// lock belongs to the process. It would not exclude a second open in the same process, and closing any other file
// descriptor of the locked file would release it.)
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
