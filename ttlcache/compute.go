// SPDX-License-Identifier: MIT

package ttlcache

import "time"

// An Op is what [Cache.Compute] does with a key.
type Op int

const (
	KeepOp   Op = iota // leave the key as it is
	SetOp              // set the value, with a new time to live
	UpdateOp           // set the value, and keep the deadline of the old one; without an old one it is SetOp
	DeleteOp           // delete the key
)

// Compute changes the value of a key in one atomic step. It calls f once, with the value of the key, and with whether
// there is one. f returns the new value and what to do. Compute returns the value that the key then has, and whether
// it has one. A set value has the TTL of the [Config].
//
// It covers setting a value only if there is none, deleting and getting a value, and counters. It counts as a use of the
// value, but not as a lookup in the [Stats], and it does not restart the time to live under TouchOnGet. Unless f returns
// KeepOp, a value that is being loaded for the key is not stored.
//
// f runs under the lock of a part of the cache. It should be short, and must not call the cache's methods. If f panics,
// nothing has changed.
func (c *Cache[K, V]) Compute(key K, f func(old V, ok bool) (new V, op Op)) (V, bool) {
	return c.ComputeTTL(key, c.config.TTL, f)
}

// ComputeTTL is like [Cache.Compute], but with a separate time to live for a value that f sets. If ttl is not positive,
// SetOp deletes the key.
func (c *Cache[K, V]) ComputeTTL(key K, ttl time.Duration, f func(old V, ok bool) (new V, op Op)) (V, bool) {
	if unfindable(key) {
		var none V
		f(none, false)
		return none, false
	}
	s := c.shardOf(key)
	value, ok, left := s.compute(key, ttl, f)
	s.tell(left)
	return value, ok
}

func (s *shard[K, V]) compute(key K, ttl time.Duration, f func(V, bool) (V, Op),
) (value V, ok bool, left []departure[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, now := s.useLocked(key)
	if i != nil {
		value = i.value
	}
	changed, op := f(value, i != nil)
	if op == UpdateOp && i == nil {
		op = SetOp
	}
	if op == SetOp && ttl <= 0 {
		op = DeleteOp
	}
	if op == KeepOp {
		return value, i != nil, nil
	}
	var weight int64
	if op != DeleteOp {
		weight = s.cache.weight(key, changed)
	}
	s.outdateLocked(key)
	switch op {
	case SetOp:
		left = s.setLocked(key, changed, s.cache.spread(ttl), weight)
	case UpdateOp:
		left = s.replaceLocked(i, changed, weight, now)
	default:
		left, _ = s.removeLocked(key)
	}
	if s.store.peek(key) == nil { // deleted, too heavy, or closed
		return *new(V), false, left
	}
	return changed, true, left
}
