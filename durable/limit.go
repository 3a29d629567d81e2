// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/limit"
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
	return func(k *kind) error { return concurrent(&k.Here, n) }
}

// WithRate bounds how many runs of the kind start in this scheduler: n within per, evenly spread, and burst at
// once if none has started for long enough. So within any time t at most burst + n·(t+tick)/per start. The tick
// ([WithTick]) is how late a run may start without making the next ones late, so that the rate is kept on the
// average. An attempt counts as a run. n, per and burst must be positive.
//
// On a node a start takes some milliseconds, in which the engine confirms it, and no more than burst are being
// confirmed at the same time. So for a high rate let burst be what the rate allows within 20 ms, or more.
func WithRate(n int, per time.Duration, burst int) KindOption {
	return func(k *kind) error { return spread(&k.Here, n, per, burst) }
}

// WithClusterConcurrency is [WithConcurrency] for all nodes of an engine together. Each node that handles the
// kind takes an equal share of n. If n is less than the number of nodes, some have none. All nodes must set
// the same n. A share that a node does not use is not lent to others.
//
// A node takes no share until every other node must have seen it: for the longest lease of all nodes
// ([WithLease]), unless it is the only one with the kind. When a node joins, runs that have begun are not
// interrupted: until they have ended, n can be exceeded by them. So it can be by a run whose node has lost its
// lease. On an [engine.Store] this is a bound like that of WithConcurrency.
func WithClusterConcurrency(n int) KindOption {
	return func(k *kind) error { return concurrent(&k.Cluster, n) }
}

// WithClusterRate is [WithRate] for all nodes of an engine together. They share n and burst as with
// [WithClusterConcurrency], so at most burst nodes run the kind. A node begins without a burst, and what it has
// saved up for one is lost when it leaves.
func WithClusterRate(n int, per time.Duration, burst int) KindOption {
	return func(k *kind) error { return spread(&k.Cluster, n, per, burst) }
}

func concurrent(b *limit.Bound, n int) error {
	b.Concurrency = n
	return positive("concurrency", n)
}

func spread(b *limit.Bound, n int, per time.Duration, burst int) error {
	if n <= 0 || per <= 0 || burst <= 0 {
		return fmt.Errorf("durable: rate of %d within %v with bursts of %d: all must be positive", n, per, burst)
	}
	b.Rate, b.Per, b.Burst = n, per, burst
	return nil
}
