// SPDX-License-Identifier: MIT

package enginetest

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// fail returns w with Failing set.
func fail(w engine.Write) engine.Write {
	w.Failing = true
	return w
}

// order checks that a walk from the given key yields the wanted keys.
func (s *subject) order(of engine.Order, from string, want ...string) {
	s.t.Helper()
	var got []string
	for _, task := range s.walk(engine.Range{Order: of, From: from}) {
		got = append(got, task.Key)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("the walk in the order %d from %.20q yields %.300q, want %.300q", of, from, got, want)
	}
}

func keyOrder(s *subject) {
	keys := []string{"\x00", "a", "a\x00", "aa", "b", "k", "ä", "\xff", "\xff\xff"}
	for i, key := range keys {
		s.commit(0, add(key, ahead-int64(i)))
	}
	for i, key := range keys {
		s.order(engine.ByKey, key, keys[i:]...)
		s.order(engine.ByKey, key+"\x00\x00", slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
			return k < key+"\x00\x00"
		})...)
	}
	for task, err := range s.Walk(s.ctx, engine.Range{Order: engine.ByKey, From: "aa"}) {
		s.check(err)
		want := put("aa", ahead-3, engine.IfAbsent)
		if task.Due != want.Due || !bytes.Equal(task.Data, want.Data) || task.Kind != kind || task.Revision == 0 {
			s.t.Errorf("the walk by key yields %+v", task)
		}
		break
	}
	many := s.add(3000, ahead) // several pages
	s.order(engine.ByKey, "k0", append(many, "ä", "\xff", "\xff\xff")...)
}

// Get returns each task once, whatever the order and repetition of the keys.
func manyKeys(s *subject) {
	for _, key := range odd {
		s.commit(0, add(key, ahead))
	}
	many := s.add(2000, ahead)
	s.claim(s.join("a", long), -1, ahead, 100)
	asked := append(slices.Concat(odd, many, odd), "none", "k")
	got, err := s.Get(s.ctx, asked...)
	s.check(err)
	if len(got) != len(odd)+len(many) {
		s.t.Errorf("of %d keys %d tasks are found", len(odd)+len(many), len(got))
	}
	for i, task := range got {
		if i%10 != 0 && i > 200 {
			continue
		}
		if one := s.get(task.Key); one.Revision != task.Revision || one.Owner != task.Owner || one.Kind != task.Kind ||
			one.Due != task.Due || !bytes.Equal(one.Data, task.Data) {
			s.t.Errorf("Get of many keys returns %+v, and of one %+v", task, one)
		}
	}
	if got, err := s.Get(s.ctx); len(got) != 0 || err != nil {
		s.t.Errorf("Get of nothing returns %s, %v", keys(got), err)
	}
}

// The last write of a task decides whether the task is failing, whether a member holds it or not.
func failing(s *subject) {
	walk := func(want ...string) {
		s.t.Helper()
		s.order(engine.Failing, "", want...)
	}
	s.add(2000, 0)
	walk()
	s.commit(0, fail(add("a", 1)), fail(add("b", ahead)), fail(add("c", math.MaxInt64)), add("d", 1))
	walk("a", "b", "c")
	s.order(engine.Failing, "a\x00", "b", "c")
	id := s.join("a", long)
	s.claimAll(id)
	walk("a", "b", "c")
	a := s.get("a")
	s.confirms(id, a)
	walk("a", "b", "c")
	w := fail(unchanged(put("a", 2, engine.Always), a.Revision))
	w.Hold = true
	s.commit(id, w)
	s.commit(0, put("b", ahead, engine.Always), fail(put("d", math.MaxInt64, engine.Always)))
	walk("a", "c", "d")
	s.check(s.Leave(s.ctx, id))
	walk("a", "c", "d")
	s.commit(0, put("a", ahead, engine.Always), remove("c"), put("d", ahead+1, engine.Always))
	walk()
	var adds engine.Batch
	var keys []string
	for _, key := range s.keysOf("f", 3000) {
		adds, keys = append(adds, fail(add(key, ahead))), append(keys, key)
	}
	s.commit(0, adds...)
	walk(keys...)
}

func (s *subject) keysOf(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, prefix+string(rune('a'+i/676))+string(rune('a'+i/26%26))+string(rune('a'+i%26)))
	}
	return keys
}

