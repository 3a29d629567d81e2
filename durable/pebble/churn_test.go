// SPDX-License-Identifier: MIT

package pebble_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// Churn is the load of a service that adds a task for each order and removes most of them before they are due. The
// number of live tasks stays the same: again and again a random one is removed and another is added. The changes go
// straight to the store, in the batches and with the bytes of a busy scheduler.
//
// The directory must stay bounded throughout: at most three times the uncompressed bytes of the live tasks, plus room
// for the logs and for the tables that a compaction is about to replace. A store that kept removed tasks would have
// more than ten times the bytes in the end.
//
// DURABLE_CHURN is the number of live tasks, on a disk and with the memory tables of Open. Without it there are few, in
// memory and with small tables. The number of cycles is ten times as large.

// churnRoom is the additional room for the directory, in sizes of a memory table: the logs of the tables that wait for
// a flush, the log that is kept for reuse, and the inputs of a compaction.
const churnRoom = 12

type churn struct {
	t     *testing.T
	batch int // cycles per commit
	store *subject
	rnd   *rand.Rand
	head  []byte // the data of each task before the payload
	tasks []churned
	made  uint64
	bytes int64 // of the live tasks
	most  float64
}

// churned is a live task. The number determines its key and payload.
type churned struct {
	number uint64
	due    int64
}

func (c churned) key() string {
	// The numbers are mixed, so that neighbours in time are not neighbours in the tables.
	return fmt.Sprintf("order:%016x", c.number*0x9e3779b97f4a7c15)
}

// data returns the data of the task's record: a scheduler writes the payload last.
func (c *churn) data(task churned) []byte {
	b := append(make([]byte, 0, len(c.head)+16), c.head...)
	b = binary.BigEndian.AppendUint64(b, task.number*0xd1342543de82ef95)
	return binary.BigEndian.AppendUint64(b, task.number*0xaf251af3b0f025b5)
}

// size returns the bytes of both rows: their keys, what both say about the task, and the data.
func (c *churn) size(task churned) int64 {
	key, kind := len(task.key()), len(churnKind)
	revision := time.Now().UnixMicro()
	said := 2 + len(varint(task.due)) + 1 + len(varint(revision)) + 1 + kind + 1
	return int64(1 + key + said + 1 + kind + 2 + 1 + 8 + key + 1 + said + len(c.data(task)))
}

func varint(n int64) []byte { return binary.AppendVarint(nil, n) }

const churnKind = "order.recheck"

// next returns a new task that is due on the day after the test.
func (c *churn) next() churned {
	c.made++
	return churned{c.made, time.Now().Add(24*time.Hour).UnixNano() + c.rnd.Int64N(int64(24*time.Hour))}
}

func (c *churn) add(task churned) change {
	c.bytes += c.size(task)
	return change{Key: task.key(), From: engine.None, Due: task.due, Data: c.data(task), Kind: churnKind}
}

func (c *churn) commit(changes []change) {
	c.t.Helper()
	if err := c.store.Commit(changes); err != nil {
		c.t.Fatal(err)
	}
}

// fill adds the initial live tasks.
func (c *churn) fill(live int) {
	for len(c.tasks) < live {
		var changes []change
		for range min(c.batch, live-len(c.tasks)) {
			task := c.next()
			c.tasks = append(c.tasks, task)
			changes = append(changes, c.add(task))
		}
		c.commit(changes)
	}
}

// cycle removes tasks and adds the same number, in one commit.
func (c *churn) cycle() {
	changes := make([]change, 0, 2*c.batch)
	for range c.batch {
		old := &c.tasks[c.rnd.IntN(len(c.tasks))]
		if old.number > c.made-uint64(len(changes)/2) {
			continue // it was added by this commit
		}
		changes = append(changes, change{Key: old.key(), From: old.due, Due: engine.None})
		c.bytes -= c.size(*old)
		*old = c.next()
		changes = append(changes, c.add(*old))
	}
	c.commit(changes)
}

