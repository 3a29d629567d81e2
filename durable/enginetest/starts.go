// SPDX-License-Identifier: MIT

package enginetest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

func confirm(s *subject) {
	names := s.add(8, 0)
	a, b := s.join("a", long), s.join("b", long)
	first := s.claim(a, -1, ahead, 6)
	theirs := s.claimAll(b)
	claims := make([]engine.Claim, len(first))
	for i, task := range first {
		claims[i] = claimOf(task)
	}
	s.write(0, remove(names[1]))                                    // removed
	s.write(0, remove(names[2]))                                    // removed and added again
	s.write(0, add(names[2], 1))                                    //
	s.write(a, held(put(names[3], 1, engine.Always)))               // changed and held by the same member
	s.check(s.Release(s.ctx, a, []engine.Claim{claimOf(first[4])})) // released
	s.check(s.Release(s.ctx, a, []engine.Claim{claimOf(first[5])})) // released and claimed by another member
	if got := s.claim(b, 5, 6, 1); len(got) != 1 || got[0].Key != names[5] {
		s.t.Fatalf("claimed are %s", keys(got))
	}
	claims = append(claims, claimOf(theirs[0]), engine.Claim{Key: "none", Revision: 1},
		claimOf(s.get(names[3])), engine.Claim{Key: names[0], Revision: claims[0].Revision + 1000})
	want := []bool{true, false, false, false, false, false, false, false, true, false}
	if got := s.confirm(a, claims...); !slices.Equal(got, want) {
		s.t.Errorf("confirmed are %v, want %v", got, want)
	}
	slices.Reverse(claims)
	slices.Reverse(want)
	if got := s.confirm(a, claims...); !slices.Equal(got, want) {
		s.t.Errorf("confirmed are %v, want %v", got, want)
	}
	if !s.confirms(b, theirs[0]) {
		s.t.Error("the claim of the other member is not confirmed")
	}
}

// Until the time of a confirmation is over, no commit changes the task, and it says how long its run may still begin. A commit
// of the member that has begun the run does, or of one that will not begin it.
func mayBegin(s *subject) {
	const within = time.Second // some of it is left after a few calls
	s.add(10, 0)
	a, b := s.join("a", long), s.join("b", long)
	confirmed := func(by engine.MemberID, within time.Duration, tasks ...engine.Stored) {
		s.t.Helper()
		claims := make([]engine.Claim, len(tasks))
		for i, task := range tasks {
			claims[i] = claimOf(task)
		}
		held, _, err := s.Confirm(s.ctx, by, claims, within)
		if s.check(err); slices.Contains(held, false) {
			s.t.Fatalf("confirmed are %v", held)
		}
	}
	waits := func(what string, r engine.Result, is bool) {
		s.t.Helper()
		if r.Wait > 0 != is || r.Wait > within || len(r.Unmet) > 0 || is == (len(r.Written) > 0) {
			s.t.Errorf("%s: the result is %+v", what, r)
		}
	}
	mine := s.claimAll(a)
	confirmed(a, within, append(mine[:6:6], mine[8:]...)...)
	confirmed(a, 1, mine[2])
	key := func(i int) string { return mine[i].Key }
	begun := func(i int, w engine.Write) engine.Write {
		w.Begun = mine[i].Revision
		return w
	}
	once := func(by engine.MemberID, w engine.Write) engine.Result { return s.commits(by, engine.Batch{w})[0] }
	waits("a write of its member", once(a, begun(0, held(put(key(0), 1, engine.Always)))), false)
	waits("an end of its run", once(a, begun(1, unchanged(remove(key(1)), mine[1].Revision))), false)
	waits("a removal of its member, which may not have begun it", once(a, remove(key(8))), true)
	waits("a write of its member, of another revision", once(a, begun(8, put(key(9), 1, engine.Always))), true)
	waits("a removal with the revision of another member", once(b, begun(8, remove(key(9)))), true)
	waits("a removal of one that was confirmed again for a shorter time", once(b, remove(key(2))), true)
	waits("a removal by no member", once(0, unchanged(remove(key(3)), mine[3].Revision)), true)
	waits("a write to a task that was not confirmed", once(b, held(put(key(6), 1, engine.Always))), false)
	waits("a removal of one", once(b, remove(key(7))), false)
	several := s.commits(b, engine.Batch{held(put(key(4), 1, engine.IfPresent))}, engine.Batch{remove(key(5))},
		engine.Batch{add("new", 1), put(key(2), 1, engine.Always)})
	for _, r := range several {
		waits("a batch", r, true)
	}
	if r := once(b, add(key(4), 1)); len(r.Unmet) != 1 || r.Wait != 0 {
		s.t.Errorf("an add of a task that exists returns %+v", r)
	}
	if r := once(b, unchanged(remove(key(4)), mine[4].Revision+1000)); len(r.Unmet) != 1 || r.Wait != 0 {
		s.t.Errorf("a removal of another state returns %+v", r)
	}
	for _, i := range []int{2, 3, 4, 5, 8, 9} { // nothing was done
		if got := s.get(key(i)); got.Revision != mine[i].Revision || got.Owner != a {
			s.t.Errorf("a refused commit leaves %+v", got)
		}
	}
	if got := s.claimAll(b); len(got) != 0 {
		s.t.Errorf("claimed are %s", keys(got))
	}
	r := once(0, remove(key(4)))
	time.Sleep(r.Wait)
	waits("a removal when the time is over", once(0, remove(key(4))), false)
	waits("a write when the time is over", once(0, put(key(5), 3, engine.Always)), false)
	got := s.claimAll(b)
	if len(got) != 1 || got[0].Key != key(5) {
		s.t.Fatalf("claimed are %s after a write when the time is over", keys(got))
	}
	waits("a write to a new state, which was not confirmed", once(0, put(key(5), 3, engine.Always)), false)
	if got = s.claimAll(b); len(got) != 1 {
		s.t.Fatalf("claimed are %s after a write to a new state", keys(got))
	}
	confirmed(b, within, got[0])
	s.check(s.Leave(s.ctx, b)) // it begins no further runs
	if got := s.claimAll(a); len(got) != 2 {
		s.t.Errorf("claimed are %s after the other member has left", keys(got))
	}
}

