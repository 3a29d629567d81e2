// SPDX-License-Identifier: MIT

package enginetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

func hold(s *subject) {
	a, b := s.join("a", long), s.join("b", long)
	for _, c := range []struct {
		by    engine.MemberID
		hold  bool
		owner engine.MemberID
	}{
		{a, true, a}, {a, true, a}, {b, true, b}, {b, false, 0}, {a, false, 0}, {0, true, 0}, {a, true, a},
		{0, false, 0},
	} {
		w := put("k", 1, engine.Always)
		w.Hold = c.hold
		done := s.write(c.by, w)
		task := s.get("k")
		if task.Owner != c.owner || done.Held != (c.owner != 0) {
			s.t.Errorf("written by %d with Hold %v, the owner is %d, and Held %v",
				c.by, c.hold, task.Owner, done.Held)
		}
		for _, id := range []engine.MemberID{a, b} {
			if got := s.claimed(id); (len(got) == 1) != (id == c.owner) {
				s.t.Errorf("the member %d holds %s, and the owner is %d", id, keys(got), c.owner)
			}
			if s.confirms(id, task) != (id == c.owner) {
				s.t.Errorf("the start by %d is not as the owner %d says", id, c.owner)
			}
		}
	}
	// An acknowledgement may keep the task held, and a removal ends the claim.
	s.write(a, held(put("k", 1, engine.Always)))
	s.write(a, held(unchanged(put("k", 2, 0), s.get("k").Revision)))
	if got := s.claimed(a); len(got) != 1 || got[0].Due != 2 || !s.confirms(a, got[0]) {
		s.t.Errorf("after its acknowledgement the member holds %v", got)
	}
	s.write(b, remove("k"))
	if got := s.claimed(a); len(got) != 0 {
		s.t.Errorf("after the removal the member holds %s", keys(got))
	}
}

func claimGives(s *subject) {
	for i := range 20 {
		w := add(fmt.Sprintf("k%02d", i), int64(10+i/2)) // two tasks for each due time from 10 to 19
		if i%2 == 1 {
			w.Kind = "odd"
		}
		if i%3 == 0 {
			w.Group = fmt.Sprint("group ", i%4)
		}
		s.write(0, w)
	}
	s.write(0, add("parked", math.MaxInt64))
	id := s.join("a", long)
	kinds := []string{"no such", "odd", kind}
	for _, c := range []struct {
		kinds        []string
		after, until int64
		most         int
		want         string // the due times of the claimed tasks
	}{
		{kinds, 15, 16, 10, "[16 16]"},
		{kinds, 16, 15, 10, "[]"},
		{kinds, 12, 13, 10, "[13 13]"},
		{kinds[:2], -1, 11, 10, "[10 11]"},
		{kinds[:2], -1, 11, 10, "[]"},
		{kinds[:1], -1, ahead, 10, "[]"},
		{nil, -1, ahead, 10, "[]"},
		{kinds, -1, ahead, 0, "[]"},
		{kinds[1:2], -1, ahead, 2, "[12 14]"},
		{kinds, -1, ahead, 3, "[10 11 12]"},
		{kinds, 17, ahead, 3, "[18 18 19]"},
		{kinds, -1, math.MaxInt64 - 1, 100, "[14 15 15 17 17 19]"},
		{kinds, -1, math.MaxInt64 - 1, 100, "[]"},
	} {
		got := s.claimOf(id, c.kinds, c.after, c.until, c.most)
		dues := []int64{}
		for _, task := range got {
			dues = append(dues, task.Due)
			now := s.get(task.Key)
			if task.Owner != id || now.Owner != id || task.Revision != now.Revision || task.Kind != now.Kind ||
				string(task.Data) != string(now.Data) || task.Due != now.Due {
				s.t.Errorf("claimed is %+v, and the task is %+v", task, now)
			}
		}
		if fmt.Sprint(dues) != c.want {
			s.t.Errorf("of %q after %d until %d at most %d, claimed are %d, want %s",
				c.kinds, c.after, c.until, c.most, dues, c.want)
		}
	}
	held := s.claimed(id)
	if len(held) != 20 || s.len() != 21 {
		s.t.Errorf("the member holds %d tasks of %d, want 20 of 21", len(held), s.len())
	}
	for _, task := range held {
		if now := s.get(task.Key); task.Revision != now.Revision || task.Owner != id || task.Due != now.Due ||
			string(task.Data) != string(now.Data) || task.Kind != now.Kind {
			s.t.Errorf("the member holds %+v, and the task is %+v", task, now)
		}
	}
	// A task whose kind has changed is claimed by its new kind.
	w := put("k00", 10, engine.Always)
	w.Kind = "changed"
	s.write(0, w)
	if got := s.claimAll(id); len(got) != 0 {
		s.t.Errorf("claimed of the old kind are %s", keys(got))
	}
	if got := s.claimOf(id, []string{"changed"}, -1, ahead, 10); len(got) != 1 {
		s.t.Errorf("claimed of the new kind are %s", keys(got))
	}
}

