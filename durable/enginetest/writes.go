// SPDX-License-Identifier: MIT

package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
)

func empty(s *subject) {
	s.absent("k")
	if n := s.len(); n != 0 {
		s.t.Errorf("Len is %d", n)
	}
	if got := s.due(engine.Position{Due: engine.None}, math.MaxInt64); len(got) != 0 {
		s.t.Errorf("due are %s", keys(got))
	}
	if names := s.reap(); len(names) != 0 {
		s.t.Errorf("reaped are %q", names)
	}
	if r, err := s.Commit(s.ctx, 0, nil); err != nil || len(r) != 0 {
		s.t.Errorf("a commit of nothing returns %v, %v", r, err)
	}
	if r, err := s.Commit(s.ctx, 0, []engine.Batch{{add("k", 1)}, nil}); err != nil || len(r) != 2 || len(r[0].Written) != 1 ||
		r[1].Busy || len(r[1].Unmet)+len(r[1].Written) != 0 {
		s.t.Errorf("a commit of a batch and of one without writes returns %+v, %v", r, err)
	}
	s.commit(0, remove("k"))
	s.gone(12345)
	id := s.join("a", long)
	if got := s.claimAll(id); len(got) != 0 {
		s.t.Errorf("claimed are %s", keys(got))
	}
	if got := s.claimed(id); len(got) != 0 {
		s.t.Errorf("the member holds %s", keys(got))
	}
	if got := s.confirm(id); len(got) != 0 {
		s.t.Errorf("confirmed are %v", got)
	}
	s.check(s.Release(s.ctx, id, nil))
}

// A call whose context is done returns an error, so that its caller cannot mistake its results for a response.
func contextDone(s *subject) {
	s.add(1, 0)
	id := s.join("a", long)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, commit := s.Commit(ctx, 0, []engine.Batch{{remove("k000000")}})
	_, note := s.Commit(ctx, 0, []engine.Batch{{noteOf("n", "x", engine.Always)}})
	_, get := s.Get(ctx, "k000000")
	_, count := engine.Count(ctx, s.Engine)
	_, _, now := s.Renew(ctx, 0, nil)
	_, _, join := s.Join(ctx, "b", long)
	_, _, renew := s.Renew(ctx, id, nil)
	_, reap := s.Reap(ctx)
	_, claim := s.Claim(ctx, request(id, []string{kind}, -1, ahead, 1))
	_, fair := s.Claim(ctx, fairly(id, []string{kind}, "", ahead, 1))
	one := []engine.Claim{{Key: "k000000", Revision: 1}}
	_, _, confirm := s.Confirm(ctx, id, one, time.Second)
	walk := func(of engine.Order) error { return s.first(ctx, engine.Range{Order: of, Until: ahead, By: id}) }
	for method, err := range map[string]error{
		"Commit": commit, "Commit of a note": note, "Get": get, "Count": count, "Renew by 0": now, "Join": join,
		"Renew": renew, "Reap": reap, "Claim": claim, "a fair Claim": fair, "Confirm": confirm,
		"Release": s.Release(ctx, id, one), "Leave": s.Leave(ctx, id), "Walk by due time": walk(engine.ByDue),
		"Walk by key": walk(engine.ByKey), "Walk over failing": walk(engine.Failing),
		"Walk over held": walk(engine.Held), "Walk over notes": walk(engine.Notes),
	} {
		if err == nil {
			s.t.Errorf("%s returns no error", method)
		}
	}
}

