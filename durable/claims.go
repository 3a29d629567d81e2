// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A claim is what a live of a node has in addition: the term in which it is held, the revision at which it was
// claimed, and the starts of its run until then whose end is unknown.
type claim struct {
	term     *term
	revision int64
	starts   int
}

const (
	// claimEvery is how often a node looks for tasks, and lookAhead how long before they are due. A task that
	// is added by somebody else, due at once, waits for less than claimEvery.
	claimEvery = 100 * time.Millisecond
	lookAhead  = time.Second

	// A task is overdue when it has been due for overdueAfter. Then it is claimed for a spare worker, and at a
	// bounded rate, so that a backlog does not delay what falls due now.
	overdueAfter = time.Second

	// claimMost is how many tasks are claimed at once, and mostHeld how many a node holds, or fewer if they take heldBytes.
	claimMost = 1024
	mostHeld  = 1 << 14
	heldBytes = 64 << 20

	// claimTimeout bounds a claim of what is overdue. No other call waits for it, and it may pass over millions of deleted
	// tasks, but a connection that hangs is not to hold it up for long.
	claimTimeout = 30 * time.Second
)

// claim claims what there is room for. It returns when to come back.
func (n *node) claim() time.Duration {
	again := claimEvery
	for _, k := range n.kinds.allLimited() {
		again = min(again, n.claimFor(k))
	}
	unlimited := n.kinds.unlimited()
	if len(unlimited) == 0 {
		return min(again, n.backlog.Hire())
	}
	now := n.clock.Earliest(n.own())
	over := now - int64(overdueAfter)
	if t, most := n.room(); most > 0 {
		after, spare := over, n.backlog.Room()
		both := spare > 0 && n.isAtEnd()
		if both {
			after, most = n.from(&n.overdue), min(most, spare)
		}
		var kinds []string
		for name, kind := range unlimited {
			kinds = append(kinds, kind.policy.Classes(name)...)
		}
		r := engine.ClaimRequest{Kinds: kinds, After: after, Until: now + int64(lookAhead), Most: most}
		got, ok := n.claimSome(t, r, over)
		if both {
			n.to(&n.overdue, after, got.Tasks, ok, most, over)
		}
		if ok && len(got.Tasks) == most && got.Tasks[most-1].Due <= now+int64(2*claimEvery) {
			again = 0
		}
	} else if t != nil { // the workers may have done what waits long before claimEvery
		again = min(again, limit.HireEvery)
	}
	call(n.behind)
	return min(again, n.backlog.Hire())
}

// claimOverdue claims what is overdue, of the kinds of which the backlog takes any. Kinds that are slow and have
// overdue tasks here are claimed apart from the others, and no more of them at once than is their share. It returns when
// to come back.
func (n *node) claimOverdue() time.Duration {
	t, room := n.room()
	var kinds, slow, full []string
	n.mu.Lock()
	for name, kind := range n.kinds.unlimited() {
		switch {
		case !n.backlog.Takes(name) || n.isStuckOnLocked(kind):
			full = append(full, name)
		case !kind.IsQuick() && n.backlog.Has(name):
			slow = append(slow, kind.policy.Classes(name)...)
		default:
			kinds = append(kinds, kind.policy.Classes(name)...)
		}
	}
	if slices.ContainsFunc(n.full, func(name string) bool { return !slices.Contains(full, name) }) {
		n.overdue.at, n.slow.at = engine.None, engine.None // what was left to the engine lies before that
	}
	n.full = full
	n.mu.Unlock()
	if most := n.backlog.Room(); room > 0 && most > 0 { // after takes, which says which kinds take no room
		n.claimFrom(&n.overdue, t, kinds, most)
		n.claimFrom(&n.slow, t, slow, min(most, n.backlog.SlowMost()))
	}
	return n.backlog.Hire()
}

