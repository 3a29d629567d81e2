// SPDX-License-Identifier: MIT

package pebble_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/pebble"
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

// Processes end before their first compaction does, one after another. Their tables do not pile up: a process that finds
// many layers of them compacts them first.
func TestOpen_compactsWhatManyShortLivesHaveLeft(t *testing.T) {
	const lives = 50
	mem := vfs.NewCrashableMem()
	most := 0
	for life := range lives {
		on, files := openBriefly(t, mem)
		s, err := subjectOn(on, nil)
		must(t, err)
		must(t, s.Commit([]change{{Key: fmt.Sprint("key", life), From: engine.None, Due: 5, Data: []byte("data")}}))
		most = max(most, pebble.Layers(on))
		left := mem.CrashClone(vfs.CrashCloneCfg{})
		close(files.goOn)
		must(t, s.Close())
		mem = left
	}
	if most < 5 || most > 10 {
		t.Errorf("%d lives left up to %d layers of tables, want some, and not more and more", lives, most)
	}
}

// openBriefly opens the store on files that let compactions continue only meanwhile.
func openBriefly(t *testing.T, files vfs.FS) (on pebble.KV, held *compactions) {
	t.Helper()
	held = compactionsOn(files)
	opened := make(chan error, 1)
	go func() {
		var err error
		on, err = pebble.OpenOn("store", held)
		opened <- err
	}()
	for {
		select {
		case err := <-opened:
			must(t, err)
			return on, held
		case held.goOn <- struct{}{}:
		}
	}
}
