// SPDX-License-Identifier: MIT

package enginetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
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
