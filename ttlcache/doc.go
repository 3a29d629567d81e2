// SPDX-License-Identifier: MIT

// Package ttlcache is a cache in memory whose values expire by a timing wheel.
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
// # What is promised
//
// A value is never returned when its time to live is over, however late the wheel is: every look-up compares
// its deadline with the monotonic clock. The wheel takes it out of memory, and OnEvict is told, at most 1/128
// of its time to live after that (or 2^20 ns, about 1 ms), plus what a run of the wheel may be late.
//
// A key has one value and one deadline. To set it again moves the deadline, and no timer of the old value is
// left that could take out the new one. Keys that were set, overwritten, and have expired leave neither a
// timer nor memory behind.
//
// [Cache.GetOrLoad] calls the load function once for any number of callers that ask for a key at the same
// time.
//
// # How
//
// Items that expire at about the same time share a bucket, and a bucket has one timer in the wheel: items
// with one time to live need 257 timers a shard at most, however many they are, and to take out a bucket
// costs little more than to delete its keys from a map. An item whose deadline is put off stays in its bucket
// until that ends, and only then goes on to another. The cache is divided into shards, each with a lock of
// its own, unless it has a size bound: the least recently used of all is known to
// github.com/hashicorp/golang-lru/v2/simplelru, in one.
//
// Several caches may share a wheel with each other and with tasks.
package ttlcache
