// SPDX-License-Identifier: MIT

package limit

import (
	"math"
	"time"
)

// A Bound bounds the runs of a kind. The zero value is no bound.
type Bound struct {
	Concurrency int           // runs in progress at the same time; 0 means no bound
	Rate        int           // runs that start within Per; 0 means no bound
	Per         time.Duration // of Rate
	Burst       int           // runs that may start at once after an idle time
}

// A Part is a node's part in a bound for all nodes: its rank among them, and their number. The zero value is no part.
type Part struct{ Rank, Nodes int }

// Undivided is the part of the only node.
var Undivided = Part{0, 1}

// of returns how many of n the node gets. The first nodes share the remainder. A node that sees more nodes than take
// part gets no more than if it saw only those. So the parts add up to at most n, as long as each node sees every other
// that takes part.
func (p Part) of(n int) int {
	switch {
	case p.Nodes == 0:
		return 0
	case p.Rank < n%p.Nodes:
		return n/p.Nodes + 1
	}
	return n / p.Nodes
}

// A bucket has tokens. One is added at regular intervals until it is full.
type bucket struct {
	each  time.Duration
	holds int
	tick  time.Duration // how much later than its token a run may start without delaying the next ones
	empty time.Time     // the time when it was empty, as if all tokens since were kept
}

// newBucket returns the full bucket of a part of the bound.
func newBucket(b Bound, p Part, tick time.Duration) bucket {
	takers := max(min(p.Nodes, b.Burst), 1) // the other nodes get no token
	each := math.Ceil(float64(b.Per) / float64(b.Rate) * float64(takers))
	of := bucket{each: time.Duration(min(each, math.MaxInt64/4)), tick: tick}
	of.holds = min(p.of(b.Burst), int(math.MaxInt64/4/of.each))
	return of
}

// tokens returns how many there are.
func (b *bucket) tokens(now time.Time) int {
	if full := now.Add(-time.Duration(b.holds)*b.each - b.tick); b.empty.Before(full) {
		b.empty = full
	}
	return min(int(now.Sub(b.empty)/b.each), b.holds)
}

// take takes one.
func (b *bucket) take(now time.Time) {
	_ = b.tokens(now) // no more than it holds
	b.empty = b.empty.Add(b.each)
}

// after returns how long it takes until there is one token more than n, which must be less than the bucket holds.
func (b *bucket) after(n int, now time.Time) time.Duration {
	return b.empty.Add(time.Duration(n+1) * b.each).Sub(now)
}

// become gives the bucket another rate and size, and keeps its tokens.
func (b *bucket) become(other bucket, now time.Time) {
	_ = b.tokens(now) // no more than it holds
	tokens := min(float64(now.Sub(b.empty))/float64(b.each), float64(other.holds))
	other.empty = now.Add(-time.Duration(tokens * float64(other.each)))
	*b = other
}
