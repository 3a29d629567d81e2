// SPDX-License-Identifier: MIT

package node

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Reporter writes log messages for a node. A logger may block, and its hooks may call the scheduler, so the
// node never calls the logger. The Reporter calls it on a separate goroutine. There is at most one
// reporter goroutine, and it exists only while there is something to write. While it is writing, new events are
// combined into one notice of each type. There may be many parked tasks and runs that were given up, so they are combined
// into one notice per cause every ten seconds.
type Reporter struct {
	log logrus.FieldLogger

	mu      sync.Mutex // protects the fields below
	pending notices
	quiet   chan struct{}           // closed when nothing is left to write; nil while nothing is being written
	recent  map[endCause]*endedRuns // causes reported within endsEvery, and the runs that have ended since then
}

const (
	endsEvery = 10 * time.Second

	// mostCauses is the maximum number of causes that are distinguished. Beyond it, the error is ignored when causes
	// are compared.
	mostCauses = 100
)

// An endCause is the reason why tasks were parked or runs were given up. Numbers in the error are ignored, as in a
// [FailureGroup].
type endCause struct{ outcome, kind, text string }

// The outcomes of an endCause.
const (
	parked  = "parked"
	givenUp = "given up"
)

// endedRuns describes parked tasks, or runs that were given up, with the same cause.
type endedRuns struct {
	endCause
	runs         int
	key, failure string // of the last one
	more         bool   // they have ended since the previous notice
	timer        *time.Timer
}

// notices holds the pending messages.
type notices struct {
	unhandled map[string]int // number of due tasks of each kind without a handler; each kind is reported once
	ends      []endedRuns
	failure   error
	away      error         // why the engine is unavailable
	back      bool          // the engine is available again
	slow      time.Duration // how long the engine takes to answer, if it is slow
	lost      bool          // the node has lost its membership
	restored  bool          // the engine has lost data about this node
	taken     []string      // the nodes whose leases have expired
	damaged   error         // why a task in the engine cannot be read
	settings  error         // why the settings in the engine cannot be read
	history   error         // why the history cannot be written
	unadded   error         // why a task about a failure was not added
	set       string        // the prefix of a set that was changed without a new version
	ahead     int           // number of tasks whose due times were computed while the clock was ahead
	aheadKey  string        // the key of one of them
	later     int           // number of tasks with a later version
	tooLate   error         // why the last of these tasks cannot be read
}

func (n *notices) empty() bool {
	return n.unhandled == nil && n.ends == nil && n.failure == nil && n.away == nil && !n.back && n.slow == 0 && !n.lost && !n.restored && n.taken == nil &&
		n.damaged == nil && n.settings == nil && n.history == nil && n.unadded == nil && n.set == "" && n.ahead == 0 && n.later == 0
}

// note adds to the pending notices. It does not wait for the logger.
func (r *Reporter) note(add func(n *notices)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if add(&r.pending); r.quiet == nil && !r.pending.empty() {
		r.quiet = make(chan struct{})
		r.nextLocked()
	}
}

// Ended records a task that was parked, or whose run was given up. rec is the task after the run. The first one with a
// given cause is reported at once.
func (r *Reporter) Ended(rec *task.Record) {
	failure, outcome := rec.Failure(), givenUp
	if rec.IsParked() {
		outcome = parked
	}
	e := endedRuns{endCause: endCause{outcome, rec.Kind, GroupText(failure)}, runs: 1, key: rec.Key, failure: failure}
	r.note(func(n *notices) {
		if len(r.recent) >= mostCauses && r.recent[e.endCause] == nil {
			e.text = ""
		}
		switch since := r.recent[e.endCause]; {
		case since == nil:
			n.end(e)
			r.rememberLocked(e.endCause)
		case !n.add(e): // the notice is no longer pending
			since.runs, since.key, since.failure = since.runs+1, e.key, e.failure
		}
	})
}

// HistoryFailed records that the history cannot be written.
func (r *Reporter) HistoryFailed(err error) { r.note(func(n *notices) { n.history = err }) }

// Unadded records that the task about a failure, which has the key, was not added with it.
func (r *Reporter) Unadded(key string, err error) {
	r.note(func(n *notices) { n.unadded = fmt.Errorf("%q: %w", key, err) })
}

// rememberLocked starts collecting the runs of a cause, until they are reported.
func (r *Reporter) rememberLocked(c endCause) {
	if r.recent == nil {
		r.recent = make(map[endCause]*endedRuns)
	}
	e := &endedRuns{endCause: c, more: true}
	e.timer = time.AfterFunc(endsEvery, func() { r.note(func(n *notices) { r.sumLocked(n, e) }) })
	r.recent[c] = e
}

