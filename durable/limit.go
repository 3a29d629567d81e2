// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/limit"
)

// A Limit bounds the runs of a kind. The zero value imposes no bound.
type Limit struct {
	Concurrency int           `json:"concurrency,omitempty"` // maximum number of runs in progress at the same time; 0 means no bound
	Rate        int           `json:"rate,omitempty"`        // maximum number of runs that start within Per; 0 means no bound
	Per         time.Duration `json:"per,omitempty"`         // period to which Rate applies, in nanoseconds in JSON
	Burst       int           `json:"burst,omitempty"`       // number of runs that may start at once after an idle period
}

// String returns the limit in words, such as "8 at once, 100 per minute". It is empty if there is no bound.
func (l Limit) String() string {
	var all []string
	if l.Concurrency > 0 {
		all = append(all, fmt.Sprintf("%d at once", l.Concurrency))
	}
	if l.Rate > 0 {
		per, named := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour"}[l.Per]
		if !named {
			per = l.Per.String()
		}
		all = append(all, fmt.Sprintf("%d per %s", l.Rate, per))
	}
	return strings.Join(all, ", ")
}

// WithConcurrency bounds how many runs of the kind are in progress at the same time in this scheduler. A due task waits
// for its turn without occupying a worker, so it does not delay other kinds. The runs start in due order, except that
// groups take turns ([Task].Group). If n is less than the number of workers ([WithPoolSize]), workers remain for other
// kinds even if the runs are long. By default there is no bound. n must be positive.
//
// If a kind has any limit, its overdue tasks run before its tasks that fall due now.
func WithConcurrency(n int) KindOption {
	return func(k *kind) error { return concurrent(&k.Here, n) }
}

// WithRate bounds how often runs of the kind start in this scheduler. The starts are evenly spread at a rate of n/per,
// and up to burst runs may start at once after an idle period. So at most burst + n·(t+tick)/per runs start within any
// period t. A run may start up to one tick ([WithTick]) late without delaying later runs, which preserves the average
// rate. Every attempt counts as a run. n, per and burst must be positive.
//
// A shared engine confirms each start, which may take a few milliseconds, and at most burst starts are being
// confirmed at the same time. For a high rate, therefore, set burst to at least the number of runs that start in 20 ms.
func WithRate(n int, per time.Duration, burst int) KindOption {
	return func(k *kind) error { return spread(&k.Here, n, per, burst) }
}

// WithClusterConcurrency is like [WithConcurrency], but bounds the runs of all nodes of an engine together. Each node
// that handles the kind gets an equal share of n. If n is less than the number of these nodes, some nodes get no share.
// All nodes must set the same n. An unused share is not lent to other nodes.
//
// If other nodes also handle the kind, a node takes its share only once all of them are certain to have seen the node:
// after the longest lease of any node ([WithLease]). The other nodes give up its share at once, so fewer runs are in
// progress for that long after each join. When a node joins, runs in progress are not interrupted, so n can be exceeded
// until they end. A run whose node has lost its lease can also exceed n. On an own engine, the option works like
// WithConcurrency.
func WithClusterConcurrency(n int) KindOption {
	return func(k *kind) error { return concurrent(&k.Cluster, n) }
}

// WithClusterRate is like [WithRate], but bounds the runs of all nodes of an engine together. The nodes share n and
// burst as with [WithClusterConcurrency], so at most burst nodes run the kind. A node begins with no burst saved up,
// and its saved burst is lost when it leaves.
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
