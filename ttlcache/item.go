// SPDX-License-Identifier: MIT

package ttlcache

import (
	"math"
	"math/bits"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// An item is a value in the cache. The lock of the item's shard guards it.
type item[K comparable, V any] struct {
	key      K
	value    V
	ttl      time.Duration
	deadline int64 // in nanoseconds of the cache's clock

	bucket     *bucket[K, V]
	prev, next *item[K, V] // neighbours in the bucket's ring
}

// live reports whether the value may still be returned.
func (i *item[K, V]) live(now int64) bool { return now < i.deadline }

// A bucket holds the items of a shard that leave together, however many there are. One timer of the wheel serves all of
// them, so a million items with the same time to live need at most 257 timers per shard.
//
// The deadlines of the items in a bucket fall within one span of 2^shift nanoseconds, and the items leave at its end.
// Spans are numbered from the origin of the cache's clock. A span is 1/256 to 1/128 of the time to live, but at least
// 2^20 ns. An item may stay in memory for up to one span after its deadline, although lookups no longer return it.
type bucket[K comparable, V any] struct {
	bucketID
	head   *item[K, V]
	timer  *timewheel.Timer
	ending bool // the bucket is due: it has left the shard, and its items leave or move to other buckets
}

type bucketID struct {
	number int64
	shift  uint8
}

// minShift determines the shortest span: 2^20 ns, which is about 1 ms.
const minShift = 20

// bucketFor returns the bucket for an item with the given time to live and deadline.
func bucketFor(ttl time.Duration, deadline int64) bucketID {
	shift := uint8(max(bits.Len64(uint64(ttl))-8, minShift))
	return bucketID{number: (deadline-1)>>shift + 1, shift: shift}
}

// end returns when the bucket is due, which is no earlier than any deadline in it.
func (id bucketID) end() int64 {
	if id.number > math.MaxInt64>>id.shift {
		return math.MaxInt64
	}
	return id.number << id.shift
}

func (b *bucket[K, V]) add(i *item[K, V]) {
	i.bucket = b
	if b.head == nil {
		i.prev, i.next = i, i
		b.head = i
		return
	}
	last := b.head.prev
	i.prev, i.next = last, b.head
	last.next, b.head.prev = i, i
}

func (b *bucket[K, V]) remove(i *item[K, V]) {
	if i.next == i {
		b.head = nil
	} else {
		i.prev.next, i.next.prev = i.next, i.prev
		if b.head == i {
			b.head = i.next
		}
	}
	i.bucket, i.prev, i.next = nil, nil, nil
}