// conditionCases lists every condition of a write, with and without an existing task or note.
var conditionCases = []struct {
	name    string
	cond    engine.Condition
	present bool // the task or note exists before the write
	stale   bool // Write.Revision is an earlier revision
	holds   bool
}{
	{"absent, and is", engine.IfAbsent, false, false, true},
	{"absent, and is not", engine.IfAbsent, true, false, false},
	{"present, and is", engine.IfPresent, true, false, true},
	{"present, and is not", engine.IfPresent, false, false, false},
	{"unchanged, and is", engine.IfUnchanged, true, false, true},
	{"unchanged, and was changed", engine.IfUnchanged, true, true, false},
	{"unchanged, and is not there", engine.IfUnchanged, false, false, false},
	{"unstarted, and is", engine.IfUnstarted, true, false, true},
	{"unstarted, and was changed", engine.IfUnstarted, true, true, false},
	{"unstarted, and is not there", engine.IfUnstarted, false, false, false},
	{"always, and is there", engine.Always, true, false, true},
	{"always, and is not there", engine.Always, false, false, true},
}

// Every condition is tested on writes that put and writes that delete, with and without an existing task.
func conditions(s *subject) {
	for _, c := range conditionCases {
		for _, deletes := range []bool{false, true} {
			key := fmt.Sprint(c.name, deletes)
			before := put(key, 1, engine.Always)
			w := put(key, 2, c.cond)
			if deletes {
				w.Data = nil
			}
			if c.present {
				w.Revision = s.write(0, before).Revision
			}
			if c.stale {
				s.write(0, before)
			}
			r := s.commit(0, w)
			if done := len(r.Unmet) == 0; done != c.holds {
				s.t.Errorf("%s: the write is done: %v", key, done)
				continue
			}
			after := before
			if c.holds {
				after = w
				if got := r.Written[0]; got.Replaced != c.present || got.Held || !deletes && got.Revision == 0 {
					s.t.Errorf("%s: the result is %+v", key, got)
				}
			} else if !slices.Equal(r.Unmet, []string{key}) {
				s.t.Errorf("%s: unmet is %q", key, r.Unmet)
			}
			if after.Data != nil && (c.present || c.holds) {
				s.is(key, after)
			} else {
				s.absent(key)
			}
		}
	}
}

func batchesWhole(s *subject) {
	s.add(3, 0) // k000000 to k000002
	results := s.commits(0,
		engine.Batch{add("a", 1), add("k000000", 1), add("b", 2), remove("c"), put("k000001", 99, engine.Always)},
		engine.Batch{add("d", 3), remove("k000002")},
		engine.Batch{remove("e")},
		engine.Batch{add("f", 4)},
	)
	var unmet [][]string
	for _, r := range results {
		slices.Sort(r.Unmet)
		unmet = append(unmet, r.Unmet)
	}
	if got := fmt.Sprint(unmet); got != "[[c k000000] [] [e] []]" {
		s.t.Errorf("unmet are %s", got)
	}
	for _, key := range []string{"a", "b", "c", "e", "k000002"} {
		s.absent(key)
	}
	s.is("k000000", add("k000000", 1))
	s.is("k000001", add("k000001", 2))
	s.is("d", add("d", 3))
	s.is("f", add("f", 4))
	if r := results[1].Written; r[0].Replaced || !r[1].Replaced || r[0].Revision != s.get("d").Revision {
		s.t.Errorf("the second batch has written %+v", r)
	}
	if n := s.len(); n != 4 {
		s.t.Errorf("there are %d tasks, want 4", n)
	}
}

func addChangeRemove(s *subject) {
	s.write(0, add("a", 10))
	s.is("a", add("a", 10))
	w := put("a", math.MaxInt64, engine.IfPresent)
	w.Kind = "other"
	if done := s.write(0, w); !done.Replaced || done.Revision != s.get("a").Revision {
		s.t.Errorf("the change returned %+v", done)
	}
	s.is("a", w)
	if n := s.len(); n != 1 {
		s.t.Errorf("there are %d tasks, want 1", n)
	}
	s.write(0, remove("a"))
	s.absent("a")
	s.write(0, add("a", 5))
	s.is("a", add("a", 5))
	if n := s.len(); n != 1 {
		s.t.Errorf("there are %d tasks, want 1", n)
	}
}

