// SPDX-License-Identifier: MIT

package enginetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

func inTx(test func(s *subject)) func(s *subject) {
	return func(s *subject) {
		if s.Begin == nil {
			s.t.Skip("the engine has no transactions")
		}
		test(s)
	}
}

// begin begins a transaction with the given writes. The transaction is rolled back at the end of the test.
func (s *subject) begin(writes ...engine.Write) Tx {
	s.t.Helper()
	tx := s.Begin(s.t)
	s.t.Cleanup(tx.Rollback)
	s.writeTx(tx, writes...)
	return tx
}

func (s *subject) writeTx(tx Tx, writes ...engine.Write) {
	s.t.Helper()
	if unmet, err := tx.Write(s.ctx, writes...); err != nil || len(unmet) > 0 {
		s.t.Fatalf("unmet are %q, %v", unmet, err)
	}
}

// A task added in a transaction is visible after the commit, and is claimed however late the commit is.
func lateCommit(s *subject) {
	id := s.join("a", long)
	s.write(0, add("moved", ahead))
	s.write(0, add("removed", 5))
	tx := s.begin(add("late", 5), put("moved", 6, engine.IfPresent), remove("removed"))
	undone := s.begin(add("undone", 5))
	s.write(0, add("early", 7))
	s.absent("late")
	s.is("moved", add("moved", ahead))
	s.is("removed", add("removed", 5))
	if n := s.len(); n != 3 {
		s.t.Errorf("there are %d tasks, want 3", n)
	}
	if got := s.due(engine.Position{}, 10); keys(got) != `"removed" "early" ` {
		s.t.Errorf("due are %s", keys(got))
	}
	if got := s.claimAll(id); keys(got) != `"early" ` {
		s.t.Errorf("claimed are %s", keys(got))
	}
	s.check(tx.Commit())
	undone.Rollback()
	s.absent("undone")
	s.absent("removed")
	s.is("late", add("late", 5))
	s.is("moved", put("moved", 6, 0))
	if got := s.due(engine.Position{}, 10); keys(got) != `"late" "moved" "early" ` {
		s.t.Errorf("due are %s", keys(got))
	}
	got := s.claim(id, 4, 6, 10)
	if keys(got) != `"late" "moved" ` || !s.confirms(id, got[0]) {
		s.t.Errorf("claimed are %s", keys(got))
	}
	other := s.Begin(s.t)
	defer other.Rollback()
	unmet, err := other.Write(s.ctx, add("late", 1), add("free", 1), remove("none"))
	slices.Sort(unmet)
	if err != nil || fmt.Sprint(unmet) != "[late none]" {
		s.t.Errorf("unmet are %q, %v", unmet, err)
	}
	other.Rollback()
	s.absent("free")
}

// A commit of several batches applies the batches that meet no lock, and reports the others as busy.
func commitMeetsLock(s *subject) {
	s.write(0, add("locked", 1))
	s.write(0, add("locked too", 1))
	s.write(0, add("free", 1))
	s.begin(put("locked", 2, engine.IfPresent), remove("locked too"), add("new", 2))
	results, err := s.Commit(s.ctx, 0, []engine.Batch{
		{remove("locked")},
		{put("free", 3, engine.IfPresent)},
		{add("other", 3), put("locked too", 3, engine.Always)},
		{add("new", 3)},
		{remove("none")},
	})
	s.check(err)
	for i, busy := range []bool{true, false, true, true, false} {
		if results[i].Busy != busy || busy && len(results[i].Written) > 0 {
			s.t.Errorf("the result of batch %d is %+v, want Busy %v", i, results[i], busy)
		}
	}
	if len(results[1].Written) != 1 || len(results[4].Unmet) != 1 {
		s.t.Errorf("the results of the others are %+v and %+v", results[1], results[4])
	}
	s.is("locked", add("locked", 1))
	s.is("locked too", add("locked too", 1))
	s.is("free", put("free", 3, 0))
	s.absent("other")
	s.absent("new")
}

