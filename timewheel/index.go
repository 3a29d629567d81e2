// SPDX-License-Identifier: MIT

package timewheel

import (
	"hash/maphash"
	"sync/atomic"

	cmap "github.com/orcaman/concurrent-map/v2"
)

// An index maps keys to tasks. The state of an entry, not its presence in the index, decides whether the task is live.
// The state changes first, and a dead entry in the index counts as none. So every verb takes effect at one instant. The
// callbacks run under the lock of a shard. They may take the dispatcher's lock, under which no lock of a shard is
// taken.
//
// The shard of a key is found with a randomly seeded hash. With concurrent-map's own hash, an attacker can choose keys
// that all fall into one shard.
type index struct {
	m    cmap.ConcurrentMap[string, *entry]
	seed maphash.Seed

	max   int64        // of the live tasks, timers too; 0: no bound
	count atomic.Int64 // the live tasks, timers too; kept only if there is a bound
}

func newIndex(maxPending int64) *index {
	x := &index{seed: maphash.MakeSeed(), max: maxPending}
	x.m = cmap.NewWithCustomShardingFunction[string, *entry](x.hash)
	return x
}

func (x *index) hash(key string) uint32 { return uint32(maphash.String(x.seed, key)) }

// admit counts one more task, if the bound allows it. It never waits: a task that is just ending, or just being
// refused, still takes room.
func (x *index) admit() bool {
	if x.max > 0 && x.count.Add(1) > x.max {
		x.count.Add(-1)
		return false
	}
	return true
}

// enter counts one more task regardless of the bound. leave counts one less: a task that has ended and was not
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
// Both are checked under the lock, so that a failed add never takes the room of another.
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

// set adds e or replaces the live entry of its key, which it ends with end and returns. If there is none, it returns
// ErrFull if there is no room.
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

// swap replaces the live entry of the key. next ends it and returns its replacement; or it returns the same entry, or
// nil if it is dead. swap returns the ended entry, if any, and whether there was a live one.
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

// get returns the live entry of the key, or nil. An entry may be replaced after it is found and before its state is
// checked. The key is then still live, so get looks until it finds the same entry twice. (A replaced entry dies under
// the lock under which its replacement is added.)
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

// forget removes the entry, if its key still maps to it.
func (x *index) forget(e *entry) {
	x.m.RemoveCb(e.key, func(_ string, in *entry, ok bool) bool { return ok && in == e })
}

// remove removes and returns the live entry of the key, if end reports that it has ended it.
func (x *index) remove(key string, end func(e *entry) bool) (ended *entry) {
	x.m.RemoveCb(key, func(_ string, e *entry, ok bool) bool {
		if ok && end(e) {
			ended = e
		}
		return ended != nil
	})
	return ended
}

// entries returns the entries of the index, in no order, including dead ones.
func (x *index) entries() []*entry {
	all := make([]*entry, 0, x.m.Count())
	x.m.IterCb(func(_ string, e *entry) { all = append(all, e) })
	return all
}
