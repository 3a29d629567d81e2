// SPDX-License-Identifier: MIT

package durable

import (
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A reporter writes log messages for a backend. A logger may block, and its hooks may call the scheduler and wait for
// the keeper, so the keeper never calls the logger. The reporter calls it on a separate goroutine. There is at most one
// reporter goroutine, and it exists only while there is something to write. While it is writing, new events are
// combined into one notice of each type. There may be many parked tasks, so they are combined into one notice per cause
// every ten seconds.
type reporter struct {
	log logrus.FieldLogger

	mu      sync.Mutex // protects the fields below
	pending notices
	quiet   chan struct{}         // closed when nothing is left to write; nil while nothing is being written
	recent  map[parkCause]*parked // causes reported within parkedEvery, and the tasks parked since then
}

const (
	parkedEvery = 10 * time.Second

	// mostCauses is the maximum number of causes that are distinguished. Beyond it, the error is ignored when causes
	// are compared.
	mostCauses = 100
)

// A parkCause is the reason why tasks were parked. Numbers in the error are ignored, as in a [FailureGroup].
type parkCause struct{ kind, text string }

// parked describes tasks that were parked for the same cause.
type parked struct {
	parkCause
	tasks        int
	key, failure string // of the last task parked
	more         bool   // the tasks were parked since the previous notice
	timer        *time.Timer
}

// notices holds the pending messages.
type notices struct {
	unhandled map[string]int // number of due tasks of each kind without a handler; each kind is reported once
	parked    []parked
	failure   error
	away      error    // why the engine is unavailable
	back      bool     // the engine is available again
	lost      bool     // the node has lost its membership
	taken     []string // the nodes whose leases have expired
	damaged   error    // why a task in the engine cannot be read
	settings  error    // why the settings in the engine cannot be read
	history   error    // why the history cannot be written
	set       string   // the prefix of a set that was changed without a new version
	later     int      // number of tasks with a later version
	tooLate   error    // why the last of these tasks cannot be read
}

func (n *notices) empty() bool {
	return n.unhandled == nil && n.parked == nil && n.failure == nil && n.away == nil && !n.back && !n.lost && n.taken == nil &&
		n.damaged == nil && n.settings == nil && n.history == nil && n.set == "" && n.later == 0
}

// note adds to the pending notices. It does not wait for the logger.
func (r *reporter) note(add func(n *notices)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if add(&r.pending); r.quiet == nil && !r.pending.empty() {
		r.quiet = make(chan struct{})
		r.nextLocked()
	}
}

// parked records tasks that were parked. The first task parked for a given cause is reported at once.
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

// rememberLocked starts collecting the tasks of a cause, until they are reported.
func (r *reporter) rememberLocked(c parkCause) {
	if r.recent == nil {
		r.recent = make(map[parkCause]*parked)
	}
	p := &parked{parkCause: c, more: true}
	p.timer = time.AfterFunc(parkedEvery, func() { r.note(func(n *notices) { r.sumLocked(n, p) }) })
	r.recent[c] = p
}

// sumLocked reports the tasks collected for a cause, or forgets the cause if there are no such tasks.
func (r *reporter) sumLocked(n *notices, p *parked) {
	if r.recent[p.parkCause] != p {
		return // the tasks were reported by written
	}
	delete(r.recent, p.parkCause)
	if p.tasks > 0 {
		n.park(*p)
		r.rememberLocked(p.parkCause)
	}
}

// park adds parked tasks to the notices.
func (n *notices) park(p parked) {
	if !n.add(p) {
		n.parked = append(n.parked, p)
	}
}

// add adds parked tasks to the pending notice of their cause, and reports whether there is one.
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

// write calls the logger, which may panic or end the goroutine. It then starts writing any new notices.
func (r *reporter) write(n notices) {
	defer func() {
		_ = recover() // there is nowhere else to report it
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
	if n.history != nil {
		r.log.WithError(n.history).Warn("durable: the history of runs cannot be written, or older attempts deleted; it is tried again")
	}
	if n.set != "" {
		r.log.WithField("set", n.set).
			Warn("durable: Schedule has changed a set without a new version; a process with the earlier set can undo that")
	}
	if n.later > 0 {
		r.log.WithError(n.tooLate).WithField("tasks", n.later).
			Warn("durable: tasks have a later version; this node leaves them to others until it joins again")
	}
	if n.failure != nil {
		r.log.WithError(n.failure).Error("durable: no further task is added, removed or run")
	}
}

// written returns a channel that is closed when all notices so far have been written. It is called at shutdown, and
// does not wait for more parked tasks.
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
