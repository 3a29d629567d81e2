// SPDX-License-Identifier: MIT

package timewheel

import "iter"

// A backlog is the queue of the due entries that wait for a worker: first in, first out, and any of them may
// be taken out in O(1). Nothing is left behind by one that was, so a task that is removed while it waits is
// free for the collector, and the length is bounded by the live tasks. The dispatcher's lock guards it.
//
// The nodes are linked by number and lie in blocks that stay where they are: growing moves nothing, and an
// entry spends 4 bytes on its place instead of 8. There is no node 0: it ends both the queue and the list of
// free nodes.
type backlog struct {
	blocks      []*[blockSize]node
	first, last uint32
	free        uint32 // the first of the nodes not in use, linked by next
	fresh       uint32 // how many nodes were in use ever
	length      int
}

const (
	blockSize = 256 // nodes: 10 KB

	// keepBlocks is how much an empty backlog keeps, 640 KB; what it has beyond these was for a burst, and is
	// given back. With a quarter of that, a wheel with 5,000 tasks due at each tick made a third of its
	// garbage here.
	keepBlocks = 64
)

type node struct {
	e          *entry
	due        uint64 // when the run was due, and
	handed     uint64 // when the loop handed it over
	prev, next uint32
}

func (b *backlog) node(i uint32) *node { return &b.blocks[(i-1)/blockSize][(i-1)%blockSize] }

// push appends a run of e and notes the place in e.
func (b *backlog) push(e *entry, due, handed uint64) {
	i := b.free
	if i != 0 {
		b.free = b.node(i).next
	} else {
		if int(b.fresh/blockSize) == len(b.blocks) {
			b.blocks = append(b.blocks, new([blockSize]node))
		}
		b.fresh++
		i = b.fresh
	}
	*b.node(i) = node{e: e, due: due, handed: handed, prev: b.last}
	if b.last == 0 {
		b.first = i
	} else {
		b.node(b.last).next = i
	}
	b.last = i
	e.node = i
	b.length++
}

// remove takes out the run of e, which must wait.
func (b *backlog) remove(e *entry) node {
	i := e.node
	n := b.node(i)
	taken := *n
	if n.prev == 0 {
		b.first = n.next
	} else {
		b.node(n.prev).next = n.next
	}
	if n.next == 0 {
		b.last = n.prev
	} else {
		b.node(n.next).prev = n.prev
	}
	*n = node{next: b.free}
	b.free, e.node = i, 0
	b.length--
	if b.length == 0 && len(b.blocks) > keepBlocks {
		*b = backlog{}
	}
	return taken
}

// pop takes out the first run. There must be one.
func (b *backlog) pop() node { return b.remove(b.node(b.first).e) }

// all yields the entries that wait, first come first.
func (b *backlog) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for i := b.first; i != 0; i = b.node(i).next {
			if !yield(b.node(i).e) {
				return
			}
		}
	}
}
