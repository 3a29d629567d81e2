// SPDX-License-Identifier: MIT

package durable

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/sirupsen/logrus"
)

// OpenPebbleOn opens a store on a file system for tests, with small memory tables, so that little is enough
// for the store to flush, to compact and to go on to its next log.
func OpenPebbleOn(dir string, files vfs.FS) (Store, error) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return openPebble(dir, files, 64<<10, log)
}

// OpenPebbleSmall is OpenPebbleOn for a directory of the disk.
func OpenPebbleSmall(dir string) (Store, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	return OpenPebbleOn(dir, vfs.Default)
}
