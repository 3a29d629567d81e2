// SPDX-License-Identifier: MIT

package pebble

import (
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// DescriptorWait is how long an open store waits for a descriptor in tests.
const DescriptorWait = 200 * time.Millisecond

func init() { descriptorWait = DescriptorWait }

// A KV is an open store.
type KV interface {
	engine.KV
	engine.Exclusive
	engine.Verifier
	engine.FailureReporter
	engine.Backuper
	engine.SizeReporter
	engine.SpaceReporter
	io.Closer
}

// OpenOn opens a store on a file system for tests. Its memory tables are small, so that few writes make the store
// flush, compact and begin its next log.
func OpenOn(dir string, files vfs.FS) (KV, error) { return openFor(dir, files, 64<<10) }

// OpenSmall is OpenOn for a directory on disk.
func OpenSmall(dir string) (KV, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	return OpenOn(dir, vfs.Default)
}

// OpenIn opens the store in a directory on disk, as [Open] does.
func OpenIn(dir string) (KV, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	return openFor(dir, vfs.Default, 0)
}

func openFor(dir string, files vfs.FS, memTable uint64) (KV, error) {
	s, err := open(dir, files, memTable)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Layers returns the number of layers of tables that have not been compacted yet.
func Layers(of KV) int { return int(of.(*store).db.Metrics().Levels[0].Sublevels) }
