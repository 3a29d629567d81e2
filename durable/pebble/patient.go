// SPDX-License-Identifier: MIT

package pebble

import (
	"errors"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	manyOpenFiles = 256  // of Pebble
	fewOpenFiles  = 76   // the fewest that Pebble accepts, and some
	otherFiles    = 44   // logs, the store's own files, backups, and files of Pebble beyond its bound; some 20 were seen
	fewFor        = 1000 // a limit of the process below which Pebble has few
)

// openFiles returns how many files Pebble may have open in a process with the given limit.
func openFiles(limit int) int {
	if limit < fewFor {
		return fewOpenFiles
	}
	return manyOpenFiles
}

// MaxDescriptors returns how many file descriptors an open store uses at most, in a process that may have limit of them
// open: 300, or 120 if the limit is below 1,000. A program that may run out of descriptors, such as a server, should keep
// that many free.
func MaxDescriptors(limit int) int { return openFiles(limit) + otherFiles }

// descriptorWait is how long an open store waits for a file descriptor. It is a variable for tests.
var descriptorWait = 30 * time.Second

// A patientFS is a file system that waits while the process has no file descriptor left. A file that cannot be opened
// has not changed, so opening it later loses nothing.
type patientFS struct {
	vfs.FS
	isPatient func() bool
}

// try calls open until it does not fail for want of a descriptor, but for no longer than descriptorWait.
func (p patientFS) try(open func() error) error {
	for end := time.Now().Add(descriptorWait); ; time.Sleep(retryPause) {
		err := open()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || !p.isPatient() || !time.Now().Before(end) {
			return err
		}
	}
}

func (p patientFS) Create(path string, c vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = p.try(func() error { f, err = p.FS.Create(path, c); return err })
	return f, err
}

func (p patientFS) Open(path string, opts ...vfs.OpenOption) (f vfs.File, err error) {
	err = p.try(func() error { f, err = p.FS.Open(path, opts...); return err })
	return f, err
}

func (p patientFS) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (f vfs.File, err error) {
	err = p.try(func() error { f, err = p.FS.OpenReadWrite(path, c, opts...); return err })
	return f, err
}

func (p patientFS) OpenDir(path string) (f vfs.File, err error) {
	err = p.try(func() error { f, err = p.FS.OpenDir(path); return err })
	return f, err
}

func (p patientFS) List(dir string) (names []string, err error) {
	err = p.try(func() error { names, err = p.FS.List(dir); return err })
	return names, err
}