// Confirm counts the starts since the record was written, once per claim, and stores the time of the last one. Only a
// write of the record resets both to 0.
func starts(s *subject) {
	s.add(2, 0)
	a, b := s.join("a", long), s.join("b", long)
	began := s.now()
	last := int64(0) // Started, as last read
	is := func(want int) {
		s.t.Helper()
		got := s.get("k000000")
		if got.Starts != want {
			s.t.Errorf("Starts is %d, want %d", got.Starts, want)
		}
		now := s.now()
		if want == 0 && got.Started != 0 || want > 0 && (got.Started < max(began, last) || got.Started > now) {
			s.t.Errorf("after %d starts, Started is %d, at %d", want, got.Started, now)
		}
		last = got.Started
	}
	is(0)
	first := s.claimAll(a)
	if first[0].Starts != 0 {
		s.t.Errorf("the claim has %d starts", first[0].Starts)
	}
	s.confirms(a, first[0])
	s.confirms(b, first[0]) // refused and not counted
	is(1)
	unstarted := put("k000000", 1, engine.IfUnstarted)
	unstarted.Revision = first[0].Revision
	if r := s.commit(0, unstarted); len(r.Unmet) != 1 {
		s.t.Errorf("a write on the condition that the task is unstarted: %+v", r)
	}
	for range 3 { // the same claim, as after lost responses
		s.confirms(a, first[0])
		is(1)
	}
	if got := s.claimed(a); got[0].Starts != 1 || got[0].Started != last {
		s.t.Errorf("the held task has %d starts, the last at %d; want 1, at %d", got[0].Starts, got[0].Started, last)
	}
	s.confirms(b, first[0])
	if got := s.get("k000000").Started; got != last {
		s.t.Errorf("a start that is refused changes Started from %d to %d", last, got)
	}
	s.check(s.Release(s.ctx, a, []engine.Claim{claimOf(s.get(first[0].Key))}))
	is(1)
	second := s.claimAll(b)
	if len(second) != 1 || second[0].Starts != 1 || !s.confirms(b, second[0]) {
		s.t.Errorf("claimed is %+v, want 1 start", second)
	}
	is(2)
	s.confirms(a, first[0]) // refused, and changes nothing
	s.confirms(b, second[0])
	is(2)
	s.check(s.Leave(s.ctx, b))
	is(2)
	third := s.claimAll(a) // claimed by a member that has held the task before
	s.confirms(a, third[0])
	is(3)
	for _, task := range s.due(engine.Position{}, 1) {
		if task.Starts != 3 || task.Started != last {
			s.t.Errorf("the walk yields %d starts, the last at %d; want 3, at %d", task.Starts, task.Started, last)
		}
	}
	w := put("k000000", 1, engine.IfPresent)
	s.write(a, held(w))
	is(0)
	s.confirms(a, s.get("k000000"))
	is(1)
	s.write(0, remove("k000000"))
	s.write(0, add("k000000", 1))
	is(0)
	if got := s.get("k000001"); got.Starts != 0 || got.Started != 0 {
		s.t.Errorf("another task has %d starts, the last at %d", got.Starts, got.Started)
	}
}

