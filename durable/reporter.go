// SPDX-License-Identifier: MIT

package durable

import (
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A reporter writes log messages for a backend. A logger may block, and a hook of it may call the scheduler and wait
// for the keeper, so the keeper never calls it: the reporter does, on a separate goroutine. There is at most one such
// goroutine, and only while there is something to write. Meanwhile new events are kept as one notice of each sort.
// Parked tasks, of which there may be many, are one notice for each cause in ten seconds.
type reporter struct {
	log logrus.FieldLogger

	mu      sync.Mutex // protects below
	pending notices
	quiet   chan struct{}         // closed when nothing is left to write; nil while nothing is being written
	recent  map[parkCause]*parked // the causes noted within parkedEvery, and the tasks parked since
}

const (
	parkedEvery = 10 * time.Second

	// mostCauses is the greatest number of causes that are distinguished. After that the error is left out of the
	// comparison.
	mostCauses = 100
)

// A parkCause is why tasks were parked. Numbers are left out of the error, as in a [FailureGroup].
type parkCause struct{ kind, text string }

// Parked are tasks that were parked for the same cause.
type parked struct {
	parkCause
	tasks        int
	key, failure string // of the last one
	more         bool   // these were parked since the previous notice
	timer        *time.Timer
}

// notices are the pending messages.
type notices struct {
	unhandled map[string]int // due tasks by kinds without a handler; each kind is reported once
	parked    []parked
	failure   error
	away      error    // why the engine is unavailable
	back      bool     // it is available again
	lost      bool     // the node was no longer a member
	taken     []string // the nodes whose leases have expired
	damaged   error    // why a task of the engine cannot be read
	settings  error    // why the settings of the engine cannot be read
	later     int      // tasks of a later version
	tooLate   error    // the version of the last of them
}

func (n *notices) empty() bool {
	return n.unhandled == nil && n.parked == nil && n.failure == nil && n.away == nil && !n.back && !n.lost && n.taken == nil &&
		n.damaged == nil && n.settings == nil && n.later == 0
}

// note adds to the notices. It does not wait for the logger.
func (r *reporter) note(add func(n *notices)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if add(&r.pending); r.quiet == nil && !r.pending.empty() {
		r.quiet = make(chan struct{})
		r.nextLocked()
	}
}

// parked notes tasks that were parked, the first of a cause at once.
func (r *reporter) parked(recs ...*task.Record) {
	if len(recs) == 0 {
		return
	}
	all := make([]parked, len(recs))
	for i, rec := range recs {
		failure := rec.Failure()
		all[i] = parked{parkCause: parkCause{rec.Kind, groupText(failure)}, tasks: 1, key: rec.Key, failure: failure}
	}
	r.note(func(n *notices) {
		for _, p := range all {
			if len(r.recent) >= mostCauses && r.recent[p.parkCause] == nil {
				p.text = ""
			}
			switch since := r.recent[p.parkCause]; {
			case since == nil:
				n.park(p)
				r.rememberLocked(p.parkCause)
			case !n.add(p): // the notice is no longer pending
				since.tasks, since.key, since.failure = since.tasks+1, p.key, p.failure
			}
		}
	})
}

// rememberLocked collects the tasks of a cause from now on, until they are noted.
func (r *reporter) rememberLocked(c parkCause) {
	if r.recent == nil {
		r.recent = make(map[parkCause]*parked)
	}
	p := &parked{parkCause: c, more: true}
	p.timer = time.AfterFunc(parkedEvery, func() { r.note(func(n *notices) { r.sumLocked(n, p) }) })
	r.recent[c] = p
}

// sumLocked notes the tasks collected for a cause, or forgets the cause if there are none.
func (r *reporter) sumLocked(n *notices, p *parked) {
	if r.recent[p.parkCause] != p {
		return // it was noted at the end
	}
	delete(r.recent, p.parkCause)
	if p.tasks > 0 {
		n.park(*p)
		r.rememberLocked(p.parkCause)
	}
}

// park adds tasks to the notices.
func (n *notices) park(p parked) {
	if !n.add(p) {
		n.parked = append(n.parked, p)
	}
}

// add adds tasks to the pending notice of their cause, and reports whether there is one.
func (n *notices) add(p parked) bool {
	i := slices.IndexFunc(n.parked, func(q parked) bool { return q.parkCause == p.parkCause })
	if i < 0 {
		return false
	}
	n.parked[i].tasks += p.tasks
	n.parked[i].key, n.parked[i].failure = p.key, p.failure
	return true
}

// nextLocked starts writing the pending notices. It takes one notice of parked tasks at a time, because the logger may
// end the goroutine.
func (r *reporter) nextLocked() {
	n := r.pending
	r.pending = notices{}
	if len(n.parked) > 1 {
		n.parked, r.pending.parked = n.parked[:1:1], n.parked[1:]
	}
	go r.write(n)
}

// write calls the logger, which may panic or end the goroutine, and then starts on new notices.
func (r *reporter) write(n notices) {
	defer func() {
		_ = recover() // there is no other place to report it
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
			Warn("durable: due tasks wait because no handler accepts their kind or payload version")
	}
	for _, p := range n.parked {
		log := r.log.WithField("task", p.key).WithField("kind", p.kind).WithField("failure", p.failure)
		switch {
		case p.more:
			log.Warnf("durable: %d more tasks parked within %v, this one the last", p.tasks, parkedEvery)
		case p.tasks == 1:
			log.Warn("durable: a task is parked")
		default:
			log.Warnf("durable: %d tasks parked, this one the last", p.tasks)
		}
	}
	if n.away != nil {
		r.log.WithError(n.away).Warn("durable: the engine is unavailable; no run starts until it is back")
	}
	if n.back {
		r.log.Info("durable: the engine is back")
	}
	if n.lost {
		r.log.Warn("durable: the lease of this node expired, and other nodes run its tasks; it joins again")
	}
	if n.taken != nil {
		r.log.WithField("nodes", n.taken).Warn("durable: leases of other nodes have expired; their tasks run elsewhere")
	}
	if n.damaged != nil {
		r.log.WithError(n.damaged).Error("durable: a task cannot be read, and does not run")
	}
	if n.settings != nil {
		r.log.WithError(n.settings).Error("durable: the pauses are unknown; nothing starts on this node")
	}
	if n.later > 0 {
		r.log.WithError(n.tooLate).WithField("tasks", n.later).
			Warn("durable: tasks have a later version; this node leaves them to others until it joins again")
	}
	if n.failure != nil {
		r.log.WithError(n.failure).Error("durable: no further task is added, removed or run")
	}
}

// written returns a channel that is closed when all notices so far have been written. It is called at the end, and does
// not wait for more parked tasks.
func (r *reporter) written() <-chan struct{} {
	r.note(func(n *notices) {
		for _, p := range r.recent {
			p.timer.Stop()
			if p.tasks > 0 {
				n.park(*p)
			}
		}
		clear(r.recent)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet != nil {
		return r.quiet
	}
	none := make(chan struct{})
	close(none)
	return none
}
