// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// volume is the size of the file system that fills up, in megabytes.
const volume = 60

// mount puts the scene's store on a separate small file system, which needs root privileges.
func (s *scene) mount() error {
	dir := filepath.Join(s.dir, "volume")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", volume)); err != nil {
		return fmt.Errorf("%w: no file system can be mounted: %w", errCannot, err)
	}
	s.tasks = filepath.Join(dir, "tasks")
	s.unmount = func() error { return syscall.Unmount(dir, 0) }
	return nil
}

// small moves the store to a small file system: the process is replaced by one on it.
func small(s *scene) error {
	if err := s.mount(); err != nil {
		return err
	}
	return restart(s)
}

// fill fills up the file system.
func fill(s *scene) error {
	name := filepath.Join(filepath.Dir(s.tasks), "filler")
	s.later(func() { _ = os.Remove(name) })
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	for megabyte := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(megabyte)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// load makes the process add tasks until its store has failed.
func load(s *scene) error {
	p := s.all()[0]
	for i := range 1000 {
		if err := s.order(p, "add", fmt.Sprintf("kind=quick&n=100&in=1h&group=%d", i)); err != nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("the store takes 100,000 tasks on a full disk")
}