// A commit of one batch waits for the lock, and then checks its conditions against the state that the transaction has
// left.
func commitWaits(s *subject) {
	for i, c := range []struct {
		in     engine.Write // the write in the transaction
		commit bool
		w      engine.Write
		done   bool
	}{
		{remove("k"), true, remove("k"), false},
		{remove("k"), false, remove("k"), true},
		{remove("k"), true, add("k", 3), true},
		{put("k", 2, engine.IfPresent), true, unchanged(put("k", 3, 0), 0), false},
		{put("k", 2, engine.IfPresent), false, unchanged(put("k", 3, 0), 0), true},
		{put("k", 2, engine.IfPresent), true, put("k", 3, engine.IfPresent), true},
		{add("new", 2), true, add("new", 3), false},
		{add("new", 2), false, add("new", 3), true},
		{add("new", 2), true, put("new", 3, engine.Always), true},
	} {
		s.write(0, put("k", 1, engine.Always))
		c.w.Revision = s.get("k").Revision
		tx := s.begin(c.in)
		result := make(chan engine.Result, 1)
		go func() {
			r, err := s.Commit(s.ctx, 0, []engine.Batch{{c.w}})
			if err != nil {
				s.t.Error(err)
				r = make([]engine.Result, 1)
			}
			result <- r[0]
		}()
		time.Sleep(short / 10) // lets the commit reach the lock; the test also passes if it does not
		select {
		case r := <-result:
			s.t.Fatalf("case %d: a commit does not wait for a lock: %+v", i, r)
		default:
		}
		if c.commit {
			s.check(tx.Commit())
		} else {
			tx.Rollback()
		}
		if r := <-result; r.Busy || (len(r.Written) == 1) != c.done {
			s.t.Errorf("case %d: the result is %+v, want done %v", i, r, c.done)
		}
		s.write(0, put("new", 1, engine.Always))
		s.write(0, remove("new"))
	}
	s.begin(add("new", 2))
	brief, cancel := context.WithTimeout(s.ctx, short)
	defer cancel()
	if r, err := s.Commit(brief, 0, []engine.Batch{{add("new", 3)}}); err == nil {
		s.t.Errorf("a commit does not wait for a lock until its context is done: %+v", r)
	}
}

// A task that a transaction has locked is neither claimed nor confirmed. After a rollback, the claim is valid again.
func claimMeetsLock(s *subject) {
	s.add(3, 0)
	id := s.join("a", long)
	mine := s.claim(id, -1, 1, 1)
	tx := s.begin(put("k000000", 9, engine.IfPresent), put("k000001", 9, engine.IfPresent))
	if got := s.claimAll(id); keys(got) != `"k000002" ` {
		s.t.Errorf("claimed are %s", keys(got))
	}
	if s.confirms(id, mine[0]) {
		s.t.Error("a locked task is confirmed")
	}
	if got := s.claimed(id); len(got) != 2 {
		s.t.Errorf("the member holds %s", keys(got))
	}
	tx.Rollback()
	if !s.confirms(id, mine[0]) {
		s.t.Error("the task is not confirmed after the lock")
	}
	if got := s.claimAll(id); keys(got) != `"k000001" ` {
		s.t.Errorf("claimed are %s", keys(got))
	}
	tx = s.begin(put("k000000", 9, engine.IfPresent))
	s.check(tx.Commit())
	if s.confirms(id, mine[0]) {
		s.t.Error("a task that a transaction has moved is confirmed")
	}
	if got := s.claimAll(id); len(got) != 1 || got[0].Due != 9 || !s.confirms(id, got[0]) {
		s.t.Errorf("claimed are %s", keys(got))
	}
}

