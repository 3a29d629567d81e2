// SPDX-License-Identifier: MIT

package ttlcache

import (
	"hash/maphash"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A Cache stores values by key until their time to live has passed. Create one with [New]; the zero value is not
// usable. All methods may be called at any time by any goroutine, including from OnEvict.
type Cache[K comparable, V any] struct {
	config Config[K, V]
	tw     *timewheel.TimeWheel
	origin time.Time // origin of the cache's clock
	seed   maphash.Seed
	shards []*shard[K, V]
}

// New returns an empty cache that uses the given wheel to expire its values. The caller must start the wheel. It may
// serve other tasks and caches, and the cache does not stop it.
//
// After the wheel has been stopped, or its Drain has removed the cache's timers, values may stay in memory. Even then
// no value is returned after its deadline. (Calling the Job of one of the cache's drained tasks creates a new timer for
// the remaining values.)
//
// New returns an error if tw is nil or a field of config is invalid; the error names the field and its value.
func New[K comparable, V any](tw *timewheel.TimeWheel, config Config[K, V]) (*Cache[K, V], error) {
	if err := config.check(tw); err != nil {
		return nil, err
	}
	c := &Cache[K, V]{config: config, tw: tw, origin: time.Now(), seed: maphash.MakeSeed()}
	n := 1 // with a limit, because several shards would have several least recently used values
	if !config.bounded() {
		for n < min(4*runtime.GOMAXPROCS(0), 64) {
			n *= 2
		}
	}
	for range n {
		c.shards = append(c.shards, newShard(c))
	}
	return c, nil
}

// Set stores a value that lives for the TTL of the [Config], replacing any existing value of the key.
func (c *Cache[K, V]) Set(key K, value V) { c.SetTTL(key, value, c.config.TTL) }

// SetTTL is like [Cache.Set], but with a separate time to live for this value, from a nanosecond
// to 146 years (longer ones are as long as that). A non-positive ttl deletes the key. A key that is not equal to itself, such as NaN, is never stored.
func (c *Cache[K, V]) SetTTL(key K, value V, ttl time.Duration) {
	if ttl <= 0 {
		c.Delete(key)
		return
	}
	if unfindable(key) {
		return
	}
	c.shardOf(key).set(key, value, c.spread(ttl), c.weight(key, value))
}

// unfindable reports whether the key is not equal to itself, as is the case for NaN. A value stored in a map under such
// a key can be neither found nor deleted.
func unfindable[K comparable](key K) bool {
	same := key
	return key != same
}

// Get returns the value of the key, and reports whether there is one.
func (c *Cache[K, V]) Get(key K) (V, bool) { return c.shardOf(key).lookUp(key) }

// Peek returns the value of the key, and reports whether there is one. Unlike [Cache.Get] it changes nothing: neither the
// value's time to live, nor when the value was used, nor the [Stats].
func (c *Cache[K, V]) Peek(key K) (V, bool) { return c.shardOf(key).find(key) }

// Expires returns when the value of the key expires, and reports whether there is a value. Like [Cache.Peek] it changes
// nothing. The time has a monotonic clock reading. Its wall clock is right as long as the machine is not suspended.
func (c *Cache[K, V]) Expires(key K) (time.Time, bool) {
	deadline, now, ok := c.shardOf(key).expires(key)
	if !ok {
		return time.Time{}, false
	}
	return time.Now().Add(time.Duration(deadline - now)), true
}

// Touch restarts the time to live of the key's value, and reports whether there is a value.
func (c *Cache[K, V]) Touch(key K) bool { return c.shardOf(key).touch(key) }

// Delete removes the value of the key, and reports whether there was one. If GetOrLoad is loading a value for
// the key, that value is not stored.
func (c *Cache[K, V]) Delete(key K) bool { return c.shardOf(key).remove(key) }

// Purge removes all values, with the [Reason] Deleted, and forgets the errors of loads. Values that are being loaded are
// not stored. It empties one shard of the cache at a time, so a value that is set meanwhile may stay.
func (c *Cache[K, V]) Purge() { c.empty(Deleted) }

// Len returns the number of values. An expired value counts until it is removed; see the package
// documentation for when that is.
func (c *Cache[K, V]) Len() int {
	n := 0
	for _, s := range c.shards {
		n += s.len()
	}
	return n
}

// All returns an iterator over the keys and values, in no particular order. It holds no lock while it yields. A value
// that is set or removed during the walk may or may not be seen. The walk copies one shard of the cache at a time, or
// the whole cache if its size is limited.
func (c *Cache[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, s := range c.shards {
			for _, p := range s.pairs() {
				if c.now() < p.deadline && !yield(p.key, p.value) {
					return
				}
			}
		}
	}
}

// Stats returns the statistics of the cache.
func (c *Cache[K, V]) Stats() Stats {
	var stats Stats
	for _, s := range c.shards {
		s.count(&stats)
	}
	return stats
}

// Close removes all values from the cache, and the cache's timers from the wheel. Values set after Close are not
// stored, so lookups find nothing. Closing a closed cache does nothing.
func (c *Cache[K, V]) Close() { c.empty(Closed) }

func (c *Cache[K, V]) empty(reason Reason) {
	var left []departure[K, V]
	for _, s := range c.shards {
		left = append(left, s.empty(reason)...)
	}
	c.shards[0].tell(left)
}

// now returns the time since the cache was created, on the monotonic clock.
func (c *Cache[K, V]) now() int64 { return int64(time.Since(c.origin)) }

// longest is the longest time to live. Deadlines do not overflow before the process has run for that long.
const longest = math.MaxInt64 / 2

// spread returns the time to live with jitter applied, at least 1 ns and at most longest.
func (c *Cache[K, V]) spread(ttl time.Duration) time.Duration {
	if c.config.Jitter == 0 {
		return min(ttl, longest)
	}
	spread := float64(ttl) * (1 + c.config.Jitter*(2*rand.Float64()-1))
	if spread >= longest {
		return longest
	}
	return max(time.Duration(spread), 1)
}

// weight returns the weight of the value, or 0 if the configuration has no weights.
func (c *Cache[K, V]) weight(key K, value V) int64 {
	if c.config.Weigh == nil {
		return 0
	}
	return min(max(c.config.Weigh(key, value), 0), 2*mostWeight)
}

func (c *Cache[K, V]) shardOf(key K) *shard[K, V] {
	if len(c.shards) == 1 {
		return c.shards[0]
	}
	return c.shards[maphash.Comparable(c.seed, key)&uint64(len(c.shards)-1)]
}
