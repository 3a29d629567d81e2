// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"
	"hash/fnv"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	cmap "github.com/orcaman/concurrent-map/v2"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func keyed(key string, state uint32) *entry {
	e := &entry{key: key}
	e.state.Store(state)
	return e
}

func kills(e *entry) bool { return e.state.CompareAndSwap(scheduled, removed) }

// wantEntries fails the test unless the map holds exactly the given entries, including dead ones.
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
	for _, state := range []uint32{scheduled, moving, waiting, waiting | 77<<stateBits} {
		x := newIndex(0)
		first, second := keyed("k", state), keyed("k", scheduled)
		if put(x, first) != nil || put(x, second) != ErrDuplicateTaskKey || x.get("k") != first {
			t.Errorf("an entry in state %d does not keep its key", state)
		}
		wantEntries(t, x, first)
	}
}

func TestIndex_deadEntry_isAsGoodAsNone(t *testing.T) {
	for _, state := range []uint32{removed, done} {
		x := newIndex(0)
		dead, other := keyed("k", state), keyed("other", scheduled)
		x.m.Set("k", dead)
		x.m.Set("other", other)
		if x.get("k") != nil || x.remove("k", kills) != nil {
			t.Errorf("state %d: a dead entry was found", state)
		}
		successor := keyed("k", scheduled)
		if put(x, successor) != nil || x.get("k") != successor {
			t.Errorf("state %d: a dead entry was in the way of an add", state)
		}
		wantEntries(t, x, other, successor)

		x.m.Set("k", dead)
		if old, err := x.set(successor, kills); old != nil || err != nil || x.get("k") != successor {
			t.Errorf("state %d: a dead entry was replaced: %v, %v", state, old, err)
		}
		wantEntries(t, x, other, successor)
	}
}

func TestIndex_forget_leavesTheSuccessorAlone(t *testing.T) {
	x := newIndex(0)
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
	x := newIndex(0)
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
	if x.remove("k", kill) != e || x.remove("k", kill) != nil {
		t.Error("what was there was not returned, or twice")
	}
	if !slices.Equal(killed, []*entry{e}) {
		t.Errorf("kill was called %d times", len(killed))
	}
	wantEntries(t, x)
}

func TestIndex_set_takesThePlaceOfWhatIsThere(t *testing.T) {
	for _, in := range []*entry{nil, keyed("k", done), keyed("k", removed), keyed("k", scheduled)} {
		for _, full := range []bool{false, true} {
			x, e := newIndex(1), keyed("k", scheduled)
			var want *entry
			if in != nil {
				x.m.Set("k", in)
				if in.live() {
					want = in
					x.enter()
				}
			}
			if full && want == nil {
				x.enter()
			}
			old, err := x.set(e, func(o *entry) bool { return o.live() })
			if refused := full && want == nil; old != want || (err != nil) != refused || err != nil && err != ErrFull {
				t.Errorf("full: %v: replaced %v, %v", full, old, err)
			}
			if err != nil {
				wantEntries(t, x)
			} else {
				wantEntries(t, x, e)
			}
			if n := x.count.Load(); n != 1 {
				t.Errorf("full: %v: %d are counted", full, n)
			}
		}
	}
}

// However many goroutines add, replace and end a key at the same time, the index keeps one live entry or none.
func TestIndex_anyNumberAtATime_keepsNothingDead(t *testing.T) {
	x := newIndex(1)
	end := func(e *entry) bool { return kills(e) }
	var workers sync.WaitGroup
	for seed := range uint64(4) {
		workers.Go(func() {
			r := random(seed)
			for range 5000 {
				e := keyed("k", scheduled)
				switch old := x.get("k"); {
				case old == nil:
					_ = put(x, e)
				case r.IntN(3) == 0:
					if x.remove("k", end) != nil {
						x.leave()
					}
				case r.IntN(2) == 0:
					if kills(old) { // as a last run does, which removes it a little later
						x.leave()
						x.forget(old)
					}
				default:
					_, _ = x.set(e, end)
				}
			}
		})
	}
	workers.Wait()
	left := 0
	for _, e := range x.entries() {
		if e.live() {
			left++
		}
	}
	if n := int(x.count.Load()); n != left || n > 1 {
		t.Fatalf("%d live entries are left, and %d are counted", left, n)
	}
	x.remove("k", end)
	wantEntries(t, x)
}

func put(x *index, e *entry) error { return x.add(e) }

func TestIndex_notAdmitted_leavesNothingBehind(t *testing.T) {
	for _, dead := range []bool{false, true} {
		x := newIndex(1)
		x.enter()
		if dead {
			x.m.Set("k", keyed("k", removed))
		}
		e := keyed("k", scheduled)
		if err := x.add(e); err != ErrFull || e.live() {
			t.Errorf("the error is %v, want %v", err, ErrFull)
		}
		if n := x.m.Count(); n != 0 || x.count.Load() != 1 {
			t.Errorf("%d entries are left behind, and %d are counted", n, x.count.Load())
		}
	}
}

