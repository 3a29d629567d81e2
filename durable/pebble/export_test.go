// SPDX-License-Identifier: MIT

package pebble

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// DescriptorWait is how long an open store waits for a descriptor in tests.
const DescriptorWait = 200 * time.Millisecond

func init() { descriptorWait = DescriptorWait }

// OpenOn opens a store on a file system for tests. Its memory tables are small, so that few writes make the store
// flush, compact and begin its next log.
func OpenOn(dir string, files vfs.FS) (*Store, error) { return open(dir, files, 64<<10) }

// OpenKVOn is OpenOn for a kv.
func OpenKVOn(dir string, files vfs.FS) (engine.KV, error) {
	k, err := openKV(dir, files, 64<<10)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// OpenKVIn opens the kv in a directory on disk, as [Open] opens a store.
func OpenKVIn(dir string) (engine.KV, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	k, err := openKV(dir, vfs.Default, 0)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// OpenSmall is OpenOn for a directory on disk.
func OpenSmall(dir string) (*Store, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	return OpenOn(dir, vfs.Default)
}

// OpenFormat2 makes a store in a directory as programs of format 2 did: without f rows.
func OpenFormat2(dir string) (*Store, error) {
	s, err := OpenSmall(dir)
	if err != nil {
		return nil, err
	}
	s.indexed = false
	return s, s.setFormat(format2)
}

// OpenFormat3 makes a store in a directory as programs of format 3 did: without settings.
func OpenFormat3(dir string) (*Store, error) {
	s, err := OpenSmall(dir)
	if err != nil {
		return nil, err
	}
	return s, s.setFormat(format3)
}

func (s *Store) setFormat(text string) error {
	return replaceFile(vfs.Default, s.dir, formatTemp, formatName, sealed([]byte(text)))
}
