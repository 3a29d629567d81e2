// SPDX-License-Identifier: MIT

package ttlcache

import (
	"sync"
	"sync/atomic"
	"time"
)

// chunk is the maximum number of items that leave a bucket each time the lock is held.
const chunk = 1024

// A shard is a part of the cache with its own lock.
//
// An item is in the store and in one bucket, or in neither. Its bucket ends at the item's deadline, or earlier if the
// deadline was postponed. In that case the item moves to another bucket when its bucket ends, so postponing a deadline
// many times costs no more than postponing it once.
type shard[K comparable, V any] struct {
	cache *Cache[K, V]
	reads bool // whether lookups change only the counters

	mu          sync.RWMutex // protects the fields below
	store       store[K, V]
	buckets     map[bucketID]*bucket[K, V]
	flights     map[K]*flight[V]
	mostFlights int // largest number of flights since the map was created
	left        [reasons]uint64
	closed      bool

	loads, loadErrors uint64

	hits, misses atomic.Uint64
	_            [64]byte // keeps two shards from sharing a cache line
}

// A departure is a value that left the cache, for which OnEvict must be called.
type departure[K comparable, V any] struct {
	key    K
	value  V
	reason Reason
}

func newShard[K comparable, V any](c *Cache[K, V]) *shard[K, V] {
	s := &shard[K, V]{
		cache:   c,
		reads:   !c.config.TouchOnGet && !c.config.bounded(),
		buckets: make(map[bucketID]*bucket[K, V]),
	}
	if c.config.bounded() {
		s.store = newLRUStore[K, V](c.config.MaxEntries, c.config.MaxWeight)
	} else {
		s.store = newMapStore[K, V]()
	}
	return s
}

// tell calls OnEvict for each departure. If a call panics or ends the goroutine, the remaining calls are made on other
// goroutines, and only then does the panic go on. Of several panics only the first does. The caller must not hold a lock.
func (s *shard[K, V]) tell(left []departure[K, V]) {
	if len(left) == 0 {
		return
	}
	told := 0
	some := func() {
		for told < len(left) {
			d := left[told]
			told++
			s.cache.config.OnEvict(d.key, d.value, d.reason)
		}
	}
	defer func() {
		for told < len(left) {
			elsewhere(some)
		}
	}()
	some()
}

// elsewhere calls f on another goroutine, and waits until f has returned, panicked or ended that goroutine.
func elsewhere(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		f()
	}()
	<-ended
}

// leaveLocked counts the item's value as gone, and appends it to the departures if there is an OnEvict. A value past
// its deadline counts as expired, whatever the given reason.
func (s *shard[K, V]) leaveLocked(
	to []departure[K, V], i *item[K, V], reason Reason, now int64,
) []departure[K, V] {
	if !i.live(now) {
		reason = Expired
	}
	s.left[reason]++
	if s.cache.config.OnEvict == nil {
		return to
	}
	return append(to, departure[K, V]{i.key, i.value, reason})
}

func (s *shard[K, V]) set(key K, value V, ttl time.Duration, weight int64) {
	s.mu.Lock()
	s.outdateLocked(key)
	left := s.setLocked(key, value, ttl, weight)
	s.mu.Unlock()
	s.tell(left)
}

// setLocked stores a value. A value that is heavier than the limit is evicted at once.
func (s *shard[K, V]) setLocked(key K, value V, ttl time.Duration, weight int64) (left []departure[K, V]) {
	if s.closed {
		return nil
	}
	now := s.cache.now()
	i := s.store.get(key)
	if i == nil {
		i = &item[K, V]{key: key, value: value}
		s.scheduleLocked(i, ttl, now)
		return s.putLocked(left, i, weight, now)
	}
	left = s.replaceLocked(i, value, weight, now)
	if i.bucket != nil { // not too heavy
		s.scheduleLocked(i, ttl, now)
	}
	return left
}

