// SPDX-License-Identifier: MIT

package limit

import (
	"cmp"
	"math"
	"time"
)

// A Bound bounds the runs of a kind. The zero value means no bound.
type Bound struct {
	Concurrency int           `json:"concurrency,omitempty"` // maximum number of concurrent runs; 0 means no bound
	Rate        int           `json:"rate,omitempty"`        // maximum number of runs that start within Per; 0 means no bound
	Per         time.Duration `json:"per,omitempty"`         // period of Rate
	Burst       int           `json:"burst,omitempty"`       // maximum number of runs that may start at once after an idle period
}

// With returns the bound with the other's numbers in place of its own, where both have one.
func (b Bound) With(o Bound) Bound {
	if b.Concurrency > 0 && o.Concurrency > 0 {
		b.Concurrency = o.Concurrency
	}
	if b.Rate > 0 && o.Rate > 0 {
		b.Rate, b.Per, b.Burst = o.Rate, cmp.Or(o.Per, b.Per), cmp.Or(o.Burst, b.Burst)
	}
	return b
}

// A Part is a node's part of a bound for all nodes: the node's rank and the number of nodes. The zero value means no
// part.
type Part struct{ Rank, Nodes int }

// Undivided is the part of a single node, which is the whole bound.
var Undivided = Part{0, 1}

// of returns the node's part of n. The remainder is divided among the first nodes. A node that counts more nodes than
// actually take part never gets more than it would with the correct count. The parts therefore add up to at most n, as
// long as each node counts all nodes that take part.
func (p Part) of(n int) int {
	switch {
	case p.Nodes == 0:
		return 0
	case p.Rank < n%p.Nodes:
		return n/p.Nodes + 1
	}
	return n / p.Nodes
}

// A bucket is a token bucket. A token is added at regular intervals until the bucket is full.
type bucket struct {
	each  time.Duration
	holds int
	tick  time.Duration // how late a run may start after its token is added without delaying later runs
	empty time.Time     // when the bucket was last empty, assuming that all tokens added since are still in it
}

// newBucket returns a full bucket for a node's part of the bound.
func newBucket(b Bound, p Part, tick time.Duration) bucket {
	takers := max(min(p.Nodes, b.Burst), 1) // the other nodes get no tokens
	each := math.Ceil(float64(b.Per) / float64(b.Rate) * float64(takers))
	of := bucket{each: time.Duration(min(each, math.MaxInt64/4)), tick: tick}
	of.holds = min(p.of(b.Burst), int(math.MaxInt64/4/of.each))
	return of
}

// tokens returns the number of tokens in the bucket.
func (b *bucket) tokens(now time.Time) int {
	if full := now.Add(-time.Duration(b.holds)*b.each - b.tick); b.empty.Before(full) {
		b.empty = full
	}
	return min(int(now.Sub(b.empty)/b.each), b.holds)
}

// take removes a token.
func (b *bucket) take(now time.Time) {
	_ = b.tokens(now) // discards excess tokens
	b.empty = b.empty.Add(b.each)
}

// after returns the time until the bucket contains n+1 tokens. n must be less than the bucket's capacity.
func (b *bucket) after(n int, now time.Time) time.Duration {
	return b.empty.Add(time.Duration(n+1) * b.each).Sub(now)
}

// become changes the bucket's rate and capacity, and preserves its tokens.
func (b *bucket) become(other bucket, now time.Time) {
	_ = b.tokens(now) // discards excess tokens
	tokens := min(float64(now.Sub(b.empty))/float64(b.each), float64(other.holds))
	other.empty = now.Add(-time.Duration(tokens * float64(other.each)))
	*b = other
}
