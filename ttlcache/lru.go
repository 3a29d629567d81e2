// SPDX-License-Identifier: MIT

package ttlcache

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// An lruStore has limits, and tracks which item was used least recently.
type lruStore[K comparable, V any] struct {
	lru      *simplelru.LRU[K, *item[K, V]]
	size     int         // most items
	most     int         // largest number of items since lru was created
	capacity int64       // most weight; 0 means that the items have no weights
	weight   int64       // sum of the weights
	weights  map[K]int64 // weights other than 0
}

// newLRUStore returns a store with at least one limit. 0 is no limit.
func newLRUStore[K comparable, V any](size int, capacity int64) *lruStore[K, V] {
	if size == 0 {
		size = math.MaxInt
	}
	s := &lruStore[K, V]{size: size, capacity: capacity}
	s.clear()
	return s
}

func (s *lruStore[K, V]) clear() {
	// NewLRU fails only if the size is not positive. The store itself evicts.
	s.lru, _ = simplelru.NewLRU[K, *item[K, V]](math.MaxInt, nil)
	s.most, s.weight, s.weights = 0, 0, nil
}

func (s *lruStore[K, V]) get(key K) *item[K, V] {
	i, _ := s.lru.Get(key)
	return i
}

func (s *lruStore[K, V]) peek(key K) *item[K, V] {
	i, _ := s.lru.Peek(key)
	return i
}

func (s *lruStore[K, V]) put(i *item[K, V], weight int64) {
	s.lru.Add(i.key, i)
	s.most = max(s.most, s.lru.Len())
	s.weigh(i.key, weight)
}

// weigh sets the weight of the key's item.
func (s *lruStore[K, V]) weigh(key K, weight int64) {
	if s.capacity == 0 {
		return
	}
	s.weight += weight - s.weights[key]
	if weight == 0 {
		delete(s.weights, key)
		return
	}
	if s.weights == nil {
		s.weights = make(map[K]int64)
	}
	s.weights[key] = weight
}

// evict removes the item that was put if that one is too heavy by itself, or else the least recently used one.
func (s *lruStore[K, V]) evict(put K) *item[K, V] {
	if s.lru.Len() <= s.size && s.weight <= s.capacity {
		return nil
	}
	i := s.peek(put)
	if i == nil || s.weights[put] <= s.capacity {
		_, i, _ = s.lru.GetOldest()
	}
	s.remove(i.key)
	return i
}

func (s *lruStore[K, V]) remove(key K) {
	s.lru.Remove(key)
	s.weigh(key, 0)
	if s.most > small && s.lru.Len() < s.most/shrink {
		items := s.lru.Values() // least recently used item first
		weights := s.weights
		s.clear()
		for _, i := range items {
			s.put(i, weights[i.key])
		}
	}
}

func (s *lruStore[K, V]) len() int { return s.lru.Len() }

func (s *lruStore[K, V]) each(f func(i *item[K, V])) {
	for _, i := range s.lru.Values() {
		f(i)
	}
}