// replaceLocked replaces the value of an item, and keeps its deadline.
func (s *shard[K, V]) replaceLocked(i *item[K, V], value V, weight, now int64) (left []departure[K, V]) {
	left = s.leaveLocked(left, i, Replaced, now)
	i.value = value
	if s.cache.config.MaxWeight == 0 {
		return left
	}
	return s.putLocked(left, i, weight, now)
}

// putLocked puts an item that is in a bucket into the store, or changes its weight, and evicts items until the limits hold.
func (s *shard[K, V]) putLocked(left []departure[K, V], i *item[K, V], weight, now int64) []departure[K, V] {
	s.store.put(i, weight)
	for evicted := s.store.evict(i.key); evicted != nil; evicted = s.store.evict(i.key) {
		s.unlinkLocked(evicted)
		left = s.leaveLocked(left, evicted, Evicted, now)
	}
	return left
}

// scheduleLocked sets the item's time to live, starting now.
func (s *shard[K, V]) scheduleLocked(i *item[K, V], ttl time.Duration, now int64) {
	i.ttl, i.deadline = ttl, now+int64(ttl)
	s.linkLocked(i, now)
}

// linkLocked puts the item into the bucket for its deadline, unless it is already in a bucket that ends no later.
func (s *shard[K, V]) linkLocked(i *item[K, V], now int64) {
	id := bucketFor(i.ttl, i.deadline)
	if i.bucket != nil {
		if i.bucket.end() <= id.end() {
			return
		}
		s.unlinkLocked(i)
	}
	b := s.buckets[id]
	if b == nil {
		b = &bucket[K, V]{bucketID: id}
		s.buckets[id] = b
		b.timer = s.cache.tw.AfterFunc(time.Duration(id.end()-now), func() { s.expire(b) })
	}
	b.add(i)
}

// unlinkLocked removes the item from its bucket. If the bucket is then empty, it also removes the bucket's timer from
// the wheel.
func (s *shard[K, V]) unlinkLocked(i *item[K, V]) {
	b := i.bucket
	b.remove(i)
	if b.head == nil && !b.ending {
		delete(s.buckets, b.bucketID)
		b.timer.Stop()
	}
}

// expire removes the items of a bucket whose end has come, even if OnEvict panics or ends the goroutine.
func (s *shard[K, V]) expire(b *bucket[K, V]) {
	more := true
	some := func() {
		for more {
			var left []departure[K, V]
			left, more = s.expireSome(b)
			s.tell(left)
		}
	}
	defer func() {
		for more {
			elsewhere(some)
		}
	}()
	some()
}

// expireSome removes the bucket from the shard and a chunk of items from the bucket. An item whose deadline was
// postponed moves to another bucket. If a timer that was drained from the wheel is run too early, all items move.
func (s *shard[K, V]) expireSome(b *bucket[K, V]) (left []departure[K, V], more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !b.ending {
		if s.buckets[b.bucketID] != b {
			return nil, false // it was emptied in the meantime, and another bucket may have replaced it
		}
		b.ending = true
		delete(s.buckets, b.bucketID)
		b.timer.Stop() // in case this call does not come from the timer
	}
	now := s.cache.now()
	for n := 0; n < chunk && b.head != nil; n++ {
		i := b.head
		b.remove(i)
		if i.live(now) {
			s.linkLocked(i, now)
			continue
		}
		s.store.remove(i.key)
		left = s.leaveLocked(left, i, Expired, now)
	}
	return left, b.head != nil
}

func (s *shard[K, V]) lookUp(key K) (value V, ok bool) {
	if s.reads {
		value, ok = s.find(key)
	} else {
		value, ok = s.use(key)
	}
	if ok {
		s.hits.Add(1)
	} else {
		s.misses.Add(1)
	}
	return value, ok
}

// find is a lookup that does not count as a use.
func (s *shard[K, V]) find(key K) (value V, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := s.store.peek(key)
	if i == nil || !i.live(s.cache.now()) {
		return value, false
	}
	return i.value, true
}