// An attacker can choose keys that FNV-1, the hash of concurrent-map, puts into one shard, behind one lock. The index
// does not use that hash.
func TestIndex_keysThatCollideInFNV_areSpreadOverTheShards(t *testing.T) {
	x := newIndex(0)
	shards := cmap.SHARD_COUNT
	perShard := make([]int, shards)
	const n = 3200
	for i, found := 0, 0; found < n; i++ {
		key := "order:" + strconv.Itoa(i)
		h := fnv.New32()
		_, _ = h.Write([]byte(key))
		if h.Sum32()%uint32(shards) == 0 {
			perShard[x.hash(key)%uint32(shards)]++
			found++
		}
	}
	for i, got := range perShard {
		if got < n/shards/2 || got > n/shards*2 {
			t.Errorf("shard %d has %d of %d keys, want about %d", i, got, n, n/shards)
		}
	}
	if y := newIndex(0); slices.Equal(hashes(x), hashes(y)) {
		t.Error("two indexes have the same hash: to know one is to know the other")
	}
}

func hashes(x *index) (all []uint32) {
	for i := range 10 {
		all = append(all, x.hash(strconv.Itoa(i)))
	}
	return all
}

func TestIndex_swapOfNoTask_leavesNothing(t *testing.T) {
	tw := NewTimeWheel(time.Millisecond, 60)
	defer tw.Stop()
	for name, verb := range map[string]func(key string) error{"Pause": tw.Pause, "Resume": tw.Resume} {
		if err := verb("k"); !errors.Is(err, ErrTaskKeyNotFound) {
			t.Errorf("%s of no task: %v", name, err)
		}
		if n := tw.index.m.Count(); n != 0 {
			t.Errorf("%s of no task has left %d entries in the index", name, n)
		}
	}
}

// The memory of a burst of keys is given back, and the keys that are left are found.
func TestTrim_afterABurst_givesTheMemoryBack(t *testing.T) {
	const burst, left = 200_000, 100
	keys := make([]string, burst)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	e := keyed("", scheduled)
	x := newIndex(0)
	before := testkit.Heap()
	for _, key := range keys {
		x.m.Set(key, e)
	}
	full := testkit.Heap() - before
	for _, key := range keys[left:] {
		x.m.Remove(key)
	}
	held := testkit.Heap() - before
	x.trim()
	if after := testkit.Heap() - before; after > full/50 || held < full/2 {
		t.Errorf("%d keys take %d bytes, %d bytes without most of them, and %d bytes trimmed", burst, full, held, after)
	}
	for _, key := range keys[:left] {
		if x.get(key) != e {
			t.Errorf("%q is lost", key)
		}
	}
	if n := len(x.entries()); n != left || x.m.Count() != left {
		t.Errorf("the index has %d entries and counts %d, want %d", n, x.m.Count(), left)
	}
	runtime.KeepAlive(keys)
}

// A running wheel trims its index when a burst of keys has been gone for a whole minute, and not between two bursts.
func TestTrim_onceABurstIsOver(t *testing.T) {
	plan{}.with(Hashed, t, func(t *testing.T, w *rig) {
		last := shardsOf(w.index)
		trimmed := func(want bool, when string) {
			t.Helper()
			now := shardsOf(w.index)
			for i := range now {
				if got := now[i] != last[i]; got != want {
					t.Fatalf("%s: shard %d is trimmed: %v, want %v", when, i, got, want)
				}
			}
			last = now
		}
		burst := func(n int) {
			for i := range n {
				mustAdd(t, w.TimeWheel, strconv.Itoa(i), time.Hour)
				if i%uncounted == 0 {
					w.advance(poll)
				}
			}
			w.advance(poll)
			if gone, err := w.RemovePrefix(t.Context(), ""); gone != n || err != nil {
				t.Fatalf("removed %d of %d: %v", gone, n, err)
			}
			w.advance(poll)
		}
		burst(smallest) // before Start
		w.Start()
		for range 5 {
			w.advance(trimEvery)
		}
		trimmed(false, "few keys")
		for range 5 {
			burst(smallest + 2*uncounted)
			w.advance(trimEvery / 2)
		}
		trimmed(false, "a burst in each minute")
		w.advance(trimEvery)
		w.advance(trimEvery)
		trimmed(true, "no burst for two minutes")
		sleeps := w.hand.sleeps.Load()
		w.advance(time.Hour)
		trimmed(false, "no keys")
		if n := w.hand.sleeps.Load() - sleeps; n != 0 {
			t.Errorf("the loop has woken up %d times in an hour without keys", n)
		}
	})
}

// shardsOf returns which map each shard of the index has.
func shardsOf(x *index) (all []uintptr) {
	shards := reflect.ValueOf(x.m).FieldByName("shards")
	for i := range shards.Len() {
		all = append(all, shards.Index(i).Elem().FieldByName("items").Pointer())
	}
	return all
}
