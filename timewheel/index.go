// SPDX-License-Identifier: MIT

package timewheel

import (
	"hash/maphash"
	"sync/atomic"

	cmap "github.com/orcaman/concurrent-map/v2"
)

// An index decides which task a key means. The state of an entry, not its being in the index, decides whether
// the task is live. The state changes first, and a dead entry in the index is as good as none. So every verb
// has one instant at which it happens. The callbacks run under the lock of a shard. They may take the
// dispatcher's lock, under which no lock of a shard is taken.
//
// The shard of a key is found with a hash that is seeded at random. With concurrent-map's own hash anyone can
// make up keys that all fall into one shard.
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

// admit counts one more task, if the bound allows it. It never waits: a task that is about to be counted out
// takes room until then, and so does one that is about to be refused.
func (x *index) admit() bool {
	if x.max > 0 && x.count.Add(1) > x.max {
		x.count.Add(-1)
		return false
	}
	return true
}

// enter counts one more task whatever the bound, and leave one less, which has ended and was not replaced.
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

// add puts in e. It returns ErrDuplicateTaskKey if a live task has its key, and otherwise ErrFull if there is
// no room. That is asked under the lock, so that an add which fails never takes the room of another.
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

// set puts in e in any case. It returns the live entry whose place it takes, which end must have ended, if
// there is one, and otherwise ErrFull if there is no room.
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

// swap puts another entry into the place of the live one of the key. next ends that and returns the other one;
// or it returns the same one, or nil if it is dead. swap returns the entry that was ended, if one was, and
// whether there was a live one.
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

// get returns the live entry of the key, or nil. What it found may have been replaced before it looked at the
// state, and then the key is still live: it looks until it finds the same entry twice. (An entry that is
// replaced dies under the lock under which the other one takes its place.)
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

// forget takes out the entry if it is this one that its key means.
func (x *index) forget(e *entry) {
	x.m.RemoveCb(e.key, func(_ string, in *entry, ok bool) bool { return ok && in == e })
}

// remove takes out the live entry of the key, if end reports that it has ended it, and returns it.
func (x *index) remove(key string, end func(e *entry) bool) (ended *entry) {
	x.m.RemoveCb(key, func(_ string, e *entry, ok bool) bool {
		if ok && end(e) {
			ended = e
		}
		return ended != nil
	})
	return ended
}

// entries returns the entries that the walk met in the index, in no order, dead ones included.
func (x *index) entries() []*entry {
	all := make([]*entry, 0, x.m.Count())
	x.m.IterCb(func(_ string, e *entry) { all = append(all, e) })
	return all
}