// Every change to a task assigns a revision greater than all earlier ones, and earlier revisions match nothing.
func revisionsRise(s *subject) {
	var last int64
	a, b := s.join("a", long), s.join("b", long)
	rises := func(what string) {
		s.t.Helper()
		task := s.get("k")
		if task.Revision <= last {
			s.t.Errorf("after %s the revision is %d, and was %d before", what, task.Revision, last)
		}
		if r := s.commit(0, unchanged(put("k", 1, 0), last)); len(r.Unmet) == 0 {
			s.t.Errorf("after %s a write at the revision before is done", what)
		}
		last = task.Revision
	}
	claim := func(by engine.MemberID) {
		s.t.Helper()
		if got := s.claimAll(by); len(got) != 1 || got[0].Revision != s.get("k").Revision || got[0].Owner != by {
			s.t.Errorf("claimed is %+v, and the task is %+v", got, s.get("k"))
		}
	}
	s.write(0, add("k", 1))
	rises("an add")
	s.write(0, put("k", 1, engine.Always))
	rises("a change to the same")
	claim(a)
	rises("a claim")
	if !s.confirms(a, s.get("k")) || s.get("k").Revision != last {
		s.t.Error("a confirmation changes the revision, or is refused")
	}
	s.check(s.Release(s.ctx, a, []engine.Claim{claimOf(s.get("k"))}))
	rises("a release")
	claim(b)
	rises("a claim")
	s.check(s.Leave(s.ctx, b))
	rises("a member's leaving")
	s.write(0, remove("k"))
	s.write(0, add("k", 1))
	rises("a removal and an add")
	c := s.join("c", short)
	s.write(c, held(put("k", 1, engine.Always)))
	rises("a change")
	s.reapUntil("c")
	rises("a reaping")
	s.write(0, remove("k"))
	if w := s.write(0, add("another", 1)); w.Revision <= last {
		s.t.Errorf("the revision of another key is %d, and that of a task before was %d", w.Revision, last)
	}
}

func bytesCopied(s *subject) {
	w := add("k", 1)
	s.write(0, w)
	copy(w.Data, "xxxx")
	id := s.join("a", long)
	check := func(given []byte) {
		s.t.Helper()
		copy(given, "yyyy")
		s.is("k", add("k", 1))
	}
	check(s.get("k").Data)
	check(s.due(engine.Position{}, 1)[0].Data)
	check(s.claimAll(id)[0].Data)
	check(s.claimed(id)[0].Data)
}

// odd lists strings that are special in some database or that many databases do not support.
var odd = []string{"\x00", "\x00\x00", "\xff", "\xff\xff", "a", "A", "a\x00", "a\x00b", "ab", "ä", "a\u0308",
	" ", "a ", "a'b", `a"b`, `a\b`, `\x61`, "{a,b}", "NULL", "null", "a\nb", "%", "_", "\u2028", "\xed\xa0\x80"}

func anyBytes(s *subject) {
	longest := func(n int) []string { return append(odd, strings.Repeat("\xff", n), strings.Repeat("x", n)) }
	var batch engine.Batch
	var kinds []string
	for i, key := range longest(durable.MaxKey) {
		w := add(key, 7)
		w.Kind = longest(durable.MaxKind)[i]
		w.Data = []byte(key)
		kinds = append(kinds, w.Kind)
		batch = append(batch, w)
	}
	batch = append(batch, engine.Write{
		Record: engine.Record{Key: "no data", Due: 7, Data: []byte{}}, Kind: kind, If: engine.IfAbsent,
	})
	if r := s.commit(0, batch...); len(r.Unmet) > 0 {
		s.t.Fatalf("unmet are %.100q", r.Unmet)
	}
	sorted := slices.Clone(batch)
	slices.SortFunc(sorted, func(a, b engine.Write) int { return cmp.Compare(a.Key, b.Key) })
	for i, got := range s.due(engine.Position{}, 7) {
		if got.Key != sorted[i].Key || got.Kind != sorted[i].Kind {
			s.t.Errorf("walk: key %.20q of kind %.20q, want %.20q of %.20q",
				got.Key, got.Kind, sorted[i].Key, sorted[i].Kind)
		}
	}
	id := s.join("\x00 any ä\xff", long)
	for i, w := range batch {
		s.is(w.Key, w)
		if i == len(kinds) {
			continue
		}
		got := s.claimOf(id, kinds[i:i+1], -1, ahead, 10)
		if len(got) != 1 || got[0].Key != w.Key || !s.confirms(id, got[0]) {
			s.t.Errorf("claimed of kind %.20q is %s", kinds[i], keys(got))
		}
		if i%2 == 0 {
			s.write(0, remove(w.Key))
			s.absent(w.Key)
		}
	}
	s.absent("a\x00\x00")
	s.absent("")
}