// claimFrom claims from a cursor on what is overdue, while the lease lasts and until the node is about to leave.
func (n *node) claimFrom(c *cursor, t *term, kinds []string, most int) {
	if len(kinds) == 0 {
		return
	}
	after, until := n.from(c), n.overdueUntil()
	n.mu.Lock()
	lease, quiet := t.ctx, n.own() < c.quiet
	n.mu.Unlock()
	if after >= until || after != beginning && quiet {
		return
	}
	ctx, cancel := context.WithTimeout(lease, claimTimeout)
	defer cancel()
	got, ok := n.claimed(ctx, t, engine.ClaimRequest{Kinds: kinds, After: after, Until: until, Most: most}, until)
	n.to(c, after, got.Tasks, ok, most, until)
}

// claimFor claims tasks of a kind with a limit, as many as its limiter has room for, and so that they take no room in
// the claims of the others. If there is more than that, the groups take turns, and the rest is claimed in due order. It
// returns when to come back. Its claim from the beginning finds what is due soon as well: the others wait for it, a tenth of
// the time at most, and it is given up after half a lease. Then it finds nothing behind what it passes over.
func (n *node) claimFor(k *kind) time.Duration {
	if !k.Limiter.IsDrained() || n.kinds.pauses().Has(k.name) {
		return claimEvery
	}
	t, most := n.room()
	if most = min(most, k.Limiter.Room()); most <= 0 {
		return claimEvery
	}
	now := n.clock.Earliest(n.own())
	if k.crowded {
		n.claimTurns(t, k, now, most)
		if most = min(most, k.Limiter.Room()); most <= 0 { // it is full, or the node has lost its part in the limit
			k.Limiter.IsDrained() // it calls
			return claimEvery
		}
	}
	over := now - int64(overdueAfter)
	after := n.from(&k.claimed)
	r := engine.ClaimRequest{Kinds: k.policy.Classes(k.name), After: after, Until: now + int64(lookAhead), Most: most}
	got, ok := n.claimSome(t, r, over)
	if n.to(&k.claimed, after, got.Tasks, ok, most, over); !ok {
		return claimEvery
	}
	k.crowded = len(got.Tasks) == most && got.Tasks[most-1].Due <= now
	if len(got.Tasks) == most && k.Limiter.IsDrained() { // else it calls
		return 0
	}
	return claimEvery
}

// claimTurns claims what is due of a kind with a limit, the groups in turns.
func (n *node) claimTurns(t *term, k *kind, now int64, most int) {
	r := engine.ClaimRequest{Kinds: k.policy.Classes(k.name), Until: now, Most: most, Fair: true, Group: k.group}
	if got, ok := n.claimSome(t, r, now-int64(overdueAfter)); ok {
		k.group = got.Next
	}
}

// room returns the term, or nil if nothing is to be claimed, and how much may be.
func (n *node) room() (*term, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.claimsLocked() {
		return nil, 0
	}
	return n.term, n.roomLocked()
}

func (n *node) claimsLocked() bool { return n.started && !n.stopping && n.leasedLocked() }

// roomLocked returns how many more tasks the node may hold. It is 0 if so much waits that another node should have it.
func (n *node) roomLocked() int {
	lives, bytes := n.backlog.Limited()
	if n.bytes-bytes >= heldBytes || n.loadLocked().Waiting > n.cfg.poolSize+waitingMore || n.stuckLocked() {
		return 0
	}
	return min(mostHeld-(len(n.held)-lives), claimMost)
}

const (
	// waitingMore is how many due tasks may wait for a worker in addition to one for each.
	waitingMore = 64

	// stuckAfter is how long no run may have started while all workers are running, before what waits for them
	// is given to other nodes.
	stuckAfter = 250 * time.Millisecond
)

// stuckLocked reports whether all workers are busy with long runs, and there are other nodes.
func (n *node) stuckLocked() bool {
	return n.members > 1 && n.cfg.age(time.Now())-n.count.lastStart.Load() > int64(stuckAfter) &&
		n.loadLocked().Running >= n.cfg.poolSize
}

