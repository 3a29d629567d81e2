// SPDX-License-Identifier: MIT

// Package ttlcache provides an in-memory cache that uses a timing wheel to expire its values. Times to live count on the
// monotonic clock, which stands still while the machine is suspended. So a value with five minutes to live may still be
// returned after an hour of sleep: it expires when the machine has been awake for five minutes.
//
//	tw := timewheel.NewTimeWheel(10*time.Millisecond, 1024)
//	tw.Start()
//	defer tw.Stop()
//
//	sessions, err := ttlcache.New(tw, ttlcache.Config[string, Session]{TTL: 30 * time.Minute, TouchOnGet: true})
//	...
//	sessions.Set(id, session)
//	session, ok := sessions.Get(id)
//
// In the repository, examples/cache is an HTTP server with such a cache.
//
// # Guarantees
//
// A value is never returned after its deadline, however late the wheel is, because every lookup compares the deadline
// with the monotonic clock. The wheel removes the value from memory and calls OnEvict slightly later. The delay is at
// most 1/128 of the time to live (or 2^20 ns, about 1 ms, if that is longer), plus the lateness of a run of the wheel.
//
// A key has one value and one deadline. Setting the key again moves the deadline, and leaves no old timer that could
// remove the new value. A key that has been set, overwritten and expired leaves neither a timer nor memory behind.
//
// [Cache.GetOrLoad] calls the load function once for any number of callers that request the same key at the same time.
// The load has the context of the caller that began it. A load that failed is over: the next caller begins another one. A
// value that was found is never stored again. If the configuration says so, an error is remembered for a while, and an
// old value is returned while one load replaces it.
//
// [Cache.Compute] changes a key in one atomic step: it sets a value if there is none, gets and deletes one, or counts.
//
// A size limit is a number of values, a sum of weights, or both. The least recently used values leave first.
//
// # Implementation
//
// Items that expire at about the same time share a bucket, and a bucket has one timer in the wheel. Items with the same
// time to live need at most 257 timers per shard, however many items there are. Removing a bucket costs little more
// than deleting its keys from a map. An item whose deadline is postponed stays in its bucket until the bucket ends, and
// only then moves to another bucket.
//
// The cache is divided into shards, each with its own lock. A cache with a size limit has a single shard, in which
// github.com/hashicorp/golang-lru/v2/simplelru tracks the least recently used item.
//
// A shard also holds the loads of its keys, under the same lock as the values. So a caller either finds a value or joins
// the load whose value will be stored. A change of the key takes the load out of the shard in the same step.
//
// Several caches may share a wheel with each other and with tasks.
package ttlcache