// A claim of several kinds gets the tasks that are due first, whether or not they have groups.
func claimsEarliest(s *subject) {
	id := s.join("a", long)
	rnd := rand.New(rand.NewPCG(3, 4))
	var batch engine.Batch
	for i := range 600 {
		w := of([]string{"", "", "a", "b"}[rnd.IntN(4)], add(fmt.Sprint(i), int64(rnd.IntN(200))))
		w.Kind = fmt.Sprint("kind ", rnd.IntN(5)*rnd.IntN(5))
		batch = append(batch, w)
	}
	s.commit(0, batch...)
	free := s.due(engine.Position{Due: engine.None}, ahead)
	for len(free) > 0 {
		var kinds []string
		for i := range 17 {
			if most := rnd.IntN(17); i <= most {
				kinds = append(kinds, fmt.Sprint("kind ", i))
			}
		}
		after, until, most := int64(rnd.IntN(250)-51), int64(rnd.IntN(250)), rnd.IntN(40)
		var want []engine.Stored
		free = slices.DeleteFunc(free, func(t engine.Stored) bool {
			is := len(want) < most && t.Due > after && t.Due <= until && slices.Contains(kinds, t.Kind)
			if is {
				want = append(want, t)
			}
			return is
		})
		got := s.claimOf(id, kinds, after, until, most)
		if keys(got) != keys(want) {
			s.t.Fatalf("of %q after %d until %d at most %d, claimed are %s, want %s",
				kinds, after, until, most, keys(got), keys(want))
		}
	}
}

// A member gets no records of versions that it cannot read. Members that can read them do.
func laterVersions(s *subject) {
	id, other := s.join("old", long), s.join("new", long)
	fill := func() {
		for i, version := range []byte{1, 2, 3, 200} {
			w := put(fmt.Sprint("version ", version), int64(i), engine.Always)
			w.Data = []byte{version, 'x'}
			s.write(0, w)
		}
	}
	gets := func(who engine.MemberID, readable byte, want string) {
		s.t.Helper()
		r := request(who, []string{kind}, -1, ahead, 10)
		r.Readable = readable
		got, err := s.Claim(s.ctx, r)
		s.check(err)
		if keys(got.Tasks) != want {
			s.t.Errorf("claimed are %s, want %s", keys(got.Tasks), want)
		}
	}
	fill()
	gets(id, 255, `"version 1" "version 2" "version 3" "version 200" `)
	fill()
	gets(id, 0, "")
	gets(id, 1, `"version 1" `)
	gets(other, 199, `"version 2" "version 3" `)
	gets(id, 199, "")
	gets(other, 200, `"version 200" `)
	empty := add("empty", 1)
	empty.Data = []byte{}
	s.write(0, empty)
	gets(id, 0, `"empty" `)
}