// measure fails the test if the directory is too large.
func (c *churn) measure(size, memTable int64) {
	c.t.Helper()
	bound := 3*c.bytes + churnRoom*memTable
	c.most = max(c.most, float64(size)/float64(bound))
	if size > bound {
		c.t.Errorf("after %d tasks %d bytes are live, and the directory has %d; allowed are %d",
			c.made, c.bytes, size, bound)
	}
}

// usage returns the total size of the files in a directory.
func usage(t *testing.T, files vfs.FS, dir string) (size int64) {
	t.Helper()
	names, err := files.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := files.Stat(files.PathJoin(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since
		}
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	return size
}

// check fails the test unless the store holds exactly the live tasks.
func (c *churn) check() {
	c.t.Helper()
	seed := maphash.MakeSeed()
	hash := func(key string, due int64, data []byte) uint64 {
		return maphash.Comparable(seed, struct {
			key  string
			due  int64
			data string
		}{key, due, string(data)})
	}
	var want, got uint64
	for _, task := range c.tasks {
		want += hash(task.key(), task.due, c.data(task))
	}
	n := 0
	for r, err := range c.store.Due(engine.Position{Due: engine.None}, math.MaxInt64) {
		if err != nil {
			c.t.Fatal(err)
		}
		got += hash(r.Key, r.Due, r.Data)
		n++
	}
	if n != len(c.tasks) || c.store.Len() != n || got != want {
		c.t.Errorf("of %d live tasks %d are there, and Len is %d; they are the same: %v",
			len(c.tasks), n, c.store.Len(), got == want)
	}
}

func TestChurn_directoryStaysBounded(t *testing.T) {
	live, batch, memTable := 10_000, 100, int64(64<<10)
	dir, files := "store", vfs.FS(vfs.NewMem())
	open := func() (*subject, error) { return openOn(files) }
	if testing.Short() {
		live = 1_000
	}
	if text := os.Getenv("DURABLE_CHURN"); text != "" {
		var err error
		if live, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		dir, files = filepath.Join(t.TempDir(), "store"), vfs.Default
		batch, memTable = 5000, 32<<20
		open = func() (*subject, error) { return openIn(dir) }
	}
	store, err := open()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range store.Keys() { // before this walk the store deletes nothing
		t.Fatal(err)
	}
	c := &churn{t: t, batch: batch, store: store, rnd: rand.New(rand.NewPCG(5, 5))}
	c.head = recordOf(t, durable.Task{Key: "any", Kind: churnKind, Delay: 24 * time.Hour}).Data
	begin := time.Now()
	c.fill(live)
	t.Logf("%d tasks of %d bytes take %d in the directory; added in %v", live, c.bytes, usage(t, files, dir), time.Since(begin))
	begin = time.Now()
	rounds := 10 * live / c.batch
	for i := range rounds {
		c.cycle()
		if i%4 == 0 || i == rounds-1 {
			c.measure(usage(t, files, dir), memTable)
		}
		if i > 0 && i%(rounds/10) == 0 {
			t.Logf("after %d cycles in %v: %d bytes are live, the directory has %d",
				i*c.batch, time.Since(begin).Round(time.Second), c.bytes, usage(t, files, dir))
		}
	}
	t.Logf("the directory had at most %.0f %% of what it may have", 100*c.most)
	c.check()
	first := recordOf(t, durable.Task{Key: "first", Kind: "first", At: time.Now().Add(-time.Second)})
	c.commit([]change{{Key: first.Key, From: engine.None, Due: first.Due, Data: first.Data, Kind: "first"}})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	c.measure(usage(t, files, dir), memTable)
	c.store = nil
	runtime.GC()

	begin = time.Now()
	if store, err = open(); err != nil {
		t.Fatal(err)
	}
	s, err := durable.New(ctx, store.Owned, durable.WithLogger(testkit.Quiet()))
	if err != nil {
		t.Fatal(err)
	}
	opened := time.Since(begin)
	ran := make(chan time.Duration, 1)
	err = errors.Join(
		s.Handle("first", func(context.Context, durable.Run) error { ran <- time.Since(begin); return nil }),
		s.Handle(churnKind, func(context.Context, durable.Run) error { return nil }),
		s.Start())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Open with %d tasks returns after %v, and the first task runs after %v", s.Len(), opened, <-ran)
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
