// SPDX-License-Identifier: MIT

package limit

import (
	"sync/atomic"
	"time"
)

// A Kind holds the bounds and speed of a kind, which decide which of its tasks may run.
type Kind struct {
	Here, Cluster Bound    // of its runs on this scheduler, and on all nodes together
	Limiter       *Limiter // nil if it has no bound

	workers atomic.Int32 // that run its overdue tasks
	open    atomic.Int64 // when a worker was last free for an overdue task of it, or took one: see Backlog.ShutFor
	longest atomic.Int64 // roughly the longest of the last hundred runs, in nanoseconds; 0 before the first
}

// IsBounded reports whether the kind needs a limiter.
func (k *Kind) IsBounded() bool { return k.Here != Bound{} || k.Cluster != Bound{} }

// quickRun is the longest run of a quick kind: a delay that does not matter to waiting tasks.
const quickRun = 50 * time.Millisecond

// IsQuick reports whether the runs of the kind are known to be quick.
func (k *Kind) IsQuick() bool {
	longest := k.longest.Load()
	return longest > 0 && longest <= int64(quickRun)
}

// Took notes how long a run took. Longer earlier runs are forgotten gradually.
func (k *Kind) Took(d time.Duration) {
	for {
		old := k.longest.Load()
		if k.longest.CompareAndSwap(old, max(int64(d), old-old/32, 1)) {
			return
		}
	}
}

// allows reports whether the bounds of the kind may let more than n runs be running here at once.
func (k *Kind) allows(n int) bool {
	for _, b := range []Bound{k.Here, k.Cluster} {
		if b.Concurrency > 0 && b.Concurrency <= n {
			return false
		}
	}
	return true
}
