// SPDX-License-Identifier: MIT

package limit

import "time"

// Share sets the rate to this node's share. If there are several nodes, the backlog is limited to the number of tasks
// that can begin within shareFor, or to two if that is more.
func (b *Backlog) Share(nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = nodes
	b.shareLocked()
}

// SetRate sets the number of runs that may begin per second on all nodes together.
func (b *Backlog) SetRate(rate int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Rate = rate
	b.shareLocked()
}

// Resize sets the number of workers, and the maximum number of overdue tasks whose kinds have no limit.
func (b *Backlog) Resize(workers, queue int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pool.Store(int64(workers))
	b.room.Store(int64(queue))
	b.shareLocked()
}

// Pool returns the number of workers.
func (b *Backlog) Pool() int { return int(b.pool.Load()) }

func (b *Backlog) shareLocked() {
	b.each = time.Second * time.Duration(max(b.nodes, 1)) / time.Duration(b.Rate)
	if b.most = int(b.room.Load()); b.nodes > 1 {
		b.most = min(b.most, max(2, int(shareFor/b.each)))
	}
}

// SetBounds replaces numbers of the kind's bounds. A number of 0, or of a bound that the kind does not
// have, changes nothing.
func (l *Limiter) SetBounds(here, cluster Bound) {
	l.mu.Lock()
	defer l.mu.Unlock()
	here, cluster = l.kind.Here.With(here), l.kind.Cluster.With(cluster)
	if here != l.here || cluster != l.cluster {
		l.here, l.cluster = here, cluster
		l.setPartLocked(l.part)
	}
}

// Bounds returns the bounds in force.
func (l *Limiter) Bounds() (here, cluster Bound) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.here, l.cluster
}
