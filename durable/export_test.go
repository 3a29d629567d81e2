// SPDX-License-Identifier: MIT

package durable

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// OpenPebbleOn opens a store on a file system for tests. Its memory tables are small, so that few writes make
// it flush, compact and begin its next log.
func OpenPebbleOn(dir string, files vfs.FS) (Store, error) {
	return openPebble(dir, files, 64<<10, testkit.Quiet())
}

// OpenPebbleSmall is OpenPebbleOn for a directory of the disk.
func OpenPebbleSmall(dir string) (Store, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	return OpenPebbleOn(dir, vfs.Default)
}
