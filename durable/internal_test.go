// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/timewheel"
)

func FuzzRecord_decode(f *testing.F) {
	f.Add((&record{key: "k", kind: "kind", times: Forever, interval: 1, generation: math.MaxUint64}).encode())
	f.Add((&record{key: "k", kind: "x", times: 1, payload: []byte("p"), failed: []failed{{text: "f"}}, grid: latest}).encode())
	f.Add((&record{key: "k", kind: "x", times: 1, payload: []byte("p"), trace: "trace"}).encode())
	f.Add((&record{key: "k", kind: "x", times: 1, payload: []byte("p"), version: 2, starts: 3, cron: "@daily",
		paused: 9, group: "g"}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(engine.Record{Key: "k", Due: 1, Data: data})
		if err != nil {
			return
		}
		again, err := decode(engine.Record{Key: "k", Due: 1, Data: r.encode()})
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v becomes %+v, %v", r, again, err)
		}
	})
}

func TestRecord_everyPrefix_isCorrupt(t *testing.T) {
	r := &record{key: "k", kind: "kind", times: 3, interval: time.Hour, generation: 1 << 60, seq: 300, grid: 1 << 61,
		attempts: 7, missed: 1 << 20, failed: []failed{{5, "why"}, {text: "before"}}, trace: "trace"}
	data := r.encode()
	for n := range data {
		if got, err := decode(engine.Record{Key: "k", Due: 1, Data: data[:n]}); err == nil {
			t.Errorf("%d of %d bytes are read as %+v", n, len(data), got)
		}
	}
	r.due = 1
	if got, err := decode(engine.Record{Key: "k", Due: 1, Data: data}); err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
		t.Errorf("%+v is read as %+v, %v", r, got, err)
	}
}

// A record without an optional field is one of version 1, which earlier programs read.
func TestRecord_optionalFields(t *testing.T) {
	plain := record{key: "k", kind: "kind", times: Forever, interval: 5, due: 7, payload: []byte("p")}
	all := plain
	all.version, all.starts, all.cron, all.interval, all.paused, all.group = 2, 3, "@daily", 0, 9, "g"
	all.shift, all.deadline, all.note = 1<<63-1, latest, "a note"
	for version, r := range map[byte]record{recordVersion: plain, fieldsVersion: all} {
		data := r.encode()
		got, err := decode(engine.Record{Key: "k", Due: 7, Data: data})
		if err != nil || !reflect.DeepEqual(*got, r) || data[0] != version {
			t.Errorf("version %d: %+v is read as %+v, %v", data[0], r, got, err)
		}
	}
	unknown := append([]byte{fieldsVersion}, plain.encode()[1:]...)
	unknown = append(unknown[:len(unknown)-1], 99, 1, 'x', 0, 'p')
	if got, err := decode(engine.Record{Key: "k", Due: 7, Data: unknown}); !errors.Is(err, ErrVersion) {
		t.Errorf("a field of a later version is read as %+v, %v", got, err)
	}
}

// Whatever the order of loading and changing, a key is free for certain only if it is not there; with hashes
// that collide, as they do for hashes of three bits.
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
				_, once := f.set.once[p]
				got := f.set.more[p]
				if once {
					got++
				}
				if got != count[p] {
					t.Fatalf("step %d: %d keys have the fingerprint %d, and it says %d", step, count[p], p, got)
				}
			}
		}
		if f.noted != nil || len(f.set.more) > 8 {
			t.Error("something is left over")
		}
	}
}

// load does what the reader of the keys does.
func load(f *fingerprints, prints []uint64) {
	for _, p := range prints {
		f.set.apply(noted{p, true})
	}
	for !f.ready {
		f.set.applyAll(f.handOver())
	}
}

