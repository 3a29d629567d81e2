// SPDX-License-Identifier: MIT

package timewheel

import "iter"

// A backlog is the queue of the due entries that wait for a worker: first in, first out, and any of them may
// be taken out in O(1). Nothing is left behind by one that was, so a task that is removed while it waits is
// free for the collector, and the length is bounded by the live tasks. The dispatcher's lock guards it.
//
// The nodes are linked by number and lie in blocks that stay where they are: growing moves nothing, and an
// entry spends 4 bytes on its place instead of 8. Node 0 is the end of both the queue and the list of free
// nodes.
type backlog struct {
	blocks []*[blockSize]node
	free   uint32 // the first of the nodes not in use, linked by next
	fresh  uint32 // the first node that never was in use
	length int
}

const (
	blockSize  = 256 // nodes: 10 KB
	keepBlocks = 16  // what an empty backlog has beyond these was for a burst, and is given back
)

type node struct {
	e          *entry
	due        uint64 // when the run was due, and
	handed     uint64 // when the loop handed it over
	prev, next uint32
}

func (b *backlog) node(i uint32) *node { return &b.blocks[i/blockSize][i%blockSize] }

// push appends a run of e and notes the place in e.
func (b *backlog) push(e *entry, due, handed uint64) {
	i := b.free
	switch {
	case i != 0:
		b.free = b.node(i).next
	default:
		if b.blocks == nil {
			b.blocks = append(b.blocks, new([blockSize]node))
			b.fresh = 1
		}
		if int(b.fresh/blockSize) == len(b.blocks) {
			b.blocks = append(b.blocks, new([blockSize]node))
		}
		i = b.fresh
		b.fresh++
	}
	end := b.node(0)
	*b.node(i) = node{e: e, due: due, handed: handed, prev: end.prev}
	b.node(end.prev).next = i
	end.prev = i
	e.node = i
	b.length++
}

// remove takes out the run of e, which must wait.
func (b *backlog) remove(e *entry) node {
	i := e.node
	n := b.node(i)
	taken := *n
	b.node(n.prev).next, b.node(n.next).prev = n.next, n.prev
	*n = node{next: b.free}
	b.free, e.node = i, 0
	b.length--
	if b.length == 0 && len(b.blocks) > keepBlocks {
		*b = backlog{}
	}
	return taken
}

// pop takes out the first run. There must be one.
func (b *backlog) pop() node { return b.remove(b.node(b.node(0).next).e) }

// all yields the entries that wait, first come first.
func (b *backlog) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if b.length == 0 {
			return
		}
		for i := b.node(0).next; i != 0; i = b.node(i).next {
			if !yield(b.node(i).e) {
				return
			}
		}
	}
}
