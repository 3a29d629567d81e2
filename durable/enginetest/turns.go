// SPDX-License-Identifier: MIT

package enginetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// of returns w with its group set.
func of(group string, w engine.Write) engine.Write {
	w.Group = group
	return w
}

// turns makes a fair claim. It returns the keys of the claimed tasks, in due order, and the group after which to
// continue.
func (s *subject) turns(by engine.MemberID, kinds []string, group string, until int64, most int) string {
	s.t.Helper()
	return s.turnsOf(fairly(by, kinds, group, until, most))
}

// fairly returns the request for a fair claim. It sets After to the latest time, because a fair claim must ignore
// After.
func fairly(by engine.MemberID, kinds []string, group string, until int64, most int) engine.ClaimRequest {
	r := request(by, kinds, math.MaxInt64, until, most)
	r.Fair, r.Group = true, group
	return r
}

func (s *subject) turnsOf(r engine.ClaimRequest) string {
	s.t.Helper()
	by := r.By
	claims, err := s.Claim(s.ctx, r)
	s.check(err)
	got, next := claims.Tasks, claims.Next
	slices.SortFunc(got, func(a, b engine.Stored) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), strings.Compare(a.Key, b.Key))
	})
	for _, task := range got {
		if now := s.get(task.Key); now.Owner != by || task.Owner != by || now.Revision != task.Revision ||
			now.Group != task.Group || now.Kind != task.Kind || string(now.Data) != string(task.Data) {
			s.t.Errorf("claimed is %+v, and the task is %+v", task, now)
		}
	}
	var said []string
	for _, task := range got {
		said = append(said, task.Key)
	}
	if next != "" {
		said = append(said, "then "+next)
	}
	return strings.Join(said, " ")
}

// The groups take turns in the order of their names. Tasks without a group come last.
func claimTurns(s *subject) {
	kinds := []string{"no such", "odd", kind}
	var batch engine.Batch
	for i := range int64(8) {
		batch = append(batch, of("b", add(fmt.Sprint("b", i), 10+i)))
	}
	batch = append(batch, of("a\xff", add("a0", 30)), of("c", add("c0", 40)), of("c", add("c1", 41)),
		add("none0", 20), add("none1", 21), of("idle", add("idle0", 1000)), of("idle", add("idle1", math.MaxInt64)))
	other := of("d", add("d0", 5))
	other.Kind = "odd"
	batch = append(batch, other)
	s.commit(0, batch...)
	id, gone := s.join("a", long), s.join("gone", long)
	for _, c := range []struct {
		kinds []string
		group string
		until int64
		most  int
		want  string
	}{
		{kinds, "", 100, 0, ""},
		{nil, "", 100, 10, ""},
		{kinds[:1], "", 100, 10, ""},
		{kinds, "", 4, 10, ""},
		{kinds, "", 100, 2, "b0 a0 then b"}, // one task of each group; the next claims continue
		{kinds, "b", 100, 2, "d0 c0 then d"},
		{kinds, "d", 100, 2, "none0"}, // skips idle groups and reaches the end
		{kinds, "zz", 100, 2, "none1"},
		{kinds, "c", 100, 2, ""},
		{kinds, "", 100, 4, "b1 b2 c1"}, // covers all groups, so each gets more
		{kinds[2:], "", 14, 5, "b3 b4"},
		{kinds, "", 100, 2, "b5 b6"},
		{kinds, "", math.MaxInt64 - 1, 10, "b7 idle0"},
		{kinds, "", math.MaxInt64 - 1, 10, ""},
	} {
		if got := s.turns(id, c.kinds, c.group, c.until, c.most); got != c.want {
			s.t.Errorf("of %q after %q until %d at most %d, claimed are %q, want %q",
				c.kinds, c.group, c.until, c.most, got, c.want)
		}
	}
	// A task that is written again belongs to the group in the new write.
	s.write(0, of("x", put("b0", 1, engine.Always)))
	s.write(0, put("a0", 2, engine.Always))
	s.write(0, of("y", put("c0", 3, engine.Always)))
	old := fairly(id, kinds, "", 100, 10)
	old.Readable = 1
	if got := s.turnsOf(old); got != "" {
		s.t.Errorf("claimed of versions that are left out are %q", got)
	}
	if got := s.turns(gone, kinds, "w", 100, 1); got != "b0 then x" {
		s.t.Errorf("claimed are %q", got)
	}
	if got := s.turns(gone, kinds, "x", 100, 10); got != "a0 c0" {
		s.t.Errorf("claimed are %q", got)
	}
	s.check(s.Leave(s.ctx, gone))
	if _, err := s.Claim(s.ctx, fairly(gone, kinds, "", 100, 10)); err == nil {
		s.t.Error("a member that has left claims")
	}
	if got := s.turns(s.join("b", long), kinds, "", 100, 3); got != "b0 a0 c0" { // the tasks are free again
		s.t.Errorf("claimed of the tasks that are free again are %q", got)
	}
}

