// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"math"
	"time"
)

// A Limit bounds the runs of a kind. The zero value is no bound.
type Limit struct {
	Concurrency int           // runs that are running at the same time; 0 means no bound
	Rate        int           // runs that start within Per; 0 means no bound
	Per         time.Duration // of Rate
	Burst       int           // runs that may start at once, if none has started for long enough
}

// WithConcurrency bounds how many runs of the kind are running at the same time in this scheduler. A due task
// waits for its turn without a worker, so that other kinds are not delayed. The runs begin in due order, or the
// groups take turns ([Task].Group). n below [WithPoolSize] leaves workers for other kinds, also if the runs are
// long. The default is no bound. n must be positive.
//
// If a kind has a limit, this one or another, its overdue tasks run before those of the kind that fall due now.
func WithConcurrency(n int) KindOption {
	return func(k *kind) error { return k.limit.concurrent(n) }
}

// WithRate bounds how many runs of the kind start in this scheduler: n within per, evenly spread, and burst at
// once if none has started for long enough. So within any time t at most burst + n·(t+tick)/per start. The tick
// ([WithTick]) is how late a run may start without making the next ones late, so that the rate is kept on the
// average. An attempt counts as a run. n, per and burst must be positive.
//
// On a node a start takes some milliseconds, in which the engine confirms it, and no more than burst are being
// confirmed at the same time. So for a high rate let burst be what the rate allows within 20 ms, or more.
func WithRate(n int, per time.Duration, burst int) KindOption {
	return func(k *kind) error { return k.limit.spread(n, per, burst) }
}

// WithClusterConcurrency is [WithConcurrency] for all nodes of an engine together. Each node that handles the
// kind takes an equal share of n. If n is less than the number of nodes, some have none. All nodes must set
// the same n. A share that a node does not use is not lent to others.
//
// A node takes no share until every other node must have seen it: for the longest lease of all nodes
// ([WithLease]), unless it is the only one with the kind. When a node joins, runs that have begun are not
// interrupted: until they have ended, n can be exceeded by them. So it can be by a run whose node has lost its
// lease. On a [engine.Store] this is a bound like that of WithConcurrency.
func WithClusterConcurrency(n int) KindOption {
	return func(k *kind) error { return k.cluster.concurrent(n) }
}

// WithClusterRate is [WithRate] for all nodes of an engine together. They share n and burst as with
// [WithClusterConcurrency], so at most burst nodes run the kind. A node begins without a burst, and what it has
// saved up for one is lost when it leaves.
func WithClusterRate(n int, per time.Duration, burst int) KindOption {
	return func(k *kind) error { return k.cluster.spread(n, per, burst) }
}

func (l *Limit) concurrent(n int) error {
	l.Concurrency = n
	return positive("concurrency", n)
}

func (l *Limit) spread(n int, per time.Duration, burst int) error {
	if n <= 0 || per <= 0 || burst <= 0 {
		return fmt.Errorf("durable: rate of %d within %v with bursts of %d: all must be positive", n, per, burst)
	}
	l.Rate, l.Per, l.Burst = n, per, burst
	return nil
}

// A part is that of one node in what all nodes may do: the node's rank among them, and their number. The zero
// value is no part.
type part struct{ rank, nodes int }

// undivided is the part of the only node.
var undivided = part{0, 1}

// of returns how many the node gets of n. The first of the nodes get those that are left over. A node that sees
// more nodes than take part gets no more than if it saw those alone. So the parts are n at most in all, as long
// as each node sees every other that takes part.
func (p part) of(n int) int {
	switch {
	case p.nodes == 0:
		return 0
	case p.rank < n%p.nodes:
		return n/p.nodes + 1
	}
	return n / p.nodes
}

// A bucket has tokens: one comes each so often, until there are as many as it holds.
type bucket struct {
	each  time.Duration
	holds int
	tick  time.Duration // how much later than its token a run may start without making the next ones later
	empty time.Time     // when it would have been empty if all tokens since then were there
}

// newBucket returns the full bucket of a part of the limit.
func newBucket(l Limit, p part, tick time.Duration) bucket {
	takers := max(min(p.nodes, l.Burst), 1) // the others get no token
	each := math.Ceil(float64(l.Per) / float64(l.Rate) * float64(takers))
	b := bucket{each: time.Duration(min(each, math.MaxInt64/4)), tick: tick}
	b.holds = min(p.of(l.Burst), int(math.MaxInt64/4/b.each))
	return b
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

// after returns how long it takes until there is one more than n, which is less than it holds.
func (b *bucket) after(n int, now time.Time) time.Duration {
	return b.empty.Add(time.Duration(n+1) * b.each).Sub(now)
}

// become makes the bucket another one, with the tokens that it has.
func (b *bucket) become(other bucket, now time.Time) {
	_ = b.tokens(now) // no more than it holds
	tokens := min(float64(now.Sub(b.empty))/float64(b.each), float64(other.holds))
	other.empty = now.Add(-time.Duration(tokens * float64(other.each)))
	*b = other
}