// isStuckOnLocked reports whether overdue tasks of the kind can start on other nodes alone: its workers here have long runs.
func (n *node) isStuckOnLocked(k *kind) bool {
	return n.members > 1 && !k.IsQuick() && n.cfg.age(time.Now())-k.lastStart.Load() > int64(stuckAfter) &&
		n.backlog.IsShut(&k.Kind, n.loadLocked().Running)
}

// loadLocked returns what the wheel has to do. To ask it takes microseconds, so the answer may be limit.LookEvery
// old.
func (n *node) loadLocked() timewheel.Stats {
	if now := n.own(); n.loadAt == 0 || now-n.loadAt >= int64(limit.LookEvery) {
		n.load, n.loadAt = n.wheel.Stats(), now
	}
	return n.load
}

// unstick releases what is due and waits for a worker, if the node is stuck, or stuck on its kind. Another may have a
// worker for it. It also releases what the limiters hold beyond the node's part in their limits, which shrinks when another
// node joins, and all that waits once Shutdown has begun: its runs in progress may take long.
func (n *node) unstick(t *term) {
	var some []*live
	n.mu.Lock()
	switch {
	case n.term != t:
	case n.stopping:
		some = n.heldLocked(func(*live) bool { return true })
	case n.stuckLocked():
		now := n.clock.Earliest(n.own())
		some = n.heldLocked(func(l *live) bool { return l.Rec.Due <= now })
	default:
		for name, kind := range n.kinds.unlimited() {
			if n.isStuckOnLocked(kind) {
				some = append(some, n.heldLocked(func(l *live) bool { return l.overdue && l.Rec.Kind == name })...)
			}
		}
	}
	if n.term == t && n.members > 1 {
		for _, k := range n.kinds.allLimited() {
			for t := k.Limiter.Excess(); t != nil; t = k.Limiter.Excess() {
				some = append(some, t.Runner.(*live))
			}
		}
	}
	n.mu.Unlock()
	n.giveUp(t, some)
}

// heldLocked returns what the node holds and is so.
func (n *node) heldLocked(is func(l *live) bool) (some []*live) {
	for _, l := range n.held {
		if is(l) {
			some = append(some, l)
		}
	}
	return some
}

// giveUp gives back those of the lives that wait. If the start of one may have been counted, its record is
// written: then that start is no attempt.
func (n *node) giveUp(t *term, some []*live) {
	var asked []*live
	var claims []engine.Claim
	n.mu.Lock()
	for _, l := range some {
		switch {
		case n.term != t || !n.withdrawLocked(l, begun):
		case l.asked:
			asked = append(asked, l)
		default:
			n.dropLocked(l)
			claims = append(claims, l.toRelease())
		}
	}
	n.mu.Unlock()
	for _, l := range asked {
		n.takeBack(l)
	}
	n.giveBack(t, claims)
}

// toRelease returns the claim for Release.
func (l *live) toRelease() engine.Claim {
	return engine.Claim{Key: l.Rec.Key, Revision: l.claim.revision, Starts: l.claim.starts}
}

// giveBack releases claims that are not in memory.
func (n *node) giveBack(t *term, claims []engine.Claim) {
	if len(claims) == 0 {
		return
	}
	ctx, cancel := n.callContext()
	defer cancel()
	if err := n.engine.Release(ctx, t.id, claims); err != nil {
		n.failed(t, err)
		return
	}
	n.mu.Lock()
	n.doubt = true // it still holds what a user's transaction has locked
	n.mu.Unlock()
}

// claimSome makes a claim that other calls wait for, as claimed does.
func (n *node) claimSome(t *term, r engine.ClaimRequest, over int64) (engine.Claims, bool) {
	ctx, cancel := n.callContext()
	defer cancel()
	return n.claimed(ctx, t, r, over)
}

