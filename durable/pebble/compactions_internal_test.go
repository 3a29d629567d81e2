// SPDX-License-Identifier: MIT

package pebble

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// A waiting is a database in which compactions wait.
type waiting struct {
	pebble.DBForCompaction
	n int
}

func (w *waiting) Schedule(pebble.CompactionGrantHandle) bool {
	if w.n == 0 {
		return false
	}
	w.n--
	return true
}

func TestCompactor_startsOneAfterTheOther(t *testing.T) {
	db := &waiting{n: 2}
	c := new(compactor)
	c.Register(2, db)
	for i, step := range []struct {
		do    func()
		waits int  // how many wait afterwards
		may   bool // whether another may start at once
	}{
		{do: func() {}, waits: 2},
		{do: c.open, waits: 1},
		{do: c.Done, waits: 0},
		{do: c.Done, waits: 0, may: true}, // which starts it
		{do: func() { db.n = 1 }, waits: 1},
		{do: c.Unregister, waits: 1},
		{do: c.Done, waits: 1},
	} {
		step.do()
		if may, _ := c.TrySchedule(); may != step.may || db.n != step.waits {
			t.Errorf("after step %d %d compactions wait, and one may start is %t: want %d, %t", i, db.n, may, step.waits, step.may)
		}
	}
}