// sumLocked reports the runs collected for a cause, or forgets the cause if there are no such runs.
func (r *Reporter) sumLocked(n *notices, e *endedRuns) {
	if r.recent[e.endCause] != e {
		return // the runs were reported by Written
	}
	delete(r.recent, e.endCause)
	if e.runs > 0 {
		n.end(*e)
		r.rememberLocked(e.endCause)
	}
}

// end adds ended runs to the notices.
func (n *notices) end(e endedRuns) {
	if !n.add(e) {
		n.ends = append(n.ends, e)
	}
}

// add adds ended runs to the pending notice of their cause, and reports whether there is one.
func (n *notices) add(e endedRuns) bool {
	i := slices.IndexFunc(n.ends, func(q endedRuns) bool { return q.endCause == e.endCause })
	if i < 0 {
		return false
	}
	n.ends[i].runs += e.runs
	n.ends[i].key, n.ends[i].failure = e.key, e.failure
	return true
}

// nextLocked starts writing the pending notices. It takes one notice of ended runs at a time, because the logger may end
// the goroutine.
func (r *Reporter) nextLocked() {
	n := r.pending
	r.pending = notices{}
	if len(n.ends) > 1 {
		n.ends, r.pending.ends = n.ends[:1:1], n.ends[1:]
	}
	go r.write(n)
}

// write calls the logger, which may panic or end the goroutine. It then starts writing any new notices.
func (r *Reporter) write(n notices) {
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
	for _, e := range n.ends {
		log := r.log.WithField("task", e.key).WithField("kind", e.kind).WithField("failure", e.failure)
		one, many := "a task is", "tasks"
		if e.outcome == givenUp {
			one, many = "a run is", "runs"
		}
		switch {
		case e.more:
			log.Warnf("durable: %d more %s %s within %v, this one the last", e.runs, many, e.outcome, endsEvery)
		case e.runs == 1:
			log.Warnf("durable: %s %s", one, e.outcome)
		default:
			log.Warnf("durable: %d %s %s, this one the last", e.runs, many, e.outcome)
		}
	}
	if n.away != nil {
		r.log.WithError(n.away).Warn("durable: the engine is unavailable; no run starts until it is back")
	}
	if n.back {
		r.log.Info("durable: the engine is back")
	}
	if n.slow > 0 {
		r.log.Warnf("durable: the engine is slow: it takes %v to answer on average, and runs start that much later",
			n.slow.Round(time.Millisecond))
	}
	if n.lost {
		r.log.Warn("durable: the lease of this node expired, and other nodes run its tasks; it joins again")
	}
	if n.restored {
		r.log.Error("durable: the engine has lost data about this node: it was restored to an older state, or its " +
			"clock was set forward; it joins again, if it is no longer a member")
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
	if n.unadded != nil {
		r.log.WithError(n.unadded).Error("durable: a task about a failure is not added")
	}
	if n.set != "" {
		r.log.WithField("set", n.set).
			Warn("durable: Schedule has changed a set without a new version; a process with the earlier set can undo that")
	}
	if n.ahead > 0 {
		r.log.WithField("tasks", n.ahead).WithField("task", n.aheadKey).
			Warn("durable: the clock was ahead, and tasks were due too late; each is due when its schedule says")
	}
	if n.later > 0 {
		r.log.WithError(n.tooLate).WithField("tasks", n.later).
			Warn("durable: tasks have a later version; this node leaves them to others until it joins again")
	}
	if n.failure != nil {
		r.log.WithError(n.failure).Error("durable: no further task is added, removed or run")
	}
}

// Written returns a channel that is closed when all notices so far have been written. It is called at shutdown, and
// does not wait for more runs to end.
func (r *Reporter) Written() <-chan struct{} {
	r.note(func(n *notices) {
		for _, e := range r.recent {
			e.timer.Stop()
			if e.runs > 0 {
				n.end(*e)
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

// GroupText returns the text of an error with each number replaced by #.
func GroupText(s string) string {
	isDigit := func(r rune) bool { return r >= '0' && r <= '9' }
	if !strings.ContainsFunc(s, isDigit) {
		return s
	}
	var b strings.Builder
	digit := false
	for _, r := range s {
		switch {
		case !isDigit(r):
			b.WriteRune(r)
		case !digit:
			b.WriteByte('#')
		}
		digit = isDigit(r)
	}
	return b.String()
}
