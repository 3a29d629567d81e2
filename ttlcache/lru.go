// SPDX-License-Identifier: MIT

package ttlcache

import "github.com/hashicorp/golang-lru/v2/simplelru"

// An lruStore holds at most size items, and tracks which item was used least recently.
type lruStore[K comparable, V any] struct {
	lru     *simplelru.LRU[K, *item[K, V]]
	size    int
	most    int         // largest number of items since lru was created
	evicted *item[K, V] // the last item that lru evicted
}

func newLRUStore[K comparable, V any](size int) *lruStore[K, V] {
	s := &lruStore[K, V]{size: size}
	s.clear()
	return s
}

func (s *lruStore[K, V]) clear() {
	// NewLRU fails only if the size is not positive.
	s.lru, _ = simplelru.NewLRU(s.size, func(_ K, i *item[K, V]) { s.evicted = i })
	s.evicted, s.most = nil, 0
}

func (s *lruStore[K, V]) get(key K) *item[K, V] {
	i, _ := s.lru.Get(key)
	return i
}

func (s *lruStore[K, V]) peek(key K) *item[K, V] {
	i, _ := s.lru.Peek(key)
	return i
}

func (s *lruStore[K, V]) put(i *item[K, V]) (evicted *item[K, V]) {
	if s.lru.Add(i.key, i) {
		evicted = s.evicted
	}
	s.evicted, s.most = nil, max(s.most, s.lru.Len())
	return evicted
}

func (s *lruStore[K, V]) remove(key K) {
	s.lru.Remove(key)
	s.evicted = nil
	if s.most > small && s.lru.Len() < s.most/shrink {
		items := s.lru.Values() // least recently used item first
		s.clear()
		for _, i := range items {
			s.put(i)
		}
	}
}

func (s *lruStore[K, V]) len() int { return s.lru.Len() }

func (s *lruStore[K, V]) each(f func(i *item[K, V])) {
	for _, i := range s.lru.Values() {
		f(i)
	}
}
