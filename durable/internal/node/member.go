// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/need"
)

// A term is one membership of the node. It lasts from a Join until the member is gone. It does not end when the lease
// expires, because the node may renew the lease until another node has reaped the member. No run starts while the lease
// is expired.
type term struct {
	id    engine.MemberID
	began int64 // when the Join was sent, by the node's own clock

	// The node's mutex protects the fields below.
	readable byte // the greatest record version to claim

	sent   int64           // when the last answered renewal was sent, by the node's own clock
	until  int64           // when the node must treat the lease as expired
	ctx    context.Context // context of the runs; done when the lease has expired
	cancel context.CancelCauseFunc
	expiry *time.Timer
}

// reapEvery is how often a node checks its own membership, unless its lease is short. At each check it reaps if a lease
// that it has seen has expired. It also reaps once in each lease, because tasks of a member that is gone may have been
// locked by a user's transaction until now.
const reapEvery = 250 * time.Millisecond

// keepMember maintains the node's membership. It returns how long to wait before the next call.
func (n *Node) keepMember() time.Duration {
	n.wakeAfterJump()
	if t := n.current(); t != nil && n.needsNothing() && n.own()-t.sent < int64(n.cfg.Lease) {
		return n.cfg.Lease / 4
	}
	pause := min(n.cfg.Lease/4, reapEvery)
	if t := n.tend(); t != nil {
		n.sendUnsent()
		n.unstick(t)
		now := n.own()
		if since := now - n.reaped; !n.alone && since >= int64(reapEvery) && (now >= n.expires || since >= int64(n.cfg.Lease)) {
			n.reaped = now
			n.reap()
		}
		pause = min(pause, n.untilLook())
	}
	if n.needsNothing() {
		return n.cfg.Lease / 4
	}
	return pause
}

// tend joins the engine, renews the lease and checks the claims, each only when it is due. It returns the term, or nil
// if the engine does not answer.
func (n *Node) tend() *term {
	n.mu.Lock()
	t, now := n.term, n.own()
	renew := t != nil && (n.failing || n.unreported || now-t.sent >= int64(n.cfg.Lease/4) || n.untilLook() <= 0)
	if n.alone && renew {
		t.sent, n.unreported = now, false
	}
	n.mu.Unlock()
	if t == nil {
		return n.joinAgain()
	}
	if renew && !n.renew(t) {
		return nil
	}
	n.mu.Lock()
	check := n.doubt || !n.alone && (now-n.checked >= int64(4*n.cfg.Lease) ||
		now < n.recheck && now-n.checked >= int64(n.cfg.Lease/4))
	n.mu.Unlock()
	if check && !n.reconcile(t) {
		return nil
	}
	return t
}

// joinAgain returns a new term, or nil if the engine does not answer or the node has left.
func (n *Node) joinAgain() *term {
	n.joining <- struct{}{}
	defer func() { <-n.joining }()
	if n.left {
		return nil
	}
	ctx, cancel := n.callContext()
	defer cancel()
	if err := n.join(ctx); err != nil {
		n.trouble(err)
		return nil
	}
	n.news.Store(nil)
	call(n.reread)
	return n.current()
}

// callContext returns a context for an engine call on the node's own behalf.
func (n *Node) callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(n.life, max(n.cfg.Lease/2, time.Second/2))
}

// current returns the node's term, or nil if the node is not a member.
func (n *Node) current() *term {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.term
}

// leasedLocked reports whether the node is a member whose lease has not expired.
func (n *Node) leasedLocked() bool { return n.term != nil && n.own() < n.term.until }

// endless is the lease of a node on its own engine.
const endless = 100 * 365 * 24 * time.Hour

// join begins a term.
func (n *Node) join(ctx context.Context) error {
	sent := n.own()
	lease := n.cfg.Lease
	if n.alone {
		lease = endless
	}
	n.count.needs.Asked(need.Renewals, sent)
	id, now, err := n.engine.Join(ctx, n.cfg.Name, lease)
	if n.count.needs.Answered(need.Renewals, n.own(), err); err != nil {
		return err
	}
	n.heard(sent, now)
	n.mu.Lock()
	n.term = &term{id: id, began: sent, readable: math.MaxUint8}
	n.settled = engine.None // a new member claims nothing before it has read the settings
	n.unreported = n.kinds.shared() != nil
	n.extendLocked(sent)
	n.mu.Unlock()
	call(n.wake)
	call(n.look)
	return nil
}

