// SPDX-License-Identifier: MIT

package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Every method that returns the time returns the engine's time, which is close to real time and never decreases.
func clock(s *subject) {
	s.add(1, 0)
	var last int64
	for range 10 {
		id, joined, err := s.Join(s.ctx, "a", long)
		s.check(err)
		renewed := s.renew(id)
		claimed, err := s.Claim(s.ctx, request(id, []string{kind}, -1, 10, 1))
		s.check(err)
		fair := request(id, []string{kind}, -1, 10, 1)
		fair.Fair = true
		fairly, err := s.Claim(s.ctx, fair)
		s.check(err)
		_, confirmed, err := s.Confirm(s.ctx, id, nil, time.Second)
		s.check(err)
		now := s.now()
		times := []int64{last, joined, renewed, claimed.Now, fairly.Now, confirmed, now}
		if !slices.IsSorted(times) {
			s.t.Errorf("the engine's clock falls: %d", times)
		}
		last = now
		if off := time.Until(time.Unix(0, joined)); off.Abs() > 24*time.Hour {
			s.t.Errorf("the engine's clock is %v off", off)
		}
	}
}

// A lease lasts for its stated length from Join and from each Renew.
func lease(s *subject) {
	watch := s.join("watch", long)
	now := func() int64 { return s.renew(watch) }
	s.write(0, add("k", 1))
	began := now()
	id, joined, err := s.Join(s.ctx, "a", short)
	s.check(err)
	if joined < began || joined > now() {
		s.t.Errorf("Join returns the time %d, and it was %d before", joined, began)
	}
	end := joined + int64(short)
	task := s.claimAll(id)
	for len(task) == 0 { // the lease expired before the claim
		end = s.renew(id) + int64(short)
		task = s.claimAll(id)
	}
	during, after := 0, 0
	for renewals := 0; during == 0 || after == 0 || renewals < 3; {
		before := now()
		confirmed := s.confirms(id, task[0])
		switch behind := now(); {
		case behind < end:
			during++
			if !confirmed {
				s.t.Fatalf("a claim is not confirmed %v before the end of the lease", time.Duration(end-behind))
			}
		case before >= end:
			after++
			if confirmed {
				s.t.Fatalf("a claim is confirmed %v after the end of the lease", time.Duration(before-end))
			}
			if _, end, err = s.Renew(s.ctx, id, nil); err != nil {
				s.t.Fatalf("a member whose lease ran out, and that is not reaped, cannot renew it: %v", err)
			}
			end += int64(short)
			renewals++
		case renewals < 2 && during > 0: // a lease that is renewed before it expires lasts longer
			end = s.renew(id) + int64(short)
		}
		time.Sleep(short / 20)
	}
}

// runsOut waits until the lease of the member, which holds the task, has expired.
func (s *subject) runsOut(id engine.MemberID, task engine.Stored) {
	s.t.Helper()
	s.until("the lease runs out", func() bool { return !s.confirms(id, task) })
}

// A member whose lease has expired keeps its tasks, but can neither claim nor start tasks until it renews the lease.
func expired(s *subject) {
	s.add(2, 0)
	id, other := s.join("a", short), s.join("other", long)
	w := s.write(0, put("k000000", 1, engine.Always))
	var task engine.Stored
	s.until("the member has a claim", func() bool { // the lease may expire before the claim
		s.renew(id)
		got := s.claim(id, -1, 1, 1)
		if len(got) == 1 {
			task = got[0]
		}
		return len(got) == 1
	})
	if task.Key != "k000000" || task.Revision <= w.Revision {
		s.t.Errorf("claimed is %+v", task)
	}
	s.runsOut(id, task)
	if got := s.claimAll(id); len(got) != 0 {
		s.t.Errorf("a member whose lease ran out claims %s", keys(got))
	}
	if done := s.write(id, held(add("new", 1))); done.Held || s.get("new").Owner != 0 {
		s.t.Error("a member whose lease ran out holds what it writes")
	}
	if got := s.claimed(id); keys(got) != keys([]engine.Stored{task}) {
		s.t.Errorf("it holds %s", keys(got))
	}
	if n := s.leased(other); n != 1 {
		s.t.Errorf("there are %d members with a lease, want 1", n)
	}
	if got := s.claimAll(other); len(got) != 2 {
		s.t.Errorf("another member claims %s", keys(got))
	}
	s.until("the claim is confirmed again", func() bool { // this succeeds at once unless the machine is slow
		if n := s.leased(id); n != 2 {
			s.t.Errorf("there are %d members with a lease, want 2", n)
		}
		return s.confirms(id, task)
	})
}