// Every task is claimed exactly once, even if many members claim at the same time.
func claimsExclusive(s *subject) {
	const tasks, members = 2000, 8
	s.add(tasks, 0)
	var claiming sync.RWMutex
	claim := func(id engine.MemberID) []engine.Stored {
		claiming.RLock()
		defer claiming.RUnlock()
		return s.claim(id, -1, ahead, 17)
	}
	alone := func(do func()) { // runs do while no claim is in progress
		claiming.Lock()
		defer claiming.Unlock()
		do()
	}
	var mu sync.Mutex
	owner := make(map[string]engine.MemberID)
	all(times(members, func(i int) {
		id := s.join(fmt.Sprint(i), long)
		for {
			got := claim(id)
			mu.Lock()
			for _, task := range got {
				if owner[task.Key] != 0 || task.Owner != id {
					s.t.Errorf("%q is claimed by %d and by %d", task.Key, owner[task.Key], id)
				}
				owner[task.Key] = id
			}
			done := len(owner) == tasks
			mu.Unlock()
			// A claim that was in progress when this one returned may have locked the task. A later claim may not.
			if n := len(got); n > 0 && !s.confirms(id, got[n-1]) {
				alone(func() {
					if !s.confirms(id, got[n-1]) {
						s.t.Errorf("the claim of %q is not confirmed", got[n-1].Key)
					}
				})
			}
			// A claim may return no tasks while other claims have locked the free tasks.
			if done || s.ctx.Err() != nil {
				return
			}
		}
	})...)
	for key, id := range owner {
		if task := s.get(key); task.Owner != id {
			s.t.Errorf("%q was claimed by %d, and its owner is %d", key, id, task.Owner)
		}
	}
}

// A walk in the order Held yields tasks that a member has claimed without receiving the response.
func lostClaims(s *subject) {
	s.add(3, 0)
	id, other := s.join("a", long), s.join("b", long)
	link := NewLink(s.Engine)
	lost := Fault{Lose: true}
	link.Next("Claim", lost)
	if _, err := link.Claim(s.ctx, request(id, []string{kind}, -1, 2, 10)); err == nil {
		s.t.Error("a claim without an answer returns nil")
	}
	if got := s.claimAll(other); len(got) != 1 {
		s.t.Errorf("another member claims %s", keys(got))
	}
	mine := s.claimed(id)
	if len(mine) != 2 {
		s.t.Fatalf("the member holds %s", keys(mine))
	}
	link.Next("Confirm", lost)
	if _, _, err := link.Confirm(s.ctx, id, []engine.Claim{claimOf(mine[0])}, time.Second); err == nil {
		s.t.Error("a confirmation without an answer returns nil")
	}
	if !s.confirms(id, mine[0]) || s.get(mine[0].Key).Starts != 1 {
		s.t.Errorf("after two confirmations of one claim, of which one was lost, the task is %+v", s.get(mine[0].Key))
	}
	link.Next("Release", lost)
	if err := link.Release(s.ctx, id, []engine.Claim{claimOf(mine[1])}); err == nil {
		s.t.Error("a release without an answer returns nil")
	}
	s.check(s.Release(s.ctx, id, []engine.Claim{claimOf(mine[1])}))
	link.Next("Leave", lost)
	if err := link.Leave(s.ctx, id); err == nil {
		s.t.Error("a leave without an answer returns nil")
	}
	s.gone(id)
	if got := s.claimAll(other); len(got) != 2 {
		s.t.Errorf("another member claims %s", keys(got))
	}
}

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