// heard adjusts the clock to the engine's time that an answer reports.
func (n *Node) heard(asked, now int64) {
	answered := n.clock.Heard(asked, now)
	n.count.calls.add(time.Duration(answered - asked))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.backLocked()
	n.shown.Store(max(n.shown.Load(), now))
}

// renew extends the lease and reports whether the node is still a member. On its own engine it only keeps the clock right.
func (n *Node) renew(t *term) bool {
	if n.alone {
		return n.hearTime()
	}
	ctx, cancel := context.WithTimeout(n.life, n.cfg.Lease/2) // leaves time for a second try
	defer cancel()
	n.mu.Lock()
	n.unreported = false
	n.renewals++
	count, takenOver, held, drained, started, stopping := n.renewals, n.takenOver, len(n.held), n.drained, n.started, n.stopping
	_, away := n.awayLocked()
	n.mu.Unlock()
	report := n.cfg.report(n.Work(), n.kinds, held)
	report.TakenOver, report.Idle, report.Leaving, report.Away = takenOver, !started, stopping, away != nil
	limited := n.kinds.shared()
	if report.Drained = drained; drained && report.Running == 0 && n.undivide() {
		report.Kinds, report.Limits, limited = nil, nil, nil // the other nodes use its part of the limits
	}
	sent := n.own()
	n.count.needs.Asked(need.Renewals, sent)
	members, now, err := n.renewAndLook(ctx, t, report.encode(count))
	if n.count.needs.Answered(need.Renewals, n.own(), err); err != nil {
		n.failed(t, err)
		return false
	}
	n.heard(sent, now)
	answered := n.own()
	leased, working, all := 0, 0, 0
	reports := make([]Report, len(members))
	n.expires = math.MaxInt64
	for i, m := range members {
		reports[i] = reportOf(m)
		if r := &reports[i]; m.Left > 0 && !r.Drained {
			leased++
			if !r.Idle && slices.ContainsFunc(report.Kinds, r.has) { // it can take tasks of this node
				working, all = working+1, all+r.Held
			}
		}
		if m.Left > m.Lease { // a clock that was ahead has granted it, and Reap cuts it
			m.Left = 0
		}
		if m.ID != t.id {
			n.expires = min(n.expires, answered+int64(m.Left))
		}
	}
	n.backlog.Share(leased)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.term != t {
		return false
	}
	if !n.hasSlept(sent) {
		n.tookLocked(time.Duration(answered - sent))
	}
	n.members = leased
	if n.fair = math.MaxInt; working > 1 {
		n.fair = (all + working - 1) / working
	}
	n.extendLocked(sent)
	n.divideLocked(limited, members, reports, answered)
	return true
}

// extendLocked records an answer that grants a lease. The lease counts from sent, the time of the request. That of the
// node's own engine has no end.
func (n *Node) extendLocked(sent int64) {
	t := n.term
	t.sent, t.until = sent, sent+int64(n.cfg.Lease)
	n.count.renewed.Store(sent)
	if t.ctx == nil || t.ctx.Err() != nil {
		t.ctx, t.cancel = context.WithCancelCause(n.runs)
	}
	if n.alone {
		t.until = math.MaxInt64
		return
	}
	left := time.Duration(t.until - n.own())
	if t.expiry == nil {
		t.expiry = time.AfterFunc(left, func() { n.expire(t) })
	} else {
		t.expiry.Reset(left)
	}
}

// backLocked records that the engine has answered. An outage is over when all needs of the node are met.
func (n *Node) backLocked() {
	n.failing = false
	if _, why := n.awayLocked(); n.outage && why == nil && n.isSettledLocked() {
		n.outage = false
		n.outages.Add(1)
		n.report.note(func(n *notices) { n.back = true })
	}
}

// keepTime asks the engine for its time. It returns how long to wait before the next call.
func (n *Node) keepTime() time.Duration {
	n.hearTime()
	return n.cfg.Lease / 4
}

// hearTime asks the engine for its time, and reports whether the engine answered.
func (n *Node) hearTime() bool {
	ctx, cancel := n.callContext()
	defer cancel()
	err := n.askTime(ctx)
	if err != nil {
		n.trouble(err)
	}
	return err == nil
}