// A claim skips locked tasks and claims other tasks instead, of the same kind or group, or of another.
func claimsMeetLocks(s *subject) {
	var locked, batch engine.Batch
	for i := range 12 {
		w := of([]string{"g", ""}[i%2], add(fmt.Sprintf("locked %02d", i), int64(i)))
		w.Kind = "other"
		locked = append(locked, w)
	}
	for i := range 20 {
		batch = append(batch, add(fmt.Sprintf("free %02d", i), int64(100+i)))
	}
	s.commit(0, append(locked, batch...)...)
	id := s.join("a", long)
	for i := range locked {
		locked[i].If = engine.IfPresent
	}
	tx := s.begin(locked[:10]...)
	got := s.claimOf(id, []string{"other", kind}, -1, ahead, 6)
	if keys(got) != `"locked 10" "locked 11" "free 00" "free 01" "free 02" "free 03" ` {
		s.t.Errorf("claimed are %s", keys(got))
	}
	s.check(s.Release(s.ctx, id, []engine.Claim{claimOf(got[0]), claimOf(got[1])}))
	if got := s.turns(id, []string{"other"}, "", ahead, 3); got != "locked 10 locked 11" {
		s.t.Errorf("claimed in turns are %q", got)
	}
	tx.Rollback()
	if got := s.turns(id, []string{"other"}, "", ahead, 3); got != "locked 00 locked 01" {
		s.t.Errorf("claimed in turns after the lock are %q", got)
	}
}

// A run is completed in a transaction at the revision of its start, and therefore only by the member that holds the
// task.
func completion(s *subject) {
	s.add(2, 0)
	id := s.join("a", long)
	mine := s.claimAll(id)
	s.confirm(id, claimOf(mine[0]), claimOf(mine[1]))
	ack := func(i int) engine.Write { return unchanged(remove(mine[i].Key), mine[i].Revision) }

	tx := s.begin(ack(0))
	results, err := s.Commit(s.ctx, id, []engine.Batch{{ack(0)}, {add("other", ahead)}})
	if err != nil || !results[0].Busy {
		s.t.Errorf("an acknowledgement of what is being completed returns %+v, %v", results, err)
	}
	s.check(tx.Commit())
	if r := s.commit(id, ack(0)); len(r.Unmet) != 1 {
		s.t.Error("a run is completed twice")
	}
	s.absent(mine[0].Key)

	s.check(s.Release(s.ctx, id, []engine.Claim{claimOf(s.get(mine[1].Key))})) // as if the member had been reaped
	tx = s.Begin(s.t)
	defer tx.Rollback()
	unmet, err := tx.Write(s.ctx, ack(1))
	if err != nil || len(unmet) != 1 {
		s.t.Errorf("a run of a task that was lost is completed: %q, %v", unmet, err)
	}
}

// A transaction does not delay a release. Tasks that it has locked remain held.
func releaseMeetsLock(s *subject) {
	s.add(2, 0)
	id := s.join("a", long)
	mine := s.claimAll(id)
	tx := s.begin(unchanged(remove(mine[0].Key), mine[0].Revision))
	s.check(s.Release(s.ctx, id, []engine.Claim{claimOf(mine[0]), claimOf(mine[1])}))
	tx.Rollback()
	if held := s.claimed(id); len(held) != 1 || held[0].Key != mine[0].Key {
		s.t.Errorf("a release while the first task was locked leaves %s", keys(held))
	}
}

// A transaction, however long, delays neither a reap nor the release of the reaped member's other tasks. The tasks that
// it has locked become free when it ends.
func reapMeetsLock(s *subject) {
	for _, end := range []struct {
		name string
		do   func(id engine.MemberID) error
	}{
		{"reaped", func(engine.MemberID) error { s.reapUntil("member"); return nil }},
		{"left", func(id engine.MemberID) error { return s.Leave(s.ctx, id) }},
	} {
		s.add(3, 0)
		other := s.join("other", long)
		id := s.join("member", 4*short)
		if got := s.claimAll(id); len(got) != 3 {
			s.t.Skip("the machine is too slow")
		}
		tx := s.begin(put("k000001", 9, engine.IfPresent))
		s.check(end.do(id))
		s.gone(id)
		seen := make(map[string]bool)
		claim := func() {
			s.reap()
			for _, task := range s.claimAll(other) {
				seen[task.Key] = true
			}
		}
		s.until(end.name+": an unlocked task is free", func() bool { claim(); return len(seen) == 2 })
		if seen["k000001"] {
			s.t.Errorf("%s: a locked task is claimed", end.name)
		}
		tx.Rollback()
		s.until(end.name+": the locked one is free", func() bool { claim(); return len(seen) == 3 })
		for _, task := range s.due(engine.Position{}, math.MaxInt64) {
			s.write(0, remove(task.Key))
		}
		s.check(s.Leave(s.ctx, other))
	}
}
