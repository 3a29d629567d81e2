// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/limit"
)

// A Limit bounds the runs of a kind. The zero value is no bound.
type Limit struct {
	Concurrency int           // runs in progress at the same time; 0 means no bound
	Rate        int           // runs that start within Per; 0 means no bound
	Per         time.Duration // of Rate
	Burst       int           // runs that may start at once after an idle time
}

// WithConcurrency bounds how many runs of the kind are in progress at the same time in this scheduler. A due task waits
// for its turn without occupying a worker, so it does not delay other kinds. The runs start in due order, or the groups
// take turns ([Task].Group). n below [WithPoolSize] leaves workers for other kinds even if the runs are long. There is
// no bound by default. n must be positive.
//
// If a kind has any limit, its overdue tasks run before its tasks that fall due now.
func WithConcurrency(n int) KindOption {
	return func(k *kind) error { return concurrent(&k.Here, n) }
}

// WithRate bounds how many runs of the kind start in this scheduler: n within per, evenly spread, and up to burst at
// once after an idle time. So at most burst + n·(t+tick)/per runs start within any time t. A run may start up to one
// tick ([WithTick]) late without delaying the next ones, so that the average rate is kept. Every attempt counts. n, per
// and burst must be positive.
//
// On a node the engine confirms each start, which takes some milliseconds, and at most burst starts are being confirmed
// at the same time. So for a high rate, set burst to at least the number of runs in 20 ms.
func WithRate(n int, per time.Duration, burst int) KindOption {
	return func(k *kind) error { return spread(&k.Here, n, per, burst) }
}

// WithClusterConcurrency is [WithConcurrency] for all nodes of an engine together. Each node that handles the kind gets
// an equal share of n. If n is less than the number of nodes, some get none. All nodes must set the same n. An unused
// share is not lent to other nodes.
//
// A node that is not the only one with the kind takes its share only when every other node must have seen it: after the
// longest lease of all nodes ([WithLease]). When a node joins, runs in progress are not interrupted, so n can be
// exceeded until they end. A run whose node has lost its lease can exceed it as well. On an [engine.Store] the option
// works as WithConcurrency.
func WithClusterConcurrency(n int) KindOption {
	return func(k *kind) error { return concurrent(&k.Cluster, n) }
}

// WithClusterRate is [WithRate] for all nodes of an engine together. They share n and burst as with
// [WithClusterConcurrency], so at most burst nodes run the kind. A node begins with no burst saved up, and loses its
// savings when it leaves.
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