// If several members make fair claims, each task is claimed once, and each group gets its share, however many due tasks
// another group has.
func claimTurnsEvenly(s *subject) {
	const crowd, few, groups, most = 3000, 40, 20, 32
	var batch engine.Batch
	for i := range crowd {
		batch = append(batch, of("crowd", add(fmt.Sprint("crowd", i), int64(i))))
	}
	for i := range few * groups {
		group := fmt.Sprintf("g%02d", i%groups)
		if i%groups == 0 {
			group = ""
		}
		batch = append(batch, of(group, add(fmt.Sprint("few", i), crowd+int64(i))))
	}
	s.commit(0, batch...)
	var cursor [2]string
	ids := []engine.MemberID{s.join("a", long), s.join("b", long)}
	owned, count := make(map[string]bool), make(map[string]int)
	for round := 0; len(owned) < len(batch); round++ {
		i := round % 2
		claims, err := s.Claim(s.ctx, fairly(ids[i], []string{kind}, cursor[i], ahead, most))
		s.check(err)
		got, next := claims.Tasks, claims.Next
		if len(got) > most || len(got) == 0 && cursor[i] == "" {
			s.t.Fatalf("claimed are %d of %d, and %d are left", len(got), most, len(batch)-len(owned))
		}
		cursor[i] = next
		for _, task := range got {
			if owned[task.Key] {
				s.t.Errorf("%q is claimed twice", task.Key)
			}
			owned[task.Key] = true
			count[task.Group]++
		}
		if len(owned) <= few*groups/2 { // no group has run out of tasks
			for group := range 2 * groups {
				name := fmt.Sprintf("g%02d", group)
				if n := count[name]; group > 0 && group < groups && (n > count["crowd"]+4 || n < count["crowd"]-4) ||
					count[""] < count["crowd"]-4 {
					s.t.Fatalf("after %d claims %d are of %s, %d of the crowd, %d of none", round+1, n, name,
						count["crowd"], count[""])
				}
			}
		}
	}
}

// A group may have tasks of several kinds, of which only some are requested.
func claimTurnsOfKinds(s *subject) {
	var batch engine.Batch
	for i, kind := range []string{"b", "a", "c", "b", "a", "b"} {
		for _, group := range []string{"", "g"} {
			w := of(group, add(fmt.Sprint(kind, i, group), int64(10+i)))
			w.Kind = kind
			batch = append(batch, w)
		}
	}
	s.commit(0, batch...)
	id := s.join("a", long)
	kinds := []string{"a", "b"}
	for _, want := range []string{"b0 b0g", "a1 a1g", "b3 b3g"} {
		if got := s.turns(id, kinds, "", 100, 3); got != want {
			s.t.Errorf("claimed are %q, want %q", got, want)
		}
	}
	if got := s.turns(id, kinds, "", 100, 5); got != "a4 a4g b5 b5g" {
		s.t.Errorf("claimed are %q", got)
	}
}

// A member that can read only some tasks of a group gets only those tasks.
func claimTurnsOfVersions(s *subject) {
	var batch engine.Batch
	for i, version := range []byte{7, 6, 7, 5} {
		for _, group := range []string{"", "g"} {
			w := of(group, add(fmt.Sprintf("%d%d%s", version, i, group), int64(i)))
			w.Data[0] = version
			batch = append(batch, w)
		}
	}
	s.commit(0, batch...)
	id := s.join("a", long)
	old := fairly(id, []string{kind}, "", 100, 2)
	old.Readable = 6
	for _, want := range []string{"61 61g", "53 53g", ""} {
		if got := s.turnsOf(old); got != want {
			s.t.Errorf("claimed are %q, want %q", got, want)
		}
	}
}

// A fair claim gets past any number of groups without due tasks.
func claimTurnsOfMany(s *subject) {
	var batch engine.Batch
	for i := range 2500 {
		batch = append(batch, of(fmt.Sprintf("idle %04d", i), add(fmt.Sprint("idle ", i), ahead)))
	}
	batch = append(batch, of("first", add("first 0", 3)), of("first", add("first 1", 4)), of("last", add("last 0", 5)),
		of("last", add("last 1", 6)), add("none", 7))
	s.commit(0, batch...)
	id := s.join("a", long)
	var got []string
	var next string
	for calls := 0; ; {
		claims, err := s.Claim(s.ctx, fairly(id, []string{kind}, next, 10, 100))
		s.check(err)
		tasks, to := claims.Tasks, claims.Next
		groups := make(map[string]bool)
		for _, task := range tasks {
			if got = append(got, task.Key); groups[task.Group] && (next != "" || to != "") {
				s.t.Errorf("call %d has come from %q to %q, and gives several of a group", calls, next, to)
			}
			groups[task.Group] = true
		}
		if calls++; to == "" {
			break
		}
		if next >= to || calls == 10 {
			s.t.Fatalf("call %d continues after %q, and comes to %q", calls, next, to)
		}
		next = to
	}
	for _, key := range []string{"first 0", "last 0", "none"} {
		if !slices.Contains(got, key) {
			s.t.Errorf("claimed are %q, and not %q", got, key)
		}
	}
}
