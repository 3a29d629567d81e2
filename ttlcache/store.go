// SPDX-License-Identifier: MIT

package ttlcache

import "maps"

// A store maps keys to the items of a shard. The shard's lock guards it.
type store[K comparable, V any] interface {
	// get returns the item of the key, or nil, and counts as a use.
	get(key K) *item[K, V]
	// peek is like get, but does not count as a use. It changes nothing, so a read lock is enough.
	peek(key K) *item[K, V]
	// put adds an item, or changes the weight of one that it has.
	put(i *item[K, V], weight int64)
	// evict removes an item, and returns it, if the store is over its limits. It returns nil if it is not. The key is
	// that of the item that was just put.
	evict(put K) *item[K, V]
	remove(key K)
	len() int
	each(f func(i *item[K, V]))
	clear()
}

// A mapStore is a store without a size limit.
type mapStore[K comparable, V any] struct {
	items map[K]*item[K, V]
	most  int // largest number of items since items was created
}

// A Go map never shrinks. So when a map holds fewer than 1/shrink of the most entries it ever held, it is replaced with
// a new one, unless it is small. By that time enough entries have been removed that copying the remaining ones costs
// little per removal.
const (
	shrink = 8
	small  = 1024
)

// shrunk returns the map, or a copy of it if it is to be replaced. most is the largest number of entries that it held.
func shrunk[K comparable, E any](m map[K]E, most int) (map[K]E, int) {
	if most <= small || len(m) >= most/shrink {
		return m, most
	}
	is := make(map[K]E, len(m))
	maps.Copy(is, m)
	return is, len(is)
}

func newMapStore[K comparable, V any]() *mapStore[K, V] {
	return &mapStore[K, V]{items: make(map[K]*item[K, V])}
}

func (s *mapStore[K, V]) get(key K) *item[K, V]  { return s.items[key] }
func (s *mapStore[K, V]) peek(key K) *item[K, V] { return s.items[key] }

func (s *mapStore[K, V]) put(i *item[K, V], _ int64) {
	s.items[i.key] = i
	s.most = max(s.most, len(s.items))
}

func (s *mapStore[K, V]) evict(K) *item[K, V] { return nil }

func (s *mapStore[K, V]) remove(key K) {
	delete(s.items, key)
	s.items, s.most = shrunk(s.items, s.most)
}

func (s *mapStore[K, V]) len() int { return len(s.items) }

func (s *mapStore[K, V]) each(f func(i *item[K, V])) {
	for _, i := range s.items {
		f(i)
	}
}

func (s *mapStore[K, V]) clear() { *s = *newMapStore[K, V]() }