// use is a lookup that counts as a use if it finds a live item.
func (s *shard[K, V]) use(key K) (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := s.useAndTouchLocked(key)
	if i == nil {
		return value, false
	}
	return i.value, true
}

// isOld reports whether the key has a value that has been in the cache for at least RefreshAfter.
func (s *shard[K, V]) isOld(key K) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.isOldLocked(key)
}

func (s *shard[K, V]) isOldLocked(key K) bool {
	i := s.store.peek(key)
	return i != nil && i.ttl-time.Duration(i.deadline-s.cache.now()) >= s.cache.config.RefreshAfter
}

func (s *shard[K, V]) touch(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, now := s.useLocked(key)
	if i == nil {
		return false
	}
	s.scheduleLocked(i, i.ttl, now)
	return true
}

// useAndTouchLocked is useLocked, and restarts the item's time to live if the configuration says so.
func (s *shard[K, V]) useAndTouchLocked(key K) (i *item[K, V], now int64) {
	i, now = s.useLocked(key)
	if i != nil && s.cache.config.TouchOnGet {
		s.scheduleLocked(i, i.ttl, now)
	}
	return i, now
}

// useLocked returns the item of the key if it is live, and makes it the most recently used one.
func (s *shard[K, V]) useLocked(key K) (i *item[K, V], now int64) {
	now = s.cache.now()
	if i = s.store.peek(key); i == nil || !i.live(now) {
		return nil, now
	}
	return s.store.get(key), now
}

// expires returns the deadline of the key's value, and the time.
func (s *shard[K, V]) expires(key K) (deadline, now int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, now := s.store.peek(key), s.cache.now()
	if i == nil || !i.live(now) {
		return 0, now, false
	}
	return i.deadline, now, true
}

func (s *shard[K, V]) remove(key K) bool {
	s.mu.Lock()
	s.outdateLocked(key)
	left, ok := s.removeLocked(key)
	s.mu.Unlock()
	s.tell(left)
	return ok
}

func (s *shard[K, V]) removeLocked(key K) (left []departure[K, V], ok bool) {
	i, now := s.store.peek(key), s.cache.now()
	if i == nil {
		return nil, false
	}
	s.store.remove(key)
	s.unlinkLocked(i)
	return s.leaveLocked(nil, i, Deleted, now), i.live(now)
}

// empty removes all items and flights, and closes the shard if the reason is Closed.
func (s *shard[K, V]) empty(reason Reason) (left []departure[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cache.now()
	s.store.each(func(i *item[K, V]) {
		i.bucket.head = nil // the bucket may be ending, and is then no longer in the shard
		left = s.leaveLocked(left, i, reason, now)
	})
	for _, b := range s.buckets {
		b.timer.Stop()
	}
	clear(s.buckets)
	s.store.clear()
	for key := range s.flights {
		s.outdateLocked(key)
	}
	s.closed = s.closed || reason == Closed
	return left
}

func (s *shard[K, V]) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.store.len()
}

type pair[K comparable, V any] struct {
	key      K
	value    V
	deadline int64
}

// pairs returns the keys and values with their deadlines.
func (s *shard[K, V]) pairs() []pair[K, V] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]pair[K, V], 0, s.store.len())
	s.store.each(func(i *item[K, V]) { all = append(all, pair[K, V]{i.key, i.value, i.deadline}) })
	return all
}

func (s *shard[K, V]) count(to *Stats) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	to.Hits += s.hits.Load()
	to.Misses += s.misses.Load()
	to.Loads += s.loads
	to.LoadErrors += s.loadErrors
	to.Expired += s.left[Expired]
	to.Replaced += s.left[Replaced]
	to.Deleted += s.left[Deleted]
	to.Evicted += s.left[Evicted]
	to.Closed += s.left[Closed]
}
