// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockDirectory locks the directory itself, by whatever path it is named. The lock belongs to the open file:
// a second open in the same process meets it, and nothing but closing that file lets go of it. (A lock by
// fcntl belongs to the process, which does not meet it again, and loses it when it closes any file that it has
// read there.)
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
