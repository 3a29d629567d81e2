// SPDX-License-Identifier: MIT

package durable

import (
	"sync"

	"github.com/sirupsen/logrus"
)

// A reporter writes what the keeper has to say to the user's logger. A logger may block, and a hook of it may
// call the scheduler and wait for the keeper, so the keeper never calls it: the reporter does, on a goroutine
// of its own. There is at most one, and only while there is something to write. What comes up meanwhile is
// kept as one notice of each sort.
type reporter struct {
	log logrus.FieldLogger

	mu      sync.Mutex // protects below
	pending notices
	quiet   chan struct{} // closed when nothing is left to write; nil while nothing is being written
}

// notices are what there is to write.
type notices struct {
	unhandled map[string]int // due tasks by kinds without a handler; each kind comes up once
	parked    uint64
	last      *record // the record that was parked last
	failure   error
	away      error    // why the engine has gone away
	back      bool     // it has come back
	lost      bool     // the node was not a member any more
	taken     []string // the nodes whose leases have run out
	damaged   error    // why a task of the engine cannot be read
	settings  error    // why the settings of the engine cannot be understood
	later     int      // tasks of a later version
	tooLate   error    // the version of the last of them
}

func (n *notices) empty() bool {
	return n.unhandled == nil && n.parked == 0 && n.failure == nil && n.away == nil && !n.back && !n.lost && n.taken == nil &&
		n.damaged == nil && n.settings == nil && n.later == 0
}

// note adds to the notices. It does not wait for the logger.
func (r *reporter) note(add func(n *notices)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add(&r.pending)
	if r.quiet == nil {
		r.quiet = make(chan struct{})
		r.nextLocked()
	}
}

// nextLocked has the pending notices written.
func (r *reporter) nextLocked() {
	n := r.pending
	r.pending = notices{}
	go r.write(n)
}

// write calls the logger, which may panic or end the goroutine, and sees to what has come up meanwhile.
func (r *reporter) write(n notices) {
	defer func() {
		_ = recover() // there is nowhere left to report it
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.pending.empty() {
			r.nextLocked()
			return
		}
		close(r.quiet)
		r.quiet = nil
	}()
	for kind, tasks := range n.unhandled {
		r.log.WithField("kind", kind).WithField("tasks", tasks).
			Warn("durable: tasks are due whose kind, or version of its payload, has no handler; they wait for one")
	}
	if n.parked > 0 {
		r.log.WithField("task", n.last.key).WithField("kind", n.last.kind).WithField("failure", n.last.failure()).
			Warnf("durable: %d tasks parked, this one the last", n.parked)
	}
	if n.away != nil {
		r.log.WithError(n.away).Warn("durable: the engine is away; no run starts until it is back")
	}
	if n.back {
		r.log.Info("durable: the engine is back")
	}
	if n.lost {
		r.log.Warn("durable: the lease of this node had run out, and other nodes run its tasks; it joins again")
	}
	if n.taken != nil {
		r.log.WithField("nodes", n.taken).Warn("durable: leases of other nodes have run out; their tasks run elsewhere")
	}
	if n.damaged != nil {
		r.log.WithError(n.damaged).Error("durable: a task cannot be read, and does not run")
	}
	if n.settings != nil {
		r.log.WithError(n.settings).Error("durable: what is paused is not known; nothing starts on this node")
	}
	if n.later > 0 {
		r.log.WithError(n.tooLate).WithField("tasks", n.later).
			Warn("durable: tasks have a later version; this node leaves them to others until it joins again")
	}
	if n.failure != nil {
		r.log.WithError(n.failure).Error("durable: no task is added, removed or run any more")
	}
}

// written returns a channel that is closed when all notices so far have been written.
func (r *reporter) written() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet != nil {
		return r.quiet
	}
	none := make(chan struct{})
	close(none)
	return none
}