func census(s *subject) {
	counts := func(want ...engine.KindCount) {
		s.t.Helper()
		for by, e := range map[string]engine.Engine{"the engine": s.Engine, "walks": struct{ engine.Engine }{s.Engine}} {
			got, err := engine.Count(s.ctx, e)
			s.check(err)
			slices.SortFunc(got, func(a, b engine.KindCount) int { return cmp.Compare(a.Kind, b.Kind) })
			if !slices.Equal(got, want) {
				s.t.Errorf("counted by %s are %+v, want %+v", by, got, want)
			}
		}
	}
	counts()
	of := func(kind string, w engine.Write) engine.Write {
		w.Kind = kind
		return w
	}
	s.commit(0, add("a", 1), fail(add("b", 2)), fail(add("c", math.MaxInt64)), of("x\x00\xff", add("d", 1)))
	one := engine.KindCount{Kind: "x\x00\xff", Tasks: 1}
	counts(engine.KindCount{Kind: kind, Tasks: 3, Failing: 2, Parked: 1}, one)
	s.claimAll(s.join("a", long))
	counts(engine.KindCount{Kind: kind, Tasks: 3, Failing: 2, Parked: 1}, one)
	s.commit(0, put("b", math.MaxInt64-1, engine.Always), fail(put("c", math.MaxInt64-1, engine.Always)))
	counts(engine.KindCount{Kind: kind, Tasks: 3, Paused: 2}, one)
	s.commit(0, fail(put("b", 5, engine.Always)), put("c", math.MaxInt64-2, engine.Always))
	counts(engine.KindCount{Kind: kind, Tasks: 3, Failing: 1}, one)
	s.commit(0, put("b", 5, engine.Always), remove("c"))
	counts(engine.KindCount{Kind: kind, Tasks: 2}, one)
}

func members(s *subject) {
	list := func() (all []engine.Membership) {
		s.t.Helper()
		all, _, err := s.Renew(s.ctx, 0, nil)
		s.check(err)
		slices.SortFunc(all, func(a, b engine.Membership) int { return strings.Compare(a.Name, b.Name) })
		return all
	}
	if all := list(); len(all) != 0 {
		s.t.Errorf("before the first the members are %+v", all)
	}
	a, b := s.join("a", long), s.join("b", short)
	s.add(3, 0)
	s.claim(a, -1, ahead, 2)
	report := []byte(`{"version":"1"}`)
	renewed, at, err := s.Renew(s.ctx, a, report)
	s.check(err)
	slices.SortFunc(renewed, func(a, b engine.Membership) int { return strings.Compare(a.Name, b.Name) })
	if len(renewed) != 2 || renewed[0].ID != a || renewed[0].Left != long ||
		string(renewed[0].Report) != string(report) || renewed[1].ID != b || renewed[1].Lease != short {
		s.t.Errorf("renewing returns the members %+v", renewed)
	}
	if now := s.now(); now < at {
		s.t.Errorf("the time is %d, and was %d", now, at)
	}
	copy(report, "xxxxx")
	_, _, err = s.Renew(s.ctx, a, []byte(`{"version":"0"}`)) // a report that arrives late
	s.check(err)
	s.until("the lease of b has run out", func() bool { return list()[1].Left < 0 })
	all := list()
	if all[0].ID != a || all[0].Name != "a" || string(all[0].Report) != `{"version":"1"}` ||
		all[0].Lease != long || all[0].Left <= 0 || all[0].Left > long {
		s.t.Errorf("a is %+v", all[0])
	}
	if all[1].ID != b || len(all[1].Report) != 0 || all[1].Lease != short {
		s.t.Errorf("b is %+v", all[1])
	}
	s.reapUntil("b")
	if all := list(); len(all) != 1 {
		s.t.Errorf("after b was reaped the members are %+v", all)
	}
	if _, _, err := s.Renew(s.ctx, a, make([]byte, engine.MaxReport+1)); err == nil {
		s.t.Error("a report that is too long is accepted")
	}
	if _, _, err := s.Renew(s.ctx, a, bytes.Repeat([]byte{0xff}, engine.MaxReport)); err != nil {
		s.t.Errorf("the longest report: %v", err)
	}
	s.check(s.Leave(s.ctx, a))
	if all := list(); len(all) != 0 {
		s.t.Errorf("after the last has left the members are %+v", all)
	}
}
