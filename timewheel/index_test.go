// SPDX-License-Identifier: MIT

package timewheel

import (
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

func keyed(key string, state uint32) *entry {
	e := &entry{key: key}
	e.state.Store(state)
	return e
}

func kills(e *entry) bool { return e.state.CompareAndSwap(scheduled, removed) }

// wantEntries fails the test if the map itself, dead entries included, holds others than those given.
func wantEntries(t *testing.T, x *index, want ...*entry) {
	t.Helper()
	got := x.entries()
	if len(got) != len(want) || x.m.Count() != len(want) {
		t.Fatalf("the index holds %d entries and counts %d, want %d", len(got), x.m.Count(), len(want))
	}
	for _, e := range want {
		if !slices.Contains(got, e) {
			t.Errorf("the index does not hold %q in state %d", e.key, e.state.Load())
		}
	}
}

func TestIndex_liveEntry_keepsItsKey(t *testing.T) {
	for _, state := range []uint32{scheduled, moving, orphaned, waiting} {
		x := newIndex(false)
		first, second := keyed("k", state), keyed("k", scheduled)
		if put(x, first) != nil || put(x, second) != ErrDuplicateTaskKey || x.get("k") != first {
			t.Errorf("an entry in state %d does not keep its key", state)
		}
		wantEntries(t, x, first)
	}
}

func TestIndex_deadEntry_isTakenOutByWhoeverMeetsIt(t *testing.T) {
	for _, state := range []uint32{removed, done} {
		x := newIndex(false)
		dead, other := keyed("k", state), keyed("other", scheduled)
		x.m.Set("k", dead)
		x.m.Set("other", other)
		if x.get("k") != nil {
			t.Errorf("state %d: a dead entry was found", state)
		}
		wantEntries(t, x, other)

		x.m.Set("k", dead)
		successor := keyed("k", scheduled)
		if put(x, successor) != nil || x.get("k") != successor {
			t.Errorf("state %d: a dead entry was in the way of an add", state)
		}
		wantEntries(t, x, other, successor)
	}
}

func TestIndex_forget_leavesTheSuccessorAlone(t *testing.T) {
	x := newIndex(false)
	first, second := keyed("k", done), keyed("k", scheduled)
	x.m.Set("k", second)
	x.forget(first)
	wantEntries(t, x, second)
	x.forget(second)
	wantEntries(t, x)
	x.forget(second)
	wantEntries(t, x)
}

func TestIndex_remove_callsKillForWhatIsThere(t *testing.T) {
	x := newIndex(false)
	e, killed := keyed("k", scheduled), []*entry(nil)
	kill := func(e *entry) bool {
		killed = append(killed, e)
		return true
	}
	x.remove("k", kill)
	if killed != nil {
		t.Error("kill was called for nothing")
	}
	if err := put(x, e); err != nil {
		t.Fatal(err)
	}
	x.remove("k", kill)
	x.remove("k", kill)
	if !slices.Equal(killed, []*entry{e}) {
		t.Errorf("kill was called %d times", len(killed))
	}
	wantEntries(t, x)
}

func TestIndex_replace_onlyForWhatTheKeyMeans(t *testing.T) {
	live, dead, stranger := keyed("k", scheduled), keyed("k", done), keyed("k", scheduled)
	for _, c := range []struct {
		name    string
		in, old *entry // what the key means, and what is to be replaced
	}{
		{"another", live, stranger},
		{"dead by now", dead, dead},
		{"vanished", nil, dead},
		{"there", live, live}, // the last, which ends it
	} {
		t.Run(c.name, func(t *testing.T) {
			x, e := newIndex(false), keyed("k", scheduled)
			var want []*entry
			if c.in != nil {
				x.m.Set("k", c.in)
				want = []*entry{c.in}
			}
			replaced := c.in == live && c.old == live
			if got := x.replace(c.old, e, kills); got != replaced {
				t.Errorf("replaced: %v", got)
			}
			if replaced {
				want = []*entry{e}
			}
			if live.live() == replaced || !stranger.live() {
				t.Error("the wrong entry was ended")
			}
			wantEntries(t, x, want...)
		})
	}
}

// Of all that add, replace and end a key at the same time, the index keeps one that is live, or none.
func TestIndex_anyNumberAtATime_keepsNothingDead(t *testing.T) {
	x := newIndex(false)
	var live atomic.Int64
	kill := func(e *entry) bool {
		if !kills(e) {
			return false
		}
		live.Add(-1)
		return true
	}
	var workers sync.WaitGroup
	for seed := range uint64(4) {
		workers.Go(func() {
			r := random(seed)
			for range 5000 {
				e := keyed("k", scheduled)
				switch old := x.get("k"); {
				case old == nil:
					live.Add(1)
					if put(x, e) != nil {
						live.Add(-1)
					}
				case r.IntN(3) == 0:
					x.remove("k", kill)
				case r.IntN(2) == 0:
					kill(old) // as a last run does, which forgets it a little later
					x.forget(old)
				default:
					live.Add(1)
					if !x.replace(old, e, kill) {
						live.Add(-1)
					}
				}
			}
		})
	}
	workers.Wait()
	left := x.entries()
	if n := int(live.Load()); n != len(left) || n > 1 {
		t.Fatalf("%d entries are left, and %d are live", len(left), n)
	}
	for _, e := range left {
		if !e.live() {
			t.Error("the entry that is left is dead")
		}
	}
	x.remove("k", kills)
	wantEntries(t, x)
}

// put adds an entry that is always admitted.
func put(x *index, e *entry) error {
	_, err := x.add(e, always)
	return err
}

// always has an index take every entry.
func always() bool { return true }

func TestIndex_notAdmitted_leavesNothingBehind(t *testing.T) {
	never := func() bool { return false }
	for _, dead := range []bool{false, true} {
		x := newIndex(false)
		if dead {
			x.m.Set("k", keyed("k", removed))
		}
		if _, err := x.add(keyed("k", scheduled), never); err != ErrFull {
			t.Errorf("the error is %v, want %v", err, ErrFull)
		}
		if n := x.m.Count(); n != 0 {
			t.Errorf("%d entries are left behind", n)
		}
	}
}

// Whoever chooses the keys can choose them so that concurrent-map's own hash, FNV-1, puts them all into one
// shard, behind one lock. The index does not use that hash.
func TestIndex_keysThatCollideInFNV_areSpreadOverTheShards(t *testing.T) {
	x := newIndex(false)
	shards := len(x.mail)
	perShard := make([]int, shards)
	const n = 3200
	for i, found := 0, 0; found < n; i++ {
		key := "order:" + strconv.Itoa(i)
		h := fnv.New32()
		_, _ = h.Write([]byte(key))
		if h.Sum32()%uint32(shards) == 0 {
			perShard[x.shard(key)]++
			found++
		}
	}
	for i, got := range perShard {
		if got < n/shards/2 || got > n/shards*2 {
			t.Errorf("shard %d has %d of %d keys, want about %d", i, got, n, n/shards)
		}
	}
	if y := newIndex(false); slices.Equal(hashes(x), hashes(y)) {
		t.Error("two indexes have the same hash: who knows one knows the other")
	}
}

func hashes(x *index) (all []uint32) {
	for i := range 10 {
		all = append(all, x.hash(strconv.Itoa(i)))
	}
	return all
}