// askTime asks the engine for its time.
func (n *Node) askTime(ctx context.Context) error {
	asked := n.own()
	n.count.needs.Asked(need.Time, asked)
	_, now, err := n.engine.Renew(ctx, 0, nil)
	if n.count.needs.Answered(need.Time, n.own(), err); err != nil {
		return err
	}
	n.heard(asked, now)
	return nil
}

// expire cancels the contexts of the runs if the lease has expired.
func (n *Node) expire(t *term) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.term == t && n.own() >= t.until {
		t.cancel(errLeaseOver)
	}
}

var errLeaseOver = fmt.Errorf("%w: the lease of the node has expired", ErrFenced)

// failed handles the error of an engine call that the node made as a member.
func (n *Node) failed(t *term, err error) {
	if errors.Is(err, engine.ErrMemberGone) {
		n.forget(t)
		return
	}
	n.trouble(err)
}

// forget ends the term and drops all its claims.
func (n *Node) forget(t *term) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.term != t || t == nil {
		return
	}
	n.term = nil
	n.undivideLocked()
	if t.expiry != nil {
		t.expiry.Stop()
	}
	t.cancel(errLeaseOver)
	for _, l := range n.held {
		n.dropLocked(l)
	}
	for _, c := range n.unsent {
		n.lose(c)
	}
	n.unsent = nil
	if n.life.Err() == nil && !n.stopping {
		early := n.own() < t.until // no node reaps a member whose lease has not expired
		n.report.note(func(n *notices) { n.restored, n.lost = n.restored || early, n.lost || !early })
	}
	call(n.look)
}

// unsure records that a call may or may not have taken effect. The claims are then checked for as long as the call may
// be in flight.
func (n *Node) unsure() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.doubt, n.recheck = true, n.own()+int64(n.cfg.Lease)
}

// trouble records that a call has failed.
func (n *Node) trouble(err error) {
	n.count.callsFailed.Add(1)
	if n.breaks(err) {
		return
	}
	n.unsure()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failing = true
	if n.silence == nil && !n.outage && n.life.Err() == nil {
		n.silence = time.AfterFunc(n.outageLocked(), n.silent)
	}
}

// reconcile makes the claims in memory match those in the engine. It reports whether the engine answered.
func (n *Node) reconcile(t *term) bool {
	n.mu.Lock()
	n.doubt, n.checked = false, n.own()
	known := make([]*live, 0, len(n.held))
	for _, l := range n.held {
		known = append(known, l)
	}
	n.mu.Unlock()
	ctx, cancel := n.callContext()
	defer cancel()
	var held []engine.Stored
	for s, err := range n.engine.Walk(ctx, engine.Range{Order: engine.Held, By: t.id}) {
		if err != nil {
			n.failed(t, err)
			return false
		}
		held = append(held, s)
	}
	n.take(t, held, n.clock.Earliest(n.own())-int64(overdueAfter))
	revisions := make(map[string]int64, len(held))
	for _, s := range held {
		revisions[s.Key] = s.Revision
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range known { // held when the request was sent; a claim missing from the answer is no longer held
		if revisions[l.Rec.Key] != l.claim.revision && l.state.Load() == waits && n.held[l.Rec.Key] == l {
			n.dropLocked(l)
		}
	}
	return true
}

// reap removes the members whose leases have expired.
func (n *Node) reap() {
	ctx, cancel := n.callContext()
	defer cancel()
	names, err := n.engine.Reap(ctx)
	if err != nil {
		n.trouble(err)
		return
	}
	if len(names) == 0 {
		return
	}
	n.mu.Lock()
	n.returnedLocked()
	n.takenOver = takenOver(n.takenOver, names, time.Unix(0, n.clock.Earliest(n.own())))
	n.unreported = true
	n.mu.Unlock()
	call(n.look)
	n.count.taken.Add(uint64(len(names)))
	n.report.note(func(n *notices) { n.taken = append(n.taken, names...) })
	call(n.wake)
}

// leave ends the membership permanently, so that other nodes take over its tasks at once.
func (n *Node) leave() {
	n.joining <- struct{}{}
	n.left = true
	<-n.joining
	t := n.current()
	if t == nil {
		return
	}
	for range 3 {
		ctx, cancel := n.callContext()
		err := n.engine.Leave(ctx, t.id)
		cancel()
		if err == nil {
			break
		}
	}
	n.forget(t)
}
