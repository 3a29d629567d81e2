// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/seed581295f1/timewheel/timewheel"
)

// Whatever the order of loading and changing, a key is reported as certainly free only if it is absent. The hashes have
// three bits, so that they collide.
func TestFingerprints_agreeWithASet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		f := newFingerprints()
		print := func(key int) uint64 { return uint64(key % 8) }
		there := map[int]bool{}
		var prints []uint64
		for key := range 30 {
			if rnd.IntN(2) == 0 {
				there[key] = true
				prints = append(prints, print(key))
			}
		}
		loadAt := rnd.IntN(100)
		for step := range 200 {
			if step == loadAt {
				load(f, prints)
			}
			key := rnd.IntN(30)
			there[key] = !there[key]
			f.change(noted{print(key), there[key]})
			if !f.ready {
				continue
			}
			count := map[uint64]int{}
			for key, is := range there {
				if is {
					count[print(key)]++
				}
			}
			for p := range uint64(8) {
				if got := f.set.Count(p); got != count[p] {
					t.Fatalf("step %d: %d keys have the fingerprint %d, and it says %d", step, count[p], p, got)
				}
			}
		}
		if f.noted != nil || f.set.Len() > 8 {
			t.Error("something is left over")
		}
	}
}

// load does the work of the key reader.
func load(f *fingerprints, prints []uint64) {
	for _, p := range prints {
		f.set.Add(p)
	}
	for !f.ready {
		f.applyAll(f.handOver())
	}
}

// However many keys and concurrent changes there are, the keeper applies only a few of them in one step.
func TestFingerprints_load_isInBoundedSteps(t *testing.T) {
	const keys, changes = 100_000, 50_000
	f := newFingerprints()
	for i := range uint64(keys) {
		f.set.Add(i)
	}
	for i := range uint64(changes) {
		f.change(noted{i, false})
	}
	var pieces [][]noted
	for steps := 0; !f.ready; steps++ {
		before := f.set.Len()
		pieces = f.handOver()
		if n := before - f.set.Len(); n > notedAtOnce {
			t.Errorf("a step of the keeper applies %d changes", n)
		}
		f.applyAll(pieces)
		if steps < 3 { // changes while the reader works
			for i := range uint64(changes) / 10 {
				f.change(noted{i, steps%2 == 0})
			}
		}
		if steps > 10 {
			t.Fatal("the set does not become ready")
		}
	}
	if n, want := f.set.Len(), keys-changes+changes/10; n != want || f.noted != nil {
		t.Errorf("%d fingerprints, want %d; left over: %d", n, want, len(f.noted))
	}
}

func TestFingerprints_free(t *testing.T) {
	f := newFingerprints()
	if f.free("k") {
		t.Error("a key is free before the keys were read")
	}
	f.note("later", true)
	load(f, []uint64{f.of("k")})
	for key, want := range map[string]bool{"k": false, "later": false, "other": true} {
		if f.free(key) != want {
			t.Errorf("free(%q) is %v", key, !want)
		}
	}
	f.note("k", false)
	if !f.free("k") {
		t.Error("a key that was removed is not free")
	}
}

// A large AddTask that is alone in its group is not put into a map: that took most of the time for which the keeper's
// other callers waited. A later operation in the group still finds every task.
func TestGroup_putNew_isIndexedOnlyWhenAsked(t *testing.T) {
	k := &keeper{live: map[string]*live{}, prints: newFingerprints()}
	k.prints.handOver()
	g := &group{k: k}
	early := &task.Record{Key: "3"}
	g.put("3", early, nil) // an earlier operation has removed one of the keys
	var recs []*task.Record
	for i := range 1000 {
		rec := &task.Record{Key: fmt.Sprint(i)}
		recs = append(recs, rec)
		if old, err := g.find(rec.Key); old != nil || err != nil {
			t.Fatal(old, err)
		}
	}
	g.putNew(recs)
	if len(g.index) != 1 {
		t.Errorf("%d keys are in the index", len(g.index))
	}
	for _, rec := range recs {
		if found, err := g.find(rec.Key); found != rec || err != nil {
			t.Errorf("find(%s) = %v, %v", rec.Key, found, err)
		}
	}
	if was := g.touched("3").was; was != early || len(g.order) != 1000 {
		t.Errorf("the store's record is %v, and %d keys are touched", was, len(g.order))
	}
}

func TestDistinct(t *testing.T) {
	rec := func(key string) *task.Record { return &task.Record{Key: key} }
	first, twice := distinct([]*task.Record{rec("a"), rec("b"), rec("a"), rec("c"), rec("a"), rec("b")})
	keys := ""
	for _, r := range first {
		keys += r.Key
	}
	if keys != "abc" || len(twice) != 2 || !twice["a"] || !twice["b"] {
		t.Errorf("distinct returns %s, %v", keys, twice)
	}
}

// After the clock was set back, a task can have a due time before the start and still not be due. It must not run
// early.
func TestKeeper_place_notDueYet_isInTheWheel(t *testing.T) {
	wheel := timewheel.NewTimeWheel(time.Millisecond, 64)
	defer wheel.Stop()
	now := time.Now().UnixNano()
	k := &keeper{wheel: wheel, kinds: &kinds{}, live: map[string]*live{}, started: true}
	k.backlog = newBacklog(wheel, k.kinds, config{poolSize: 1, catchUp: 1}, limit.MostQueued, limit.HeldTasks, k.wake)
	k.overdue = feed{at: end(now + int64(2*time.Hour)), until: now + int64(2*time.Hour)}
	k.place("later", &task.Record{Key: "later", Due: now + int64(time.Hour)})
	k.place("overdue", &task.Record{Key: "overdue", Due: now - int64(time.Hour)})
	if info, ok := wheel.Get("later"); !ok || time.Until(info.Next) < 50*time.Minute {
		t.Errorf("what is due in an hour is %+v, %v in the wheel", info, ok)
	}
	if _, ok := wheel.Get("overdue"); ok || k.backlog.Len() != 1 {
		t.Errorf("%d tasks are in the backlog", k.backlog.Len())
	}
	k.place("overdue", nil)
	k.place("later", nil)
	if n := k.backlog.Len(); n != 0 || k.backlog.Check(nil, nil) != nil || wheel.Len() != 0 || len(k.live) != 0 {
		t.Errorf("what was removed is left in memory: %d, %d, %d", n, wheel.Len(), len(k.live))
	}
}

func TestEnd_isBeyondEveryKey(t *testing.T) {
	e := feed{at: end(7)}
	longest := make([]byte, MaxKey)
	for i := range longest {
		longest[i] = math.MaxUint8
	}
	if !e.passed(engine.Position{Due: 7, Key: string(longest)}) || e.passed(engine.Position{Due: 8, Key: ""}) {
		t.Error("the end of what is due at 7 is not between that and 8")
	}
}
