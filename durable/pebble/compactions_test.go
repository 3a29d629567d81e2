// SPDX-License-Identifier: MIT

package pebble_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A compactions is a file system that shows when a compaction creates its first table, and lets it wait there.
type compactions struct {
	vfs.FS
	begun, goOn chan struct{}
	begin       func()
}

func compactionsOn(files vfs.FS) *compactions {
	c := &compactions{FS: files, begun: make(chan struct{}), goOn: make(chan struct{})}
	c.begin = sync.OnceFunc(func() { close(c.begun) })
	return c
}

func (c *compactions) Create(path string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == "pebble-compaction" {
		c.begin()
		<-c.goOn
	}
	return c.FS.Create(path, category)
}

// A process ends while a compaction has been waiting and much has been written. The next one has opened the store before
// it continues the compaction.
func TestOpen_isNotDelayedByACompaction(t *testing.T) {
	mem := vfs.NewCrashableMem()
	files := compactionsOn(mem)
	s, err := openOn(files)
	must(t, err)
	written := 0
	for begun := false; !begun; written += 100 {
		must(t, rewrite(s, written, written+100))
		select {
		case <-files.begun:
			begun = true
		default:
		}
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	close(files.goOn)
	must(t, s.Close())

	files = compactionsOn(left)
	opened := make(chan error, 1)
	go func() {
		var err error
		s, err = openOn(files)
		opened <- err
	}()
	select {
	case err := <-opened:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the store is not open while a compaction waits")
	}
	<-files.begun
	close(files.goOn)
	must(t, s.Close())
}
