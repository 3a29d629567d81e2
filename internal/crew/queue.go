// SPDX-License-Identifier: MIT

package crew

import "math/bits"

// A Queue is a first-in, first-out queue from which any item can be withdrawn in O(1). Withdrawn items do not
// accumulate as garbage: empty blocks are reused, so a queue of n items has at most n+1 blocks. The zero value is an
// empty queue ready to use. The owner's lock guards it.
type Queue[T any] struct {
	blocks      []*block[T] // by number; nil if the number is free
	free        []uint32    // free block numbers
	first, last *block[T]   // in queue order
	spare       *block[T]   // empty blocks, linked by next; at most BlockSize of them
	spares      int
	length      int
}

// BlockSize is the number of items in a block: small enough to find an item in its block quickly, and large enough to
// make the cost per item of a block negligible.
const BlockSize = 64

// A block is a run of adjacent items in the queue. Bit i of full is set while items[i] is waiting.
type block[T any] struct {
	items      [BlockSize]T
	full       uint64
	end        int // items from here on have not been used yet
	number     uint32
	prev, next *block[T]
}

// Len returns the number of waiting items.
func (q *Queue[T]) Len() int { return q.length }

// Next returns the number of the block that receives the item of the next Push. Withdraw and Find take that number.
func (q *Queue[T]) Next() uint32 {
	if q.last == nil || q.last.end == BlockSize {
		q.grow()
	}
	return q.last.number
}

func (q *Queue[T]) grow() {
	b := q.spare
	if b == nil {
		b = new(block[T])
	} else {
		q.spare, b.next = b.next, nil
		q.spares--
	}
	if n := len(q.free); n > 0 {
		b.number = q.free[n-1]
		q.free = q.free[:n-1]
	} else {
		b.number = uint32(len(q.blocks))
		q.blocks = append(q.blocks, nil)
	}
	q.blocks[b.number] = b
	if b.prev = q.last; b.prev == nil {
		q.first = b
	} else {
		b.prev.next = b
	}
	q.last = b
}

// Push appends an item.
func (q *Queue[T]) Push(v T) {
	q.Next()
	b := q.last
	b.items[b.end] = v
	b.full |= 1 << b.end
	b.end++
	q.length++
}

// Pop removes and returns the first item, if there is one.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if q.length == 0 {
		return v, false
	}
	b := q.first
	for b.full == 0 { // only the last block may be empty, and it is not the first while an item is waiting
		b = b.next
	}
	return q.remove(b, bits.TrailingZeros64(b.full)), true
}

// First returns the first item, if there is one.
func (q *Queue[T]) First() (v T, ok bool) {
	for v := range q.All {
		return v, true
	}
	return v, false
}

// Withdraw looks in the block with the given number for an item for which is returns true. If such an item is still
// waiting there, Withdraw removes and returns it.
func (q *Queue[T]) Withdraw(number uint32, is func(v T) bool) (v T, ok bool) {
	b := q.block(number)
	if b == nil {
		return v, false
	}
	for full := b.full; full != 0; full &= full - 1 {
		if i := bits.TrailingZeros64(full); is(b.items[i]) {
			return q.remove(b, i), true
		}
	}
	return v, false
}

// Find returns the item that Withdraw would remove.
func (q *Queue[T]) Find(number uint32, is func(v T) bool) (v T, ok bool) {
	b := q.block(number)
	if b == nil {
		return v, false
	}
	for full := b.full; full != 0; full &= full - 1 {
		if i := bits.TrailingZeros64(full); is(b.items[i]) {
			return b.items[i], true
		}
	}
	return v, false
}

func (q *Queue[T]) block(number uint32) *block[T] {
	if int(number) >= len(q.blocks) {
		return nil
	}
	return q.blocks[number]
}

// All yields the items from first to last.
func (q *Queue[T]) All(yield func(v T) bool) {
	for b := q.first; b != nil; b = b.next {
		for full := b.full; full != 0; full &= full - 1 {
			if !yield(b.items[bits.TrailingZeros64(full)]) {
				return
			}
		}
	}
}

// remove removes item i from the block, and the block from the queue if that was its last item.
func (q *Queue[T]) remove(b *block[T], i int) T {
	v := b.items[i]
	var none T
	b.items[i] = none
	b.full &^= 1 << i
	q.length--
	if b.full != 0 {
		return v
	}
	if b == q.last {
		b.end = 0 // the block stays in the queue and is reused
		if b == q.first && len(q.blocks) > BlockSize {
			b.number = 0
			q.blocks, q.free = []*block[T]{b}, nil // only a burst needs larger slices
		}
		return v
	}
	if b.prev == nil {
		q.first = b.next
	} else {
		b.prev.next = b.next
	}
	b.next.prev = b.prev
	q.blocks[b.number] = nil
	q.free = append(q.free, b.number)
	b.prev, b.next, b.end = nil, nil, 0
	if q.spares < BlockSize {
		b.next, q.spare = q.spare, b
		q.spares++
	}
	return v
}