func reap(s *subject) {
	s.add(5, 0)
	id, other := s.join("short", short), s.join("long", long)
	var mine []engine.Stored
	s.until("the member has claims", func() bool {
		s.renew(id)
		mine = append(mine, s.claim(id, -1, 3, 10)...)
		return len(mine) == 3
	})
	theirs := s.claim(other, -1, 4, 1)
	s.runsOut(id, mine[0])
	s.reapUntil("short")
	if names := s.reap(); len(names) != 0 {
		s.t.Errorf("reaped are %q after that", names)
	}
	s.gone(id)
	for _, task := range mine {
		if now := s.get(task.Key); now.Owner != 0 || now.Revision <= task.Revision || now.Due != task.Due {
			s.t.Errorf("a reaped member's task is %+v, and was %+v", now, task)
		}
		if r := s.commit(id, unchanged(remove(task.Key), task.Revision)); len(r.Unmet) == 0 {
			s.t.Error("the acknowledgement of a member that is gone is accepted")
		}
	}
	if done := s.write(id, held(add("late", 1))); done.Held || s.get("late").Owner != 0 {
		s.t.Error("a member that is gone holds what it writes")
	}
	if !s.confirms(other, theirs[0]) {
		s.t.Error("the claim of another member is lost")
	}
	for _, task := range mine {
		if s.confirms(other, task) {
			s.t.Error("another member confirms the claim of a reaped one")
		}
	}
	if got := s.claimAll(other); len(got) != 5 {
		s.t.Errorf("another member claims %s", keys(got))
	}
	if next := s.join("short", long); next == id || next == other {
		s.t.Errorf("the member %d has the number of an earlier one", next)
	}
	if names := s.reap(); len(names) != 0 {
		s.t.Errorf("reaped is %q, whose lease lasts", names)
	}
}

// Members with the same name are reaped individually, and each exactly once, even if many callers reap.
func reapSeveral(s *subject) {
	s.join("z", long)
	want := []string{"x", "x", "y"}
	for _, name := range want {
		s.write(s.join(name, time.Millisecond), held(put(name, 1, engine.Always)))
	}
	var mu sync.Mutex
	var got []string
	all(times(4, func(int) {
		s.until("all are reaped", func() bool {
			names := s.reap()
			mu.Lock()
			defer mu.Unlock()
			got = append(got, names...)
			return len(got) >= len(want)
		})
	})...)
	if slices.Sort(got); !slices.Equal(got, want) {
		s.t.Errorf("reaped are %q, want %q", got, want)
	}
	if task := s.get("x"); task.Owner != 0 || s.get("y").Owner != 0 {
		s.t.Errorf("the member %d is reaped and holds a task", task.Owner)
	}
}

func leave(s *subject) {
	s.add(4, 0)
	id, other := s.join("a", long), s.join("b", long)
	mine := s.claim(id, -1, ahead, 3)
	s.write(id, held(add("held", 1)))
	theirs := s.claimAll(other)
	s.check(s.Leave(s.ctx, id))
	s.gone(id)
	if members, _, err := s.Renew(s.ctx, other, nil); err != nil || len(members) != 1 || members[0].ID != other {
		s.t.Errorf("the members are %+v, %v, want one", members, err)
	}
	if names := s.reap(); len(names) != 0 {
		s.t.Errorf("reaped are %q", names)
	}
	if got := s.claimAll(other); len(got) != len(mine)+1 {
		s.t.Errorf("another member claims %s", keys(got))
	}
	if !s.confirms(other, theirs[0]) {
		s.t.Error("the claim of another member is lost")
	}
}

// After a restart, no member is reaped before the engine has been up for the length of the member's lease.
func restart(s *subject) {
	if s.Restart == nil {
		s.t.Skip("the engine cannot be restarted")
	}
	s.write(0, add("k", 1))
	id := s.join("a", 4*short)
	task := s.claimAll(id)
	if len(task) == 0 {
		s.t.Skip("the machine is too slow")
	}
	s.runsOut(id, task[0])
	before := time.Now()
	s.Restart(s.t)
	s.until("the member is reaped", func() bool {
		_, _ = s.Reap(s.ctx) // a connection from before the restart may fail
		return errors.Is(s.first(s.ctx, engine.Range{Order: engine.Held, By: id}), engine.ErrMemberGone)
	})
	if up := time.Since(before); up < 4*short {
		s.t.Errorf("the member is reaped %v after a restart; its lease is %v", up, 4*short)
	}
	s.is("k", add("k", 1))
	if got := s.claimAll(s.join("b", long)); len(got) != 1 {
		s.t.Errorf("claimed are %s", keys(got))
	}
}

// Members claim, add held tasks and renew while they are being reaped. No task remains held by a member that is gone.
func claimAgainstReap(s *subject) {
	const tasks, callers, joins = 2000, 4, 40
	s.add(tasks, 0)
	all(append(times(callers, func(caller int) {
		for i := range joins {
			id := s.join("brief", time.Millisecond<<(i%6))
			for j := range 3 {
				_, err := s.Claim(s.ctx, request(id, []string{kind}, int64(tasks*j/5), ahead, tasks/10))
				if err != nil {
					break // the member is gone
				}
				s.write(id, held(put(fmt.Sprint("held", caller, j), 1, engine.Always)))
				_, _, _ = s.Renew(s.ctx, id, nil)
			}
		}
	}), times(2, func(int) {
		for range callers * joins {
			s.reap()
		}
	})...)...)
	id, seen := s.join("last", long), make(map[string]bool)
	s.until("all tasks are claimed by the last member", func() bool {
		s.reap()
		last := len(s.members(id)) == 1 // if so, all tasks are free for the last member
		for _, task := range s.claimAll(id) {
			if seen[task.Key] {
				s.t.Errorf("%q is claimed again", task.Key)
			}
			seen[task.Key] = true
		}
		return len(seen) == s.len() || last
	})
	if want := tasks + 3*callers; len(seen) != want {
		s.t.Errorf("%d of %d tasks stay with members that are gone", want-len(seen), want)
	}
	if got := s.claimed(id); len(got) != len(seen) {
		s.t.Errorf("the last member holds %d tasks, and has claimed %d", len(got), len(seen))
	}
}