// claimed makes a claim, takes what it gives, and reports whether the engine has answered. What is due by over is overdue.
func (n *node) claimed(ctx context.Context, t *term, r engine.ClaimRequest, over int64) (engine.Claims, bool) {
	n.mu.Lock()
	r.By, r.Readable = t.id, t.readable
	n.mu.Unlock()
	asked := n.own()
	got, err := n.engine.Claim(ctx, r)
	switch {
	case err != nil && ctx.Err() != nil: // it may have too much to pass over: whether the engine is away, renewals show
		n.count.callsFailed.Add(1)
		n.unsure()
		return engine.Claims{}, false
	case err != nil:
		n.failed(t, err)
		return engine.Claims{}, false
	}
	n.heard(asked, got.Now)
	n.count.claimed.Add(uint64(len(got.Tasks)))
	n.take(t, got.Tasks, over)
	return got, true
}

// take puts what the engine has given the node in memory. Records of a later version are for nodes that can
// read them: it gives those back, and claims no more of them. What is due by over is overdue.
func (n *node) take(t *term, got []engine.Stored, over int64) {
	recs := make([]*task.Record, len(got))
	var later []engine.Claim
	version, tooLate := byte(math.MaxUint8), error(nil)
	for i, s := range got {
		var err error
		switch recs[i], err = task.Decode(s.Record); {
		case errors.Is(err, ErrVersion) && s.Data[0] > task.FieldsVersion:
			later = append(later, engine.Claim{Key: s.Key, Revision: s.Revision, Starts: s.Starts})
			version, tooLate = min(version, s.Data[0]), err
		case err != nil:
			n.report.note(func(n *notices) { n.damaged = err })
		}
	}
	if later != nil {
		n.mu.Lock()
		if version <= t.readable { // and not what another claim has found at the same time
			t.readable = version - 1
			n.report.note(func(n *notices) { n.later, n.tooLate = n.later+len(later), tooLate })
		}
		n.mu.Unlock()
		n.giveBack(t, later)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, rec := range recs {
		if rec != nil {
			n.placeLocked(rec, claim{term: t, revision: got[i].Revision, starts: got[i].Starts}, rec.Due <= over)
		}
	}
	if n.stopping { // the claim was under way as Shutdown began
		call(n.look)
	}
}

// placeLocked puts a claim in memory, unless that has a later one.
func (n *node) placeLocked(rec *task.Record, c claim, overdue bool) {
	if n.term != c.term {
		return
	}
	if old := n.held[rec.Key]; old != nil {
		if old.claim.revision >= c.revision {
			return
		}
		n.dropLocked(old)
	}
	l := newLive(rec, n)
	l.overdue, l.claim = overdue, c
	n.held[rec.Key] = l
	n.bytes += rec.Size()
	if of := n.kinds.Limiter(rec); of != nil {
		of.Hold(&l.Task)
	}
	if overdue {
		n.backlog.Add(&l.Task)
		return
	}
	n.awaitLocked(l, 0)
}

// awaitLocked puts the live in the wheel, until it is due, or for that long.
func (n *node) awaitLocked(l *live, least time.Duration) {
	d := max(time.Duration(l.Rec.Due-n.clock.Earliest(n.own())), least, 1)
	// Its error is that the wheel has stopped: then nothing runs here, and others will take over.
	_ = n.wheel.SetTask(&timewheel.Task{Key: l.Rec.Key, Interval: d, Job: jobOf(l, n.backlog)})
}

// dropLocked forgets the live. A run that has begun continues without it.
func (n *node) dropLocked(l *live) {
	if n.held[l.Rec.Key] != l {
		return
	}
	delete(n.held, l.Rec.Key)
	n.bytes -= l.Rec.Size()
	n.withdrawLocked(l, gone)
}

// withdrawLocked takes a live that waits out of the wheel or the backlog, puts it in the state, and reports
// whether it did.
func (n *node) withdrawLocked(l *live, state uint32) bool {
	if !l.state.CompareAndSwap(waits, state) {
		return false
	}
	if of := n.kinds.Limiter(l.Rec); of != nil {
		of.Remove(&l.Task)
	}
	if l.overdue {
		n.backlog.Remove(&l.Task)
	} else {
		_ = n.wheel.RemoveTask(l.Rec.Key) // its error is that the wheel has let go of it, to find it withdrawn
	}
	return true
}

func (n *node) drop(l *live) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropLocked(l)
}
