// SPDX-License-Identifier: MIT

package limit

import (
	"sync/atomic"
	"time"
)

// A Kind holds a kind's bounds and speed, which determine which of its tasks may run.
type Kind struct {
	Here, Cluster Bound    // bounds on runs on this scheduler, and on all nodes together
	Limiter       *Limiter // nil if the kind has no bound

	workers atomic.Int32 // workers that run overdue tasks of the kind
	open    atomic.Int64 // when a worker was last free for, or took, an overdue task of the kind: see Backlog.ShutFor
	longest atomic.Int64 // roughly the longest of the last hundred runs, in nanoseconds; 0 before the first run
}

// IsBounded reports whether the kind needs a limiter.
func (k *Kind) IsBounded() bool { return k.Here != Bound{} || k.Cluster != Bound{} }

// quickRun is the maximum duration of a quick kind's runs. A waiting task can tolerate such a delay.
const quickRun = 50 * time.Millisecond

// IsQuick reports whether the runs of the kind are known to be quick.
func (k *Kind) IsQuick() bool {
	longest := k.longest.Load()
	return longest > 0 && longest <= int64(quickRun)
}

// quickRuns returns how many runs of a quick kind, one after the other, take at least quickRun.
func (k *Kind) quickRuns() int { return int(int64(quickRun) / max(k.longest.Load(), 1)) }

// Took records the duration of a run. The influence of longer earlier runs fades gradually.
func (k *Kind) Took(d time.Duration) {
	for {
		old := k.longest.Load()
		if k.longest.CompareAndSwap(old, max(int64(d), old-old/32, 1)) {
			return
		}
	}
}

// allows reports whether the kind's bounds may permit more than n concurrent runs on this scheduler.
func (k *Kind) allows(n int) bool { return k.Limiter == nil || k.Limiter.fewest.Load() > int64(n) }
