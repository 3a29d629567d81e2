// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestMailbox_clockMoves_oneForEachShard(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		tw := NewTimeWheel(time.Second, 60, WithClock(&restless{Clock: w.hand}))
		defer tw.Stop()
		x := tw.index
		shards, used := make(map[sync.Locker]bool), make(map[*mailbox]bool)
		for i := range 1000 {
			key := fmt.Sprint(i)
			shard, b := x.m.GetShard(key), x.shardMailbox(key)
			if b.lock != sync.Locker(shard) || x.mailbox(&entry{key: key}) != b {
				t.Fatalf("the mailbox of %q is not that of its shard", key)
			}
			shards[shard], used[b] = true, true
		}
		if len(shards) != len(x.mail) || len(used) != len(shards) {
			t.Errorf("%d shards have %d mailboxes, of %d", len(shards), len(used), len(x.mail))
		}
		for i := range 1000 {
			timer := new(entry)
			timer.due.Store(uint64(i))
			delete(used, x.mailbox(timer))
		}
		if len(used) != 0 {
			t.Errorf("timers use %d mailboxes less than tasks", len(used))
		}
	})
}

func TestMailbox_count_isOfAllMailboxes(t *testing.T) {
	plan{}.in(t, func(t *testing.T, w *rig) {
		tw := NewTimeWheel(time.Second, 60, WithClock(&restless{Clock: w.hand}))
		defer tw.Stop()
		const n = 100
		for i := range n {
			mustAdd(t, tw, fmt.Sprint(i), time.Hour)
		}
		for i := range n / 2 {
			if err := tw.RemoveTask(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if s := tw.Stats(); s.Added != n || s.Removed != n/2 || s.Pending != n/2 {
			t.Errorf("after %d adds and %d removals %+v", n, n/2, s)
		}
	})
}