// However many keys there are, and however many changes meanwhile, the keeper makes good for few in one step.
func TestFingerprints_load_isInBoundedSteps(t *testing.T) {
	const keys, changes = 100_000, 50_000
	f := newFingerprints()
	for i := range uint64(keys) {
		f.set.apply(noted{i, true})
	}
	for i := range uint64(changes) {
		f.change(noted{i, false})
	}
	var pieces [][]noted
	for steps := 0; !f.ready; steps++ {
		before := len(f.set.once)
		pieces = f.handOver()
		if n := before - len(f.set.once); n > notedAtOnce {
			t.Errorf("a step of the keeper applies %d changes", n)
		}
		f.set.applyAll(pieces)
		if steps < 3 { // what comes up while the reader works
			for i := range uint64(changes) / 10 {
				f.change(noted{i, steps%2 == 0})
			}
		}
		if steps > 10 {
			t.Fatal("the set does not become ready")
		}
	}
	if n, want := len(f.set.once), keys-changes+changes/10; n != want || f.noted != nil {
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

// A large AddTask that has its group for itself is put into no map: that took most of the time in which the
// keeper's other callers waited. An operation that comes after it finds everything all the same.
func TestGroup_putNew_isIndexedOnlyWhenAsked(t *testing.T) {
	k := &keeper{live: map[string]*live{}, prints: newFingerprints()}
	k.prints.handOver()
	g := &group{k: k}
	early := &record{key: "3"}
	g.put("3", early, nil) // an operation before it has removed one of the keys
	var recs []*record
	for i := range 1000 {
		rec := &record{key: fmt.Sprint(i)}
		recs = append(recs, rec)
		if old, err := g.find(rec.key); old != nil || err != nil {
			t.Fatal(old, err)
		}
	}
	g.putNew(recs)
	if len(g.index) != 1 {
		t.Errorf("%d keys are in the index", len(g.index))
	}
	for _, rec := range recs {
		if found, err := g.find(rec.key); found != rec || err != nil {
			t.Errorf("find(%s) = %v, %v", rec.key, found, err)
		}
	}
	if was := g.touched("3").was; was != early || len(g.order) != 1000 {
		t.Errorf("the store's record is %v, and %d keys are touched", was, len(g.order))
	}
}

func TestDistinct(t *testing.T) {
	rec := func(key string) *record { return &record{key: key} }
	first, twice := distinct([]*record{rec("a"), rec("b"), rec("a"), rec("c"), rec("a"), rec("b")})
	keys := ""
	for _, r := range first {
		keys += r.key
	}
	if keys != "abc" || len(twice) != 2 || !twice["a"] || !twice["b"] {
		t.Errorf("distinct returns %s, %v", keys, twice)
	}
}

// After the clock was set back a task can be due before the start, and yet not be due. It must not run early.
func TestKeeper_place_notDueYet_isInTheWheel(t *testing.T) {
	wheel := timewheel.NewTimeWheel(time.Millisecond, 64)
	defer wheel.Stop()
	now := time.Now().UnixNano()
	k := &keeper{wheel: wheel, kinds: &kinds{}, live: map[string]*live{}, started: true}
	k.backlog = newBacklog(wheel, k.kinds, config{poolSize: 1, catchUp: 1}, k.call)
	k.overdue = feed{at: end(now + int64(2*time.Hour)), until: now + int64(2*time.Hour)}
	k.place("later", &record{key: "later", due: now + int64(time.Hour)})
	k.place("overdue", &record{key: "overdue", due: now - int64(time.Hour)})
	if info, ok := wheel.Get("later"); !ok || time.Until(info.Next) < 50*time.Minute {
		t.Errorf("what is due in an hour is %+v, %v in the wheel", info, ok)
	}
	if _, ok := wheel.Get("overdue"); ok || k.backlog.queued.Load() != 1 {
		t.Errorf("%d tasks are in the backlog", k.backlog.queued.Load())
	}
	k.place("overdue", nil)
	k.place("later", nil)
	if n := k.backlog.queued.Load(); n != 0 || k.backlog.size != 0 || wheel.Len() != 0 || len(k.live) != 0 {
		t.Errorf("what was removed is left in memory: %d, %d, %d", n, wheel.Len(), len(k.live))
	}
}

// Runs that are quick again make their kind quick again, but not at once.
func TestKind_quick(t *testing.T) {
	var k kind
	if k.quick() {
		t.Error("a kind that has not run is quick")
	}
	k.took(time.Millisecond)
	if !k.quick() {
		t.Error("a kind that runs a millisecond is not quick")
	}
	k.took(time.Minute)
	n := 0
	for ; !k.quick(); n++ {
		k.took(time.Millisecond)
	}
	if n < 50 || n > 500 {
		t.Errorf("after a run of a minute the kind is quick after %d quick ones", n)
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