func largeRecords(s *subject) {
	data := []byte(strings.Repeat("0123456789abcdef", durable.MaxPayload/16+100))
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		data[i] ^= byte(rnd.Uint32()) // makes the data incompressible
	}
	var batch engine.Batch
	for i := range 8 {
		w := add(strings.Repeat(fmt.Sprint(i), durable.MaxKey), int64(i))
		w.Data = data[i:]
		batch = append(batch, w)
	}
	if r := s.commit(0, batch...); len(r.Unmet) > 0 {
		s.t.Errorf("unmet are %.100q", r.Unmet)
	}
	id := s.join("a", long)
	got := s.claimAll(id)
	if len(got) != 8 {
		s.t.Fatalf("claimed are %s", keys(got))
	}
	for i, w := range batch {
		s.is(w.Key, w)
		if string(got[i].Data) != string(w.Data) || !s.confirms(id, got[i]) {
			s.t.Errorf("the claim of key %.20q has other data, or is not confirmed", w.Key)
		}
	}
}

// A batch of 100,000 tasks, or 20,000 in short mode, is atomic, and a single commit can have many batches.
func manyTasks(s *subject) {
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	middle := fmt.Sprintf("k%06d", n/2)
	s.write(0, add(middle, 1))
	var adds, removes engine.Batch
	for i := range n {
		key := fmt.Sprintf("k%06d", (i*7919)%n) // in no particular order
		adds = append(adds, add(key, int64(i%1000)))
		removes = append(removes, remove(key))
	}
	if r := s.commit(0, adds...); !slices.Equal(r.Unmet, []string{middle}) || s.len() != 1 {
		s.t.Errorf("unmet are %.100q, and there are %d tasks, want one", r.Unmet, s.len())
	}
	s.write(0, remove(middle))
	if r := s.commit(0, adds...); len(r.Unmet) > 0 || s.len() != n {
		s.t.Errorf("unmet are %.100q, and there are %d tasks, want all", r.Unmet, s.len())
	}
	all := s.due(engine.Position{Due: engine.None}, math.MaxInt64)
	if len(all) != n || !slices.IsSortedFunc(all, byPosition) {
		s.t.Errorf("the walk yields %d tasks, or in another order", len(all))
	}
	id := s.join("a", long)
	got := s.claim(id, -1, ahead, n/2)
	if len(got) != n/2 || got[n/2-1].Due != 499 {
		s.t.Errorf("claimed are %d", len(got))
	}
	var claims []engine.Claim
	for _, task := range got {
		claims = append(claims, claimOf(task))
	}
	if held := s.confirm(id, claims...); slices.Contains(held, false) {
		s.t.Error("not all of the claims are confirmed")
	}
	if r := s.commit(0, removes...); len(r.Unmet) > 0 || s.len() != 0 {
		s.t.Errorf("unmet are %.100q, and there are %d tasks, want none", r.Unmet, s.len())
	}
	var batches []engine.Batch
	for i := range 5000 {
		batches = append(batches, adds[i:i+1])
	}
	s.commits(0, batches...)
	if s.len() != 5000 {
		s.t.Errorf("there are %d tasks, want 5000", s.len())
	}
}

