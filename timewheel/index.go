// SPDX-License-Identifier: MIT

package timewheel

import (
	"hash/maphash"
	"strconv"
	"sync"

	cmap "github.com/orcaman/concurrent-map/v2"
)

// An index tells which task a key means. The state of an entry, not its being in the index, decides whether
// the task is live: it changes first, and whoever finds a dead entry in the index takes it out. So every verb
// has one instant at which it happens. The callbacks run under the lock of a shard; they may take the
// dispatcher's lock, under which no lock of a shard is taken.
//
// The shard of a key is found with a hash that is seeded at random, other than concurrent-map's own, for
// which anyone can make up keys that all fall into one shard.
type index struct {
	m      cmap.ConcurrentMap[string, *entry]
	seed   maphash.Seed
	mail   mail     // by shard, or
	common *mailbox // the only one
}

// newIndex returns an index with a mailbox for each shard, or with one for all of them.
func newIndex(oneMailbox bool) *index {
	x := &index{seed: maphash.MakeSeed()}
	x.m = cmap.NewWithCustomShardingFunction[string, *entry](x.hash)
	if oneMailbox {
		x.common = newMailbox(new(sync.Mutex))
		x.mail = mail{x.common}
		return x
	}
	x.mail = make(mail, cmap.SHARD_COUNT)
	for i, missing := 0, len(x.mail); missing > 0; i++ { // a shard is known by a key that falls into it
		key := strconv.Itoa(i)
		if n := x.shard(key); x.mail[n] == nil {
			x.mail[n] = newMailbox(x.m.GetShard(key))
			missing--
		}
	}
	return x
}

func (x *index) hash(key string) uint32 { return uint32(maphash.String(x.seed, key)) }

// shard returns the number of the key's shard, as concurrent-map finds it.
func (x *index) shard(key string) int { return int(uint(x.hash(key)) % uint(cmap.SHARD_COUNT)) }

// mailbox returns the one for the entry. Any would do for a timer, which is in no shard: they are spread.
func (x *index) mailbox(e *entry) *mailbox {
	switch {
	case x.common != nil:
		return x.common
	case e.key == "":
		return x.mail[e.due.Load()%uint64(len(x.mail))]
	}
	return x.mail[x.shard(e.key)]
}

// shardMailbox returns the mailbox whose lock is that of the key's shard, or nil if there is none.
func (x *index) shardMailbox(key string) *mailbox {
	if x.common != nil {
		return nil
	}
	return x.mail[x.shard(key)]
}

// putLocked puts the entry into the mailbox of its shard, whose lock the caller holds, or into the common
// one if there is none.
func (x *index) putLocked(b *mailbox, e *entry, why post) receipt {
	if b == nil {
		return x.common.put(e, why)
	}
	return b.putLocked(e, why)
}

// add puts in the entry and posts it. It returns ErrDuplicateTaskKey if a live task has its key, and
// otherwise ErrFull if admit does not count it in. That is asked under the lock, so that an add which fails
// never takes the room of another.
func (x *index) add(e *entry, admit func() bool) (r receipt, err error) {
	var tombstone *entry
	b := x.shardMailbox(e.key)
	x.m.Upsert(e.key, e, func(ok bool, in, _ *entry) *entry {
		switch {
		case ok && in.live():
			err = ErrDuplicateTaskKey
			return in
		case admit():
			r = x.putLocked(b, e, toAdd)
			return e
		}
		err = ErrFull
		tombstone = newTombstone(e.key)
		return tombstone
	})
	if tombstone != nil {
		x.forget(tombstone)
	}
	return r, err
}

// newTombstone returns a dead entry. concurrent-map puts in what an Upsert's callback returns, come what may,
// and a dead entry is as good as none.
func newTombstone(key string) *entry {
	e := &entry{key: key}
	e.state.Store(removed)
	return e
}

// get returns the live entry of the key, or nil.
func (x *index) get(key string) *entry {
	for {
		e, ok := x.m.Get(key)
		if !ok {
			return nil
		}
		if e.live() {
			return e
		}
		// The entry has died since, and if it was replaced its successor is there by now: both happen under
		// the lock that forget takes.
		x.forget(e)
	}
}

// forget takes out the entry if it is this one that its key means.
func (x *index) forget(e *entry) {
	x.m.RemoveCb(e.key, func(_ string, in *entry, ok bool) bool { return ok && in == e })
}

// remove calls kill for what the key means, takes it out, and posts it if kill reports that it ended it.
func (x *index) remove(key string, kill func(e *entry) bool) (r receipt) {
	b := x.shardMailbox(key)
	x.m.RemoveCb(key, func(_ string, e *entry, ok bool) bool {
		if ok && kill(e) {
			r = x.putLocked(b, e, toRemove)
		}
		return ok
	})
	return r
}

// replace puts e in the place of old, and reports whether it did: old must still be what the key means, and
// kill must report that it ended it.
func (x *index) replace(old, e *entry, kill func(e *entry) bool) (replaced bool) {
	var tombstone *entry
	x.m.Upsert(e.key, e, func(ok bool, in, _ *entry) *entry {
		switch {
		case ok && in == old && kill(old):
			replaced = true
			return e
		case ok:
			return in
		}
		tombstone = newTombstone(e.key)
		return tombstone
	})
	if tombstone != nil {
		x.forget(tombstone)
	}
	return replaced
}

// len counts the entries, the dead among them too.
func (x *index) len() int { return x.m.Count() }

// entries returns those that were in the index when the walk came by, in no order.
func (x *index) entries() []*entry {
	all := make([]*entry, 0, x.m.Count())
	x.m.IterCb(func(_ string, e *entry) { all = append(all, e) })
	return all
}