// Until the time of a confirmation is over, a commit says how long its run may still begin, and the new state is not given
// to a member. A commit of the member that has begun the run does not.
func mayBegin(s *subject) {
	const within = time.Second // some of it is left after a few calls
	s.add(10, 0)
	a, b := s.join("a", long), s.join("b", long)
	confirmed := func(by engine.MemberID, tasks ...engine.Stored) {
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
	waits := func(what string, w engine.Written, is bool) {
		s.t.Helper()
		if w.Wait > 0 != is || w.Wait > within || is && w.Held {
			s.t.Errorf("%s: the answer is %+v", what, w)
		}
	}
	mine := s.claimAll(a)
	confirmed(a, append(mine[:6:6], mine[8:]...)...)
	key := func(i int) string { return mine[i].Key }
	begun := func(i int, w engine.Write) engine.Write {
		w.Begun = mine[i].Revision
		return w
	}
	waits("a write of its member", s.write(a, begun(0, held(put(key(0), 1, engine.Always)))), false)
	waits("an end of its run", s.write(a, begun(1, unchanged(remove(key(1)), mine[1].Revision))), false)
	waits("a removal of its member, which may not have begun it", s.write(a, remove(key(8))), true)
	waits("a write of its member, of another revision", s.write(a, begun(8, put(key(9), 1, engine.Always))), true)
	waits("a removal with the revision of another member", s.write(b, begun(9, remove(key(9)))), true)
	waits("a removal", s.write(b, remove(key(2))), true)
	waits("a removal by no member", s.write(0, unchanged(remove(key(3)), mine[3].Revision)), true)
	waits("a write to a task that was not confirmed", s.write(b, held(put(key(6), 1, engine.Always))), false)
	waits("a removal of one", s.write(b, remove(key(7))), false)
	for i, r := range s.commits(b, engine.Batch{held(put(key(4), 1, engine.IfPresent))}, engine.Batch{remove(key(5))}) {
		waits("a batch", r.Written[0], true)
		if i == 0 && !r.Written[0].Replaced {
			s.t.Errorf("the answer of the first batch is %+v", r)
		}
	}
	if r := s.commit(b, unchanged(remove(key(4)), mine[4].Revision)); len(r.Unmet) != 1 {
		s.t.Errorf("a removal of a former state returns %+v", r)
	}
	fair := request(b, []string{kind}, -1, ahead, 10)
	fair.Fair = true
	fairly, err := s.Claim(s.ctx, fair)
	s.check(err)
	if got := append(s.claimAll(a), fairly.Tasks...); len(got) > 0 {
		s.t.Errorf("claimed are %s while a run of a former state may begin", keys(got))
	}
	if task := s.get(key(4)); task.Owner != 0 || task.Starts != 0 || task.Started != 0 || task.Wait <= 0 || task.Wait > within {
		s.t.Errorf("the new state is %+v", task)
	}
	again := s.write(a, held(put(key(4), 2, engine.IfPresent))) // another new state
	waits("a second write", again, true)
	again = s.write(0, put(key(4), 3, engine.IfPresent))
	waits("a third write, by no member", again, true)
	if got := s.claimAll(b); len(got) > 0 {
		s.t.Errorf("claimed are %s while a run of a former state may begin", keys(got))
	}
	time.Sleep(again.Wait)
	got := s.claimAll(b)
	if len(got) != 1 || got[0].Key != key(4) {
		s.t.Fatalf("claimed are %s when the time is over", keys(got))
	}
	waits("a write when the time is over", s.write(0, put(key(4), 3, engine.Always)), false)
	if got = s.claimAll(b); len(got) != 1 {
		s.t.Fatalf("claimed are %s after a write when the time is over", keys(got))
	}
	confirmed(b, got[0])
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
		s.t.Errorf("what is held has %d starts, the last at %d; want 1, at %d", got[0].Starts, got[0].Started, last)
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

// A start is confirmed before another's write of the task, which then waits, or not at all.
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
			waits[i] = s.write(0, put(c.Key, ahead, engine.Always)).Wait > 0
		}
	})
	for i := range claims {
		if started[i] != waits[i] {
			s.t.Errorf("started is %v, and the writer waits is %v", started[i], waits[i])
		}
	}
}

func release(s *subject) {
	names := s.add(5, 0)
	a, b := s.join("a", long), s.join("b", long)
	mine := s.claim(a, -1, ahead, 4)
	theirs := s.claimAll(b)
	s.write(a, held(put(names[1], 2, engine.Always)))
	s.write(0, remove(names[2]))
	s.confirm(a, claimOf(mine[3]))
	s.check(s.Release(s.ctx, a, []engine.Claim{
		claimOf(mine[0]), claimOf(mine[1]), claimOf(mine[2]), claimOf(mine[3]), claimOf(theirs[0]),
		{Key: "none", Revision: 1},
	}))
	if !s.confirms(a, mine[3]) {
		s.t.Error("a task whose start was confirmed is released")
	}
	if s.confirms(a, mine[0]) || s.get(names[0]).Owner != 0 {
		s.t.Error("a released task is still held")
	}
	if !s.confirms(a, s.get(names[1])) {
		s.t.Error("a task is released at a revision that it has no more")
	}
	if !s.confirms(b, theirs[0]) {
		s.t.Error("a member has released the claim of another")
	}
	if got := s.claimAll(b); len(got) != 1 || got[0].Key != names[0] {
		s.t.Errorf("another member claims %s", keys(got))
	}
}