// If several commits have the same condition, and each makes it false for the others, exactly one is applied.
func oneWins(s *subject) {
	const callers = 8
	for round := range 20 {
		key := fmt.Sprint("k", round)
		race := func(what string, w engine.Write) {
			s.t.Helper()
			var won atomic.Int32
			all(times(callers, func(i int) {
				w := w
				if w.Data != nil {
					w.Due, w.Data = int64(i), fmt.Append(nil, "of ", i)
				}
				// Half of the commits have two batches.
				batches := []engine.Batch{{w}, {add(fmt.Sprint(what, key, i), ahead)}}
				if len(s.commits(0, batches[:1+i%2]...)[0].Unmet) > 0 {
					return
				}
				won.Add(1)
				if w.Data != nil {
					s.is(key, w)
				}
			})...)
			if won.Load() != 1 {
				s.t.Errorf("%s: %d of %d callers won", what, won.Load(), callers)
			}
		}
		race("an add", add(key, 0))
		race("a change", unchanged(put(key, 0, 0), s.get(key).Revision))
		race("a removal", remove(key))
		s.absent(key)
	}
}

// Commits of the same keys in different orders do not deadlock or fail, and each is atomic.
func sameKeys(s *subject) {
	const callers, rounds, width = 6, 15, 20
	all(times(callers, func(caller int) {
		rnd := rand.New(rand.NewPCG(uint64(caller), 3))
		for round := range rounds {
			var batch engine.Batch
			for _, i := range rnd.Perm(width) {
				w := put(fmt.Sprint("k", i), int64(caller*rounds+round), engine.Always)
				if rnd.IntN(width) == 0 { // a few keys are deleted, and inserted again later
					w.If, w.Data = engine.Always, nil
				}
				batch = append(batch, w)
			}
			other := engine.Batch{put(fmt.Sprint("own", caller), 1, engine.Always)}
			if round%2 == 0 {
				s.commits(0, batch, other)
			} else {
				s.commits(0, batch)
			}
		}
	})...)
	dues := make(map[int64]bool)
	for i := range width {
		tasks, err := s.Get(s.ctx, fmt.Sprint("k", i))
		s.check(err)
		for _, task := range tasks {
			dues[task.Due] = true
		}
	}
	if len(dues) != 1 {
		s.t.Errorf("the last commit is not whole: the tasks are of %d commits", len(dues))
	}
}

// A caller that has lost the response to a commit can read whether the commit was applied.
func lostCommit(s *subject) {
	link := NewLink(s.Engine)
	id := s.join("a", long)
	link.Next("Commit", Fault{Fail: true}, Fault{Lose: true})
	w := held(add("k", 1))
	for range 2 {
		if _, err := link.Commit(s.ctx, id, []engine.Batch{{w}}); err == nil {
			s.t.Error("a commit without an answer returns nil")
		}
	}
	s.is("k", w)
	if r := s.commit(id, w); len(r.Unmet) != 1 {
		s.t.Error("the add is done twice")
	}
	if mine := s.claimed(id); len(mine) != 1 || mine[0].Key != "k" || !s.confirms(id, mine[0]) {
		s.t.Errorf("the member holds %s", keys(mine))
	}
}

func byPosition(a, b engine.Stored) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), strings.Compare(a.Key, b.Key))
}

