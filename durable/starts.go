// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A start is a claim that a worker wants confirmed.
type start struct {
	l     *live
	ended chan struct{} // closed when below is set
	held  bool
	now   int64 // the engine's time at the decision, and
	asked int64 // the node's own before it
	err   error
}

const (
	// confirmMost is how many claims are confirmed at once.
	confirmMost = 512

	// The workers ask within gatherStarts for what is due at one tick. If few do, they wait as long, or as the last
	// confirmation took, for one call.
	gatherStarts = time.Millisecond
)

func splitStarts(waiting []*start) (group, left []*start) {
	most := min(len(waiting), confirmMost)
	return waiting[:most:most], waiting[most:]
}

// confirm asks the engine whether the starts may be.
func (n *node) confirm(group []*start) {
	n.mu.Lock()
	t, leased := n.term, n.leasedLocked()
	n.mu.Unlock()
	asking, claims := group[:0], make([]engine.Claim, 0, len(group))
	for _, s := range group {
		if !leased || s.l.claim.term != t {
			s.err = ErrFenced
			close(s.ended)
			continue
		}
		asking = append(asking, s)
		claims = append(claims, engine.Claim{Key: s.l.Rec.Key, Revision: s.l.claim.revision, Starts: s.l.claim.starts})
	}
	if len(asking) == 0 {
		return
	}
	ctx, cancel := n.callContext()
	defer cancel()
	asked := n.own()
	held, now, err := n.engine.Confirm(ctx, t.id, claims)
	if err != nil {
		n.failed(t, err)
	} else {
		n.heard(asked, now)
		n.count.confirm.Store(n.own() - asked)
	}
	for i, s := range asking {
		if s.now, s.asked, s.err = now, asked, err; err == nil {
			if s.held = held[i]; !s.held {
				n.count.startsRefused.Add(1)
			}
		}
		close(s.ended)
	}
}

// runTask does the run of a task on the worker that calls it, if the engine confirms it.
func (n *node) runTask(l *live) {
	if !l.state.CompareAndSwap(waits, begun) {
		return
	}
	h := n.handlings.begin(l)
	defer n.handlings.end(h)
	kind := n.kinds.of(l.Rec)
	switch leaves := kind == nil || n.isStopping(); {
	case leaves && l.asked:
		n.takeBack(l)
		return
	case leaves:
		n.drop(l)
		n.giveBack(l.claim.term, []engine.Claim{l.toRelease()})
		return
	}
	rec := l.Rec.Interrupted(l.claim.starts, &kind.policy, n.now())
	if rec.Due == task.Never {
		kind.parked.Add(1)
		n.conclude(l, rec, tally{parked: 1}, false)
		return
	}
	if to := n.skipsTo(l, kind); to != engine.None {
		n.conclude(l, rec.Skipped(to), tally{}, false)
		return
	}
	if !n.isSettled() {
		n.back(l, startAgain)
		return
	}
	if !n.ask(l) {
		return
	}
	if n.kinds.of(l.Rec) == nil || !n.isSettled() { // it has been paused meanwhile, or may have been
		n.takeBack(l)
		return
	}
	ctx, ok := n.begin(l)
	if !ok {
		return
	}
	kind.began(l)
	began := time.Now()
	n.count.start(rec, n.cfg.age(began))
	kind.lastStart.Store(n.cfg.age(began))
	if l.overdue || rec.Due <= n.overdueUntil() {
		kind.overdue.note(l.Rec, began)
	}
	kind.attempt(h.context(ctx, began), began, kind.toRun(rec, l.claim.revision, &h.ends), &n.cfg, func(o task.Outcome, _ time.Time) *task.Record {
		next := rec.After(o, &kind.policy, n.now(), n.cfg.draw())
		n.conclude(l, next, attempted(o, next), o.Failure == "" && h.ends.written.Load())
		return next
	})
}

const (
	// freshStart is how old a confirmation may be when the handler is called: a removal may have come since.
	// After startTries of them the engine takes longer than that to answer, and the last one counts.
	freshStart = 100 * time.Millisecond
	startTries = 3

	// startAgain is when a start is tried again whose confirmation has failed.
	startAgain = 100 * time.Millisecond
)

// takeBack writes the record of a task whose run does not begin. So the start that the engine may have counted is
// no attempt.
func (n *node) takeBack(l *live) {
	n.conclude(l, l.Rec.Interrupted(l.claim.starts, &n.kinds.get(l.Rec.Kind).policy, n.now()), tally{}, false)
}

// decide has the engine decide on a start: with those of other workers, or at once if that is a look-up.
func (n *node) decide(l *live) *start {
	s := &start{l: l, ended: make(chan struct{})}
	switch {
	case n.alone:
		n.confirm([]*start{s})
	case l.overdue || n.kinds.Limiter(l.Rec) != nil:
		n.starts.Post(s)
	default:
		n.starts.Gather(s, min(gatherStarts, time.Duration(n.count.confirm.Load())))
	}
	<-s.ended
	return s
}

// ask has the engine confirm the claim, and reports whether the run may start. If not, it has put the live
// where it belongs.
func (n *node) ask(l *live) bool {
	l.asked = true
	for range startTries {
		s := n.decide(l)
		switch {
		case s.err != nil:
			n.back(l, startAgain)
			return false
		case !s.held:
			// It may hold it all the same: somebody's transaction may have locked the task, or the lease has run out.
			// The live knows which start was counted, and so stays until the claims are checked, within reapEvery.
			n.back(l, reapEvery+startAgain)
			n.mu.Lock()
			n.doubt = true
			n.mu.Unlock()
			return false
		case s.now < l.Rec.Due: // the engine's clock was set back
			n.back(l, 0)
			return false
		case n.own()-s.asked <= int64(freshStart):
			return true
		}
	}
	return true
}

// back has the live wait again, unless it was dropped meanwhile.
func (n *node) back(l *live, least time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[l.Rec.Key] == l {
		l.overdue = false
		l.state.Store(waits)
		n.awaitLocked(l, least)
	}
}

// begin returns the context of a run that is confirmed, unless the node itself knows that it must not start.
func (n *node) begin(l *live) (context.Context, bool) {
	n.mu.Lock()
	leased := n.leasedLocked()
	if leased && n.held[l.Rec.Key] == l {
		defer n.mu.Unlock()
		return n.term.ctx, true
	}
	n.mu.Unlock()
	if !leased {
		n.back(l, startAgain)
	}
	return nil, false
}

// skipsTo returns up to when the runs of the task are passed over, for its kind does not run what was due
// before the start, or is as old as that. It returns None if they are not.
func (n *node) skipsTo(l *live, of *kind) int64 {
	if !l.overdue || !l.Rec.Skippable() || l.claim.starts > 0 {
		return engine.None
	}
	now := n.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	return of.policy.PassesOver(l.Rec.Due, now, l.Rec.Due <= max(n.since, of.since.Load()))
}

func (n *node) isStopping() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stopping
}
