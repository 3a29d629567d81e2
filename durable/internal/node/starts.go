// SPDX-License-Identifier: MIT

package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/need"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A start is a request to confirm a claim, by a worker or ahead; see confirmAhead.
type start struct {
	l     *live
	ended chan struct{} // closed when the decision is set; nil for a start that is confirmed ahead
	decision
}

// A decision is the answer to a start.
type decision struct {
	held   bool
	now    int64 // the engine's time at the decision
	begins int64 // the node's own time until which the run may begin
	err    error
}

// confirmMost is how many claims one call confirms.
const confirmMost = 512

func splitStarts(waiting []*start) (group, left []*start) {
	most := min(len(waiting), confirmMost)
	return waiting[:most:most], waiting[most:]
}

// confirm asks the engine to confirm the starts.
func (n *Node) confirm(group []*start) {
	n.mu.Lock()
	t, leased := n.term, n.leasedLocked()
	n.mu.Unlock()
	asking, claims := group[:0], make([]engine.Claim, 0, len(group))
	for _, s := range group {
		if !leased || s.l.claim.term != t {
			s.err = ErrFenced
			s.end()
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
	within := n.within()
	asked := n.own()
	n.count.needs.Asked(need.Confirmations, asked)
	held, now, err := n.engine.Confirm(ctx, t.id, claims, within)
	if n.count.needs.Answered(need.Confirmations, n.own(), err); err != nil {
		n.failed(t, err)
	} else {
		n.heard(asked, now)
		n.count.confirm.Store(n.own() - asked)
	}
	for i, s := range asking {
		if s.now, s.begins, s.err = now, asked+int64(within), err; err == nil {
			s.held = held[i]
		}
		s.end()
	}
}

// end delivers the decision.
func (s *start) end() {
	switch {
	case s.ended != nil:
		close(s.ended)
	case s.held:
		s.l.begins.CompareAndSwap(0, s.begins) // a worker may have asked since, and got an answer
	}
}

const (
	// A slot is a stretch of due times. A node on a shared engine confirms the starts of a slot together, lead before it
	// begins, and each run begins at its own due time without another call. A start at the end of the slot leaves
	// startWithin - slot - lead for a worker to begin it; later it is confirmed again.
	slot = 50 * time.Millisecond
	lead = 25 * time.Millisecond
)

// foreseeLocked notes a task that waits until it is due, so that its start is confirmed ahead. It leaves out a task whose start
// is confirmed at its due time:
//
//   - The task is due too soon.
//   - An earlier start has an unknown end, which has to be dealt with first.
//   - SetTask postpones the task up to a latest time. Confirming it before each of these calls would delay the calls.
func (n *Node) foreseeLocked(l *live) {
	if n.alone || l.claim.starts > 0 || l.Rec.Deadline != 0 {
		return
	}
	at := l.Rec.Due / int64(slot)
	if n.untilAhead(at) <= 0 {
		return
	}
	if n.slots[at] == nil {
		n.slots[at] = make(map[*live]bool)
		call(n.coming)
	}
	n.slots[at][l] = true
}

// forgetLocked undoes foreseeLocked.
func (n *Node) forgetLocked(l *live) {
	at := l.Rec.Due / int64(slot)
	if delete(n.slots[at], l); len(n.slots[at]) == 0 {
		delete(n.slots, at)
	}
}

// untilAhead returns how long it takes until the starts of the slot are confirmed.
func (n *Node) untilAhead(at int64) time.Duration {
	return time.Duration(at*int64(slot)-n.clock.Earliest(n.own())) - lead
}

// confirmAhead asks the engine to confirm the starts of each slot whose time has come. It returns how long to wait before the
// next call. It asks for as many starts as there are free workers and free places of limits. The others are confirmed
// when a worker is free.
func (n *Node) confirmAhead() time.Duration {
	next := restMost
	var starts []*start
	n.mu.Lock()
	for at, some := range n.slots {
		if in := n.untilAhead(at); in > 0 {
			next = min(next, in)
			continue
		}
		delete(n.slots, at)
		for _, l := range n.aheadLocked(slices.Collect(maps.Keys(some))) {
			l.asked.Store(true)
			starts = append(starts, &start{l: l})
		}
	}
	n.mu.Unlock()
	if len(starts) > 0 {
		n.starts.Post(starts...)
	}
	return next
}

// aheadLocked returns the tasks of a slot whose starts to confirm.
func (n *Node) aheadLocked(some []*live) (ahead []*live) {
	if !n.claimsLocked() {
		return nil
	}
	free := n.backlog.Pool() - n.loadLocked().Running
	places := make(map[*Kind]int)
	slices.SortFunc(some, func(a, b *live) int { return cmp.Compare(a.Rec.Due, b.Rec.Due) })
	for _, l := range some {
		if free <= 0 {
			break
		}
		kind := n.kinds.Of(l.Rec)
		if kind == nil || !l.Waits() {
			continue
		}
		if kind.Limiter != nil {
			left, known := places[kind]
			if !known {
				left = kind.Limiter.Free()
			}
			if places[kind] = left - 1; left <= 0 {
				continue
			}
		}
		ahead = append(ahead, l)
		free--
	}
	return ahead
}

// isConfirmed reports whether the start of a task was confirmed ahead, and the run may still begin.
func (n *Node) isConfirmed(l *live) bool {
	begins := l.begins.Load()
	return begins > 0 && n.own() <= begins
}

// runTask runs a task on the calling worker, if the engine confirms the start.
func (n *Node) runTask(l *live) {
	if !l.state.CompareAndSwap(waits, begun) {
		return
	}
	h := n.handlings.begin(l)
	defer n.handlings.end(h)
	kind := n.kinds.Of(l.Rec)
	switch leaves := kind == nil || n.Leaves(); {
	case leaves && l.asked.Load(), l.begins.Load() < 0:
		n.takeBack(l)
		return
	case leaves:
		n.drop(l)
		n.giveBack(l.claim.term, []engine.Claim{l.toRelease()})
		return
	}
	if l.claim.starts > 0 { // the attempt is written with the time at which it is known to be over; then the run starts again
		n.conclude(l, n.interrupted(l, kind), false)
		return
	}
	if n.skips(l, kind) {
		return
	}
	if !n.isSettled() {
		n.back(l, startAgain)
		return
	}
	switch ahead := n.isConfirmed(l); {
	case ahead && n.clock.Earliest(n.own()) < l.Rec.Due: // the bounds of the engine's time have become wider since the task was placed
		n.back(l, 0)
		return
	case !ahead && !n.ask(l):
		return
	}
	if n.kinds.Of(l.Rec) == nil || !n.isSettled() || n.Leaves() { // the kind was paused or the node drained during the confirmation
		n.takeBack(l)
		return
	}
	// The confirmation may have taken long, or shown that the machine was suspended.
	if n.skips(l, kind) {
		return
	}
	switch expired := l.Rec.IsExpired(n.Now(), n.cfg.Tick); {
	case expired && n.clock.IsUnsure(): // the wall clock may have been set
		n.back(l, startAgain)
		return
	case expired:
		n.conclude(l, kind.Runner.Expired(l.Rec), false)
		return
	}
	ctx, ok := n.begin(l)
	if !ok {
		return
	}
	if kind.Limiter != nil && !kind.Limiter.Begin(&l.Task) {
		n.back(l, startAgain)
		return
	}
	began := time.Now()
	n.count.start(l.Rec, n.cfg.age(began))
	h.kind, h.Rec, h.Fence, h.Called = kind, l.Rec, l.claim.revision, n.Now()
	h.Due, h.Overdue = l.Rec.Due, l.overdue || l.Rec.Due <= n.OverdueUntil()
	kind.Runner.Run(h.context(ctx, began), h)
}

const (
	// A run begins within startWithin of its confirmation, or twice the time that the engine took to answer the last one if
	// that is longer. Later it has to be confirmed again, because the task may have been removed since: at once, or after
	// startAgain if startTries confirmations came too late.
	startWithin = 100 * time.Millisecond
	startTries  = 3

	// startAgain is how long after a failed confirmation the start is retried.
	startAgain = 100 * time.Millisecond
)

// within returns how long after its confirmation a run may begin. A run begins only with a lease, so a longer time gains
// nothing.
func (n *Node) within() time.Duration {
	return max(startWithin, min(2*time.Duration(n.count.confirm.Load()), n.cfg.Lease))
}

// takeBack writes the record of a task whose run does not begin after all. This prevents a start that the engine may
// have counted from counting as an attempt.
func (n *Node) takeBack(l *live) {
	n.conclude(l, Result{Next: l.Rec}, false)
}

// interrupted returns the task after the starts whose end is unknown.
func (n *Node) interrupted(l *live, of *Kind) Result {
	after := func(now int64) *task.Record { return l.Rec.Interrupted(l.claim.starts, &of.Policy, now) }
	now := n.Now()
	r := of.Runner.Interrupted(l.Rec, after(now), l.claim.starts)
	r.asof, r.again = now, after
	return r
}

// decide asks the engine to confirm a start. It combines the request with those of other workers, unless the engine is in
// this process and does not store the start.
func (n *Node) decide(l *live) decision {
	if n.starter != nil {
		asked := n.own()
		if held, now, ok := n.starter.Start(l.claim.term.id, l.toRelease(), startWithin); ok {
			return decision{held, now, asked + int64(startWithin), nil}
		}
	}
	s := &start{l: l, ended: make(chan struct{})}
	if n.alone && !l.overdue {
		n.confirm([]*start{s})
	} else {
		n.starts.Post(s)
	}
	<-s.ended
	return s.decision
}

// ask asks the engine to confirm the claim, and reports whether the run may start. If it may not, ask puts the task back
// into the waiting state.
func (n *Node) ask(l *live) bool {
	l.asked.Store(true)
	for range startTries {
		s := n.decide(l)
		switch {
		case s.err != nil:
			n.back(l, startAgain)
			return false
		case !s.held:
			n.count.startsRefused.Add(1)
			// The node may still hold the task: a user's transaction may have locked it, or the lease may have expired.
			// The live records which start was counted, so it stays until the claims are checked, within reapEvery.
			n.back(l, reapEvery+startAgain)
			n.mu.Lock()
			n.doubt = true
			n.mu.Unlock()
			n.attend()
			return false
		case s.now < l.Rec.Due: // the engine's clock was set back
			n.back(l, 0)
			return false
		case n.own() <= s.begins:
			l.begins.Store(s.begins)
			return true
		}
	}
	n.back(l, startAgain)
	return false
}

// back makes the live wait again, for at least the given time, unless it has been dropped since.
func (n *Node) back(l *live, least time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[l.Rec.Key] == l {
		l.overdue = false
		l.state.Store(waits)
		n.awaitLocked(l, least)
	}
}

// begin returns the context for a run that is confirmed. It returns false if the confirmation or the lease is over, or the
// live has been dropped.
func (n *Node) begin(l *live) (context.Context, bool) {
	n.mu.Lock()
	again := !n.leasedLocked() || n.own() > l.begins.Load()
	if !again && n.held[l.Rec.Key] == l {
		defer n.mu.Unlock()
		return n.term.ctx, true
	}
	n.mu.Unlock()
	if again {
		n.back(l, startAgain)
	}
	return nil, false
}

// skips skips the run if its kind skips it, and reports whether it did.
func (n *Node) skips(l *live, of *Kind) bool {
	if n.skipsTo(l, of) == engine.None {
		return false
	}
	after := func(now int64) *task.Record {
		to := n.skipsTo(l, of)
		if to == engine.None { // the time was too late before
			return l.Rec
		}
		return l.Rec.Skipped(to, now)
	}
	now := n.Now()
	n.conclude(l, Result{Next: after(now), asof: now, again: after}, false)
	return true
}

// skipsTo returns the time up to which runs of the task are skipped because its kind skips runs that were missed before
// Start or runs that are too old. It returns None if no runs are skipped.
func (n *Node) skipsTo(l *live, of *Kind) int64 {
	if !l.Rec.Skippable() {
		return engine.None
	}
	now := n.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.Rec.SkipsTo(of.Policy.PassesOver(l.Rec.Due, now, of.isOld(l.Rec.Due, n.since, now)))
}

// Leaves reports whether the node starts no further run: it shuts down, is drained or has failed.
func (n *Node) Leaves() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leavesLocked()
}

// Result returns the result of the attempt at the given time, by the engine's clock.
func (h *Run) Result(o task.Outcome, now int64) Result {
	h.outcome = o
	r := Result{Next: h.after(now), run: h}
	if r.Next != nil {
		r.asof = now
	}
	r.Tally = attempted(o, h.Rec, r.Next)
	return r
}

// after returns the task as it is after the attempt.
func (h *Run) after(now int64) *task.Record {
	return h.Rec.After(h.outcome, &h.kind.Policy, now, h.of.by.cfg.Draw())
}

// End writes the result, which Result has returned.
func (h *Run) End(r Result) {
	o := &h.outcome
	h.of.by.conclude(h.of, r, o.Failure == "" && !o.Snooze && h.Ending.Written.Load())
}
