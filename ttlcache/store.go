// SPDX-License-Identifier: MIT

package ttlcache

// A store finds the items of a shard by key. The shard's lock guards it.
type store[K comparable, V any] interface {
	// get returns the item of the key, or nil, and counts as a use.
	get(key K) *item[K, V]
	// peek is get without counting as a use. It changes nothing: a lock for reading is enough.
	peek(key K) *item[K, V]
	// put adds an item whose key is not in the store. It returns the item that it evicted, or nil.
	put(i *item[K, V]) (evicted *item[K, V])
	remove(key K)
	len() int
	each(f func(i *item[K, V]))
	clear()
}

// A mapStore has no bound.
type mapStore[K comparable, V any] struct {
	items map[K]*item[K, V]
	most  int // the most items at once since items was made
}

// A Go map never shrinks. When it holds fewer than 1/shrink of the most entries it ever had, it is replaced by
// a new one, unless it is small. Enough entries have left by then that copying the rest costs little for each.
const (
	shrink = 8
	small  = 1024
)

func newMapStore[K comparable, V any]() *mapStore[K, V] {
	return &mapStore[K, V]{items: make(map[K]*item[K, V])}
}

func (s *mapStore[K, V]) get(key K) *item[K, V]  { return s.items[key] }
func (s *mapStore[K, V]) peek(key K) *item[K, V] { return s.items[key] }

func (s *mapStore[K, V]) put(i *item[K, V]) *item[K, V] {
	s.items[i.key] = i
	s.most = max(s.most, len(s.items))
	return nil
}

func (s *mapStore[K, V]) remove(key K) {
	delete(s.items, key)
	if s.most > small && len(s.items) < s.most/shrink {
		items := make(map[K]*item[K, V], len(s.items))
		for k, i := range s.items {
			items[k] = i
		}
		s.items, s.most = items, len(items)
	}
}

func (s *mapStore[K, V]) len() int { return len(s.items) }

func (s *mapStore[K, V]) each(f func(i *item[K, V])) {
	for _, i := range s.items {
		f(i)
	}
}

func (s *mapStore[K, V]) clear() { *s = *newMapStore[K, V]() }