// Once a removal or change has returned, no confirmation of the task's former state succeeds.
func confirmSeesRemovals(s *subject) {
	const tasks, callers = 400, 2
	names := s.add(tasks, 0)
	id := s.join("a", long)
	var claims []engine.Claim
	for _, task := range s.claimAll(id) {
		claims = append(claims, claimOf(task))
	}
	returned := make([]atomic.Bool, tasks)
	var left, refused atomic.Int32
	left.Store(callers)
	all(append(times(callers, func(caller int) {
		defer left.Add(-1)
		for i := caller; i < tasks; i += callers {
			w := remove(names[i])
			if i%3 == 0 {
				w = put(names[i], ahead, engine.IfPresent)
			}
			s.commits(0, engine.Batch{w}, engine.Batch{add(fmt.Sprint("new", i), ahead)})
			returned[i].Store(true)
		}
	}), times(callers, func(int) {
		for done := false; !done; {
			done = left.Load() == 0
			before := make([]bool, tasks)
			for i := range before {
				before[i] = returned[i].Load()
			}
			for i, ok := range s.confirm(id, claims...) {
				if ok && before[i] {
					s.t.Errorf("%q is confirmed after its removal has returned", names[i])
				}
				if !ok {
					refused.Add(1)
				}
			}
		}
	})...)...)
	if refused.Load() < tasks {
		s.t.Errorf("%d confirmations are refused, want %d at least", refused.Load(), tasks)
	}
}

// If a start and a write with the condition IfUnstarted compete, exactly one of them succeeds.
func startAgainstUnstarted(s *subject) {
	const tasks = 400
	names := s.add(tasks, 0)
	id := s.join("a", long)
	var claims []engine.Claim
	for _, task := range s.claimAll(id) {
		claims = append(claims, claimOf(task))
	}
	started, written := make([]bool, tasks), make([]bool, tasks)
	all(func() {
		for i := range claims {
			started[i] = s.confirm(id, claims[i])[0]
		}
	}, func() {
		for i := range claims {
			w := put(names[i], ahead, engine.IfUnstarted)
			w.Revision = claims[i].Revision
			written[i] = len(s.commits(id*engine.MemberID(i%2), engine.Batch{w})[0].Unmet) == 0 // by the member or by none
		}
	})
	for i := range claims {
		if started[i] && written[i] {
			s.t.Errorf("%q is both started and written as unstarted", names[i])
		}
		if !started[i] && !written[i] && claims[i].Key == names[i] {
			s.t.Errorf("%q is neither started nor written", names[i])
		}
	}
}

// A start is confirmed before another's write of the task, which is then refused, or not at all.
func startAgainstWrite(s *subject) {
	const tasks = 400
	s.add(tasks, 0)
	id := s.join("a", long)
	claims := make([]engine.Claim, tasks)
	for i, task := range s.claimAll(id) {
		claims[i] = claimOf(task)
	}
	started, waits := make([]bool, tasks), make([]bool, tasks)
	all(func() {
		for i, c := range claims {
			held, _, err := s.Confirm(s.ctx, id, []engine.Claim{c}, long)
			s.check(err)
			started[i] = held[0]
		}
	}, func() {
		for i, c := range claims {
			waits[i] = s.commits(0, engine.Batch{put(c.Key, ahead, engine.Always)})[0].Wait > 0
		}
	})
	for i := range claims {
		if started[i] != waits[i] {
			s.t.Errorf("started is %v, and the writer waits is %v", started[i], waits[i])
		}
	}
}