func dueOrder(s *subject) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, key := range odd {
		w := of([]string{"", "g"}[rnd.IntN(2)], add(key, int64(rnd.IntN(4)))) // ties sort by key bytes
		w.Kind = []string{kind, "other", "other\x00"}[rnd.IntN(3)]
		s.write(0, w)
	}
	s.write(0, add("parked", math.MaxInt64))
	s.write(0, add("latest", math.MaxInt64-1))
	id := s.join("a", long)
	s.claim(id, -1, 1, 3) // the holder of a task does not matter
	want := s.due(engine.Position{Due: engine.None}, math.MaxInt64)
	if len(want) != len(odd)+2 || !slices.IsSortedFunc(want, byPosition) {
		s.t.Fatalf("the walk is %s", keys(want))
	}
	for _, got := range want {
		if one := s.get(got.Key); one.Revision != got.Revision || one.Owner != got.Owner || one.Kind != got.Kind ||
			string(one.Data) != string(got.Data) {
			s.t.Errorf("the walk yields %+v, and Get returns %+v", got, one)
		}
	}
	for _, after := range append(want, engine.Stored{Record: engine.Record{Due: 2}}) {
		for _, until := range []int64{0, 1, 2, 3, math.MaxInt64 - 1, math.MaxInt64} {
			var stretch []engine.Stored
			for _, task := range want {
				if byPosition(task, after) > 0 && task.Due <= until {
					stretch = append(stretch, task)
				}
			}
			if got := s.due(after.Position(), until); keys(got) != keys(stretch) {
				s.t.Errorf("after %v until %d are %s, want %s", after.Position(), until, keys(got), keys(stretch))
			}
		}
	}
	n := 0
	for _, err := range s.Walk(s.ctx, engine.Range{Until: math.MaxInt64}) {
		s.check(err)
		if n++; n == 3 {
			break
		}
	}
	s.write(0, add("after a walk that was broken off", 1))
}

// A walk yields each task that stays unchanged exactly once, whatever happens to other tasks.
func dueDuringChanges(s *subject) {
	const n = 5000
	names := s.add(n, 0)
	var batch engine.Batch // every other task is moved, removed and added again
	for i := 0; i < n; i += 2 {
		batch = append(batch, put(names[i], 0, engine.Always))
	}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 3))
		for {
			select {
			case <-stop:
				return
			default:
			}
			for i := range batch {
				batch[i].Due, batch[i].Data = rnd.Int64N(n), []byte("data")
				if rnd.IntN(4) == 0 {
					batch[i].Data = nil
				}
			}
			s.commits(0, batch[:rnd.IntN(len(batch))+1])
		}
	})
	for range 10 {
		seen := make(map[string]int)
		for task, err := range s.Walk(s.ctx, engine.Range{Until: math.MaxInt64}) {
			if err != nil {
				s.t.Error(err)
				break
			}
			seen[task.Key]++
		}
		for i := 1; i < n; i += 2 {
			if seen[names[i]] != 1 {
				s.t.Errorf("the walk yields %q %d times", names[i], seen[names[i]])
				break
			}
		}
	}
	close(stop)
	wait.Wait()
}

// A batch that was sent long ago by the engine's clock has no effect, and its result has the engine's time.
func lateWrites(s *subject) {
	now := s.now()
	at := func(w engine.Write, sent time.Duration) engine.Write {
		w.Now = now + int64(sent)
		return w
	}
	const ago = -engine.MaxStale - time.Second
	refused := func(what string, writes ...engine.Write) {
		s.t.Helper()
		if r := s.commit(0, writes...); r.Late < now || r.Late > s.now() {
			s.t.Errorf("%s: the result is %+v, and the engine's time was %d", what, r, now)
		}
	}
	refused("one write", at(add("a", 1), ago))
	refused("several writes", add("a", 1), at(add("b", 1), ago), at(add("c", 1), 0))
	s.absent("a")
	s.absent("b")
	s.absent("c")
	s.write(0, at(add("a", 1), time.Hour)) // the writer's estimate may be too high
	revision := s.write(0, at(put("a", 2, engine.Always), time.Hour)).Revision
	refused("a change", at(unchanged(put("a", 3, 0), revision), ago))
	if task := s.get("a"); task.Due != 2 || task.Revision != revision {
		s.t.Errorf("after a late change the task is %+v", task)
	}
	r := s.commits(0, engine.Batch{at(add("d", 1), ago)}, engine.Batch{add("e", 1)}, engine.Batch{at(add("f", 1), time.Hour)})
	for i, key := range []string{"d", "e", "f"} {
		if key == "d" && r[i].Late == 0 {
			s.t.Errorf("a late batch among others has the result %+v", r[i])
		}
		if r[i].Late != 0 {
			s.absent(key)
		} else {
			s.get(key)
		}
	}
	s.commit(0, remove("a"))
}
