// SPDX-License-Identifier: MIT

package timewheel

import (
	"hash/maphash"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	cmap "github.com/orcaman/concurrent-map/v2"
)

// An index maps keys to entries. The state of an entry, not its presence in the index, determines whether its task is
// live. The state changes first, and a dead entry in the index counts as absent, so every method takes effect at a
// single instant. Callbacks run under a shard's lock. They may acquire the dispatcher's lock; a shard's lock is never
// acquired under the dispatcher's lock.
//
// A randomly seeded hash selects the shard of a key. With concurrent-map's own hash, an attacker could choose keys that
// all fall into one shard.
type index struct {
	m    cmap.ConcurrentMap[string, *entry]
	seed maphash.Seed

	max   int64        // maximum number of live tasks, including timers; 0: no limit
	count atomic.Int64 // number of live tasks, including timers; maintained only if there is a limit
}

func newIndex(maxPending int64) *index {
	x := &index{seed: maphash.MakeSeed(), max: maxPending}
	x.m = cmap.NewWithCustomShardingFunction[string, *entry](x.hash)
	return x
}

func (x *index) hash(key string) uint32 { return uint32(maphash.String(x.seed, key)) }

// admit counts one more task if the limit allows it, and reports whether there was room. It never waits: a task that is
// ending or being refused at that moment still counts.
func (x *index) admit() bool {
	if x.max > 0 && x.count.Add(1) > x.max {
		x.count.Add(-1)
		return false
	}
	return true
}

// enter counts one more task regardless of the limit. leave counts one task fewer, after a task has ended without being
// replaced.
func (x *index) enter() {
	if x.max > 0 {
		x.count.Add(1)
	}
}

func (x *index) leave() {
	if x.max > 0 {
		x.count.Add(-1)
	}
}

// add adds e. It returns ErrDuplicateTaskKey if a live task has its key, and otherwise ErrFull if there is no room.
// Both are checked under the lock, so that a failed add never takes up room that another add needs.
func (x *index) add(e *entry) (err error) {
	x.m.Upsert(e.key, e, func(ok bool, in, e *entry) *entry {
		if ok && in.live() {
			err = ErrDuplicateTaskKey
			return in
		}
		if !x.admit() {
			err = ErrFull
			e.state.Store(removed)
		}
		return e
	})
	if err == ErrFull {
		x.forget(e)
	}
	return err
}

// set adds e. If the key has a live entry, set ends that entry by calling end, replaces it and returns it. Otherwise
// set returns ErrFull if there is no room.
func (x *index) set(e *entry, end func(e *entry) bool) (old *entry, err error) {
	x.m.Upsert(e.key, e, func(ok bool, in, e *entry) *entry {
		switch {
		case ok && end(in):
			old = in
		case !x.admit():
			err = ErrFull
			e.state.Store(removed)
		}
		return e
	})
	if err != nil {
		x.forget(e)
	}
	return old, err
}

// swap replaces the live entry of the key. It calls next with the entry. next either ends the entry and returns its
// replacement, or returns the same entry to keep it, or returns nil if the entry is dead. swap returns the replaced
// entry, if any, and reports whether there was a live entry.
func (x *index) swap(key string, next func(e *entry) *entry) (old *entry, ok bool) {
	var none *entry
	x.m.Upsert(key, nil, func(there bool, in, _ *entry) *entry {
		if !there {
			none = newDead(key)
			return none
		}
		e := next(in)
		if ok = e != nil; !ok {
			return in
		}
		if e != in {
			old = in
		}
		return e
	})
	if none != nil {
		x.forget(none)
	}
	return old, ok
}

// get returns the live entry of the key, or nil. An entry may be replaced between the lookup and the check of its
// state. The key then still has a live entry, so get retries until it finds the same dead entry twice. (A replaced
// entry dies under the lock that also guards the addition of its replacement.)
func (x *index) get(key string) *entry {
	var last *entry
	for {
		e, ok := x.m.Get(key)
		if ok && e.live() {
			return e
		}
		if !ok || e == last {
			return nil
		}
		last = e
	}
}

// forget removes e if its key still maps to it.
func (x *index) forget(e *entry) {
	x.m.RemoveCb(e.key, func(_ string, in *entry, ok bool) bool { return ok && in == e })
}

// remove removes and returns the live entry of the key, provided that end reports that it has ended the entry.
func (x *index) remove(key string, end func(e *entry) bool) (ended *entry) {
	x.m.RemoveCb(key, func(_ string, e *entry, ok bool) bool {
		if ok && end(e) {
			ended = e
		}
		return ended != nil
	})
	return ended
}

// entries returns the entries of the index, including dead ones, in no particular order.
func (x *index) entries() []*entry {
	all := make([]*entry, 0, x.m.Count())
	x.m.IterCb(func(_ string, e *entry) { all = append(all, e) })
	return all
}

// trim gives back the memory of keys that are no longer in the index. A Go map keeps the memory of the largest number
// of keys that it has ever held, so trim copies each shard into a new map. It holds the lock of one shard at a time.
//
// concurrent-map has no method for this, and the field with a shard's map is not exported. So trim finds the field by
// its name and type under the lock, which is exported. With a version that has no such field it does nothing.
func (x *index) trim() {
	trimmed := make(map[*cmap.ConcurrentMapShared[string, *entry]]bool)
	for i := 0; len(trimmed) < cmap.SHARD_COUNT; i++ {
		s := x.m.GetShard(strconv.Itoa(i)) // only a key leads to a shard
		if trimmed[s] {
			continue
		}
		trimmed[s] = true
		field := reflect.ValueOf(s).Elem().FieldByName("items")
		if !field.IsValid() {
			return
		}
		items, ok := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Interface().(*map[string]*entry)
		if !ok {
			return
		}
		s.Lock()
		kept := make(map[string]*entry, len(*items))
		for key, e := range *items {
			kept[key] = e
		}
		*items = kept
		s.Unlock()
	}
}

// A trimmer decides when to trim the index: once the wheel has held no more than a quarter of its largest number of tasks
// for a minute. So the maps do not grow again in each of many bursts. The loop owns the trimmer, and never waits for
// a shard's lock: the trimmer counts tasks, not keys.
type trimmer struct {
	at     uint64 // when to decide; never if the index is small
	most   int    // largest number of tasks since the last trim
	lately int    // largest number of tasks since the last decision
	came   int    // entries that have come since the tasks were counted
}

const (
	trimEvery = time.Minute
	smallest  = 1 << 13 // a wheel that has never held more tasks does not trim its index
	uncounted = 1 << 10 // entries that may come before the tasks are counted again
)

// look decides whether to trim the index. It must be called after each look into the inboxes, with the number of
// entries that came. count counts the live tasks. look returns when to call it again at the latest.
func (t *trimmer) look(now uint64, came int, count func() int, x *index) (next uint64) {
	if t.came += came; t.came < uncounted && now < t.at {
		return t.at
	}
	live := count()
	t.came = 0
	t.lately = max(t.lately, live)
	t.most = max(t.most, t.lately)
	if now >= t.at {
		if t.lately <= t.most/4 {
			t.most = t.lately
			go x.trim()
		}
		t.at, t.lately = never, live
	}
	if t.at == never && t.most > smallest {
		t.at = later(now, trimEvery)
	}
	return t.at
}
