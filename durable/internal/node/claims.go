// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/need"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A claim is the part of a live that only a node uses: the term in which the task is held, the revision at which it was
// claimed, and the number of earlier starts of its run whose outcome is unknown.
type claim struct {
	term     *term
	revision int64
	starts   int
}

const (
	// A node claims tasks every claimEvery, unless its engine wakes it, up to lookAhead before they are due. If another
	// process adds a task that is due at once, the task waits less than claimEvery. lookAhead exceeds restEvery.
	claimEvery = 100 * time.Millisecond
	lookAhead  = 2 * time.Second

	// At the end of a run the node keeps the task if it is due again within keepAhead, and need not claim it again; see
	// keepsLocked.
	keepAhead = 3 * time.Second

	// A task that has been due for overdueAfter is overdue. Overdue tasks are claimed for spare workers, at a bounded
	// rate, so that a backlog does not delay tasks that fall due now.
	overdueAfter = time.Second

	// claimMost is the maximum number of tasks due soon in one claim. A node holds at most mostHeld tasks
	// of kinds without a limit, and stops claiming when their records reach heldBytes.
	claimMost = 1024
	mostHeld  = 1 << 14
	heldBytes = 64 << 20

	// claimTimeout bounds a claim of overdue tasks, in case a connection hangs. It is generous because no other call
	// waits for such a claim, which may have to skip millions of deleted tasks.
	claimTimeout = 30 * time.Second
)

// claimAll claims as many tasks as there is room for. It returns how long to wait before the next call. whole is false if
// tasks that are due within the look-ahead may be left, and nothing but the next call finds them.
func (n *Node) claimAll() (again time.Duration, whole bool) {
	again, whole = claimEvery, true
	for _, k := range n.kinds.AllLimited() {
		after, all := n.claimFor(k)
		again, whole = min(again, after), whole && all
	}
	unlimited := n.kinds.unlimited()
	if len(unlimited) == 0 {
		return again, whole
	}
	now := n.clock.Earliest(n.own())
	over := now - int64(overdueAfter)
	if t, most := n.room(); most > 0 {
		after := over
		spare, bytes := n.backlog.Room()
		both := spare > 0 && n.isAtEnd()
		if both {
			after, most = n.from(&n.overdue), n.fitting(min(most, spare), bytes)
		}
		var kinds []string
		for name, kind := range unlimited {
			kinds = append(kinds, kind.Policy.Classes(name)...)
		}
		r := engine.ClaimRequest{Kinds: kinds, After: after, Until: now + int64(lookAhead), Most: most}
		got, ok := n.claimSome(t, r, over)
		if both {
			n.to(&n.overdue, after, got.Tasks, ok, most, over)
		}
		full := len(got.Tasks) == most
		whole = whole && ok && !full
		if ok && full && got.Tasks[most-1].Due <= now+int64(2*claimEvery) {
			again = 0
		}
	} else if t != nil { // the workers may finish the waiting tasks long before claimEvery has passed
		again = min(again, limit.HireEvery)
	}
	call(n.behind)
	return again, whole
}

// claimOverdue claims overdue tasks of the kinds for which the backlog has room. Tasks of slow kinds that already have
// overdue tasks here are claimed separately. Such a claim takes at most the share of these kinds. claimOverdue returns
// how long to wait before the next call.
func (n *Node) claimOverdue() time.Duration {
	t, room := n.room()
	var kinds, slow, full []string
	n.mu.Lock()
	for name, kind := range n.kinds.unlimited() {
		switch {
		case !n.backlog.Takes(name) || n.isStuckOnLocked(kind):
			full = append(full, name)
		case !kind.IsQuick() && n.backlog.Has(name):
			slow = append(slow, kind.Policy.Classes(name)...)
		default:
			kinds = append(kinds, kind.Policy.Classes(name)...)
		}
	}
	if slices.ContainsFunc(n.full, func(name string) bool { return !slices.Contains(full, name) }) {
		n.overdue.at, n.slow.at = engine.None, engine.None // the cursors have passed the tasks left with the engine
	}
	n.full = full
	if len(slow) == 0 {
		n.slow.quiet = max(n.slow.quiet, 1) // the claim for the other kinds finds their tasks, too
	}
	n.mu.Unlock()
	if most, bytes := n.backlog.Room(); room > 0 && most > 0 { // Takes, called above, determines the kinds that take no room
		full := n.claimFrom(&n.overdue, t, kinds, n.fitting(most, bytes))
		full = n.claimFrom(&n.slow, t, slow, n.fitting(min(most, n.backlog.SlowMost()), limit.SlowBytes)) || full
		if most, _ := n.backlog.Room(); full && most > 0 { // the claims were small, because the tasks might have been large
			return 0
		}
	}
	if n.waker != nil && !n.CaughtUp() { // the node may rest before this call
		return claimEvery
	}
	return claimTimeout // claimAll calls it earlier
}

// claimFor claims tasks of a kind with a limit, as many as its limiter has room for. Claiming them separately keeps
// them from taking room in the claims for other kinds. If more tasks are due than fit, the groups take turns first, and
// the remaining room is filled in due order. A claim from the beginning also finds tasks that are due soon. Other
// claims wait for it, for at most a tenth of the time, and it is cancelled after half a lease. A cancelled claim does
// not reach the tasks behind the rows that it has to skip. claimFor returns the same as claimAll. The limiter wakes the
// node when it has room for the tasks that it leaves. Until then, claimFor claims only tasks that are due before the last
// one that the limiter holds. They take the places of tasks that are not due, which the node releases.
func (n *Node) claimFor(k *Kind) (again time.Duration, whole bool) {
	if n.kinds.Pauses().Has(k.Name) {
		return claimEvery, true
	}
	now := n.clock.Earliest(n.own())
	full, until := !k.Limiter.IsDrained(), now+int64(lookAhead)
	places, bytes := k.Limiter.Room()
	if full {
		ahead, last := k.Limiter.Ahead(now)
		if ahead == 0 {
			return claimEvery, true
		}
		places, until, bytes = places+ahead, last-1, limit.HeldBytes
	}
	t, most := n.room()
	if most = n.fitting(min(most, places), bytes); most <= 0 { // the node has no room, or must not claim
		return claimEvery, t == nil
	}
	if full {
		defer n.shed(t, k)
	} else if k.crowded.Swap(false) { // another goroutine may set it again
		room := most
		if most = n.claimTurns(t, k, now, room); most <= room/2 { // the limiter has enough, or the node has lost its share
			k.crowded.Store(true)
			k.Limiter.IsDrained() // makes the limiter wake the node when there is room
			return claimEvery, true
		}
	}
	over := now - int64(overdueAfter)
	after := n.from(&k.claimed)
	r := engine.ClaimRequest{Kinds: k.Policy.Classes(k.Name), After: after, Until: until, Most: most}
	got, ok := n.claimSome(t, r, over)
	if n.to(&k.claimed, after, got.Tasks, ok, most, over); !ok {
		k.crowded.Store(true)
		return claimEvery, false
	}
	if len(got.Tasks) == most && got.Tasks[most-1].Due <= now {
		k.crowded.Store(true)
	}
	if len(got.Tasks) == most && k.Limiter.IsDrained() { // if not, the limiter wakes the node
		return 0, false
	}
	return claimEvery, true
}

// claimTurns claims due tasks of a kind with a limit. The kind's groups take turns. It returns the room that is left.
func (n *Node) claimTurns(t *term, k *Kind, now int64, most int) int {
	for most > 0 { // up to the last group, and then once from the first one
		began := k.group
		r := engine.ClaimRequest{Kinds: k.Policy.Classes(k.Name), Until: now, Most: most, Fair: true, Group: began}
		got, ok := n.claimSome(t, r, now-int64(overdueAfter))
		if ok {
			k.group = got.Next
		}
		room, bytes := k.Limiter.Room()
		most = n.fitting(min(most, room), bytes)
		if !ok || began == "" || k.group != "" {
			break
		}
	}
	return most
}

// room returns the current term and the number of tasks that the node may claim. The term is nil if the node must not
// claim.
func (n *Node) room() (*term, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.claimsLocked() {
		return nil, 0
	}
	return n.term, n.roomLocked()
}

func (n *Node) claimsLocked() bool {
	return n.started && !n.leavesLocked() && n.leasedLocked() && n.isSettledLocked()
}

// leavesLocked reports whether the node starts no further run.
func (n *Node) leavesLocked() bool { return n.stopping || n.drained || n.Err() != nil }

// roomLocked returns how many tasks the node may claim now. It returns 0 if the remaining tasks should be left to other
// nodes.
func (n *Node) roomLocked() int {
	if n.bytes >= heldBytes || n.loadLocked().Waiting-waitingMore > n.backlog.Pool() || n.stuckLocked() {
		return 0
	}
	return min(mostHeld-n.tasks, claimMost, max((heldBytes-n.bytes)/n.each, 1))
}

// fitting returns how many of most tasks the node may claim if they may have a number of bytes in total.
func (n *Node) fitting(most, bytes int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return min(most, max(bytes/n.each, 1))
}

const (
	// waitingMore is how many due tasks may wait for a worker, in addition to one task per worker.
	waitingMore = 64

	// stuckAfter is how long all workers may be busy without starting a run, or without starting an overdue task of a
	// kind, before waiting tasks are released to other nodes.
	stuckAfter = 250 * time.Millisecond
)

// stuckLocked reports whether all workers are busy with long runs and other nodes exist.
func (n *Node) stuckLocked() bool {
	return n.members > 1 && n.cfg.age(time.Now())-n.count.lastStart.Load() > int64(stuckAfter) &&
		n.loadLocked().Running >= n.backlog.Pool()
}

// isStuckOnLocked reports whether overdue tasks of the kind can start only on other nodes, because the workers
// available to them here are busy with long runs or with tasks that fall due now.
func (n *Node) isStuckOnLocked(k *Kind) bool {
	return n.members > 1 && n.backlog.ShutFor(&k.Kind, n.loadLocked().Running) > stuckAfter
}

// loadLocked returns the wheel's statistics. Reading them takes microseconds, so the result is reused for
// limit.LookEvery.
func (n *Node) loadLocked() timewheel.Stats {
	if now := n.own(); n.loadAt == 0 || now-n.loadAt >= int64(limit.LookEvery) {
		n.load, n.loadAt = n.wheel.Stats(), now
	}
	return n.load
}

// unstick releases due tasks that are waiting for a worker if the node is stuck, or stuck on their kind, because
// another node may have a free worker. It also releases the tasks that limiters hold beyond the node's share of their
// limits. The share shrinks when another node joins. Once Shutdown has begun, or while the node is drained, unstick
// releases every waiting task, because the runs in progress may take a long time.
func (n *Node) unstick(t *term) {
	var some []*live
	n.mu.Lock()
	switch {
	case n.term != t:
	case n.leavesLocked():
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
	several := n.members > 1
	n.mu.Unlock()
	n.giveUp(t, some)
	if several {
		n.shed(t, n.kinds.AllLimited()...)
	}
}

// shed releases the tasks that the kinds' limiters hold beyond their bounds.
func (n *Node) shed(t *term, kinds ...*Kind) {
	var some []*live
	n.mu.Lock()
	for _, k := range kinds {
		for n.term == t {
			excess := k.Limiter.Excess()
			if excess == nil {
				break
			}
			some = append(some, excess.Runner.(*live))
		}
	}
	n.mu.Unlock()
	n.giveUp(t, some)
}

// claimSome calls claimed with the usual call timeout, because other calls wait for the claim.
func (n *Node) claimSome(t *term, r engine.ClaimRequest, over int64) (engine.Claims, bool) {
	ctx, cancel := n.callContext()
	defer cancel()
	return n.claimed(ctx, t, r, over)
}

// claimed claims tasks, puts them in memory, and reports whether the engine answered. Tasks due at or before over are
// overdue.
func (n *Node) claimed(ctx context.Context, t *term, r engine.ClaimRequest, over int64) (engine.Claims, bool) {
	n.mu.Lock()
	r.By, r.Readable = t.id, t.readable
	n.mu.Unlock()
	asked := n.own()
	got, err := n.engine.Claim(ctx, r)
	if err == nil || ctx.Err() == nil {
		n.count.needs.Asked(need.Claims, asked)
		n.count.needs.Answered(need.Claims, n.own(), err)
	}
	switch {
	case err != nil && ctx.Err() != nil: // the claim may have to skip too many rows; renewals detect an outage
		n.count.callsFailed.Add(1)
		n.unsure()
		return engine.Claims{}, false
	case err != nil:
		n.failed(t, err)
		return engine.Claims{}, false
	}
	n.heard(asked, got.Now)
	n.count.claimed.Add(uint64(len(got.Tasks)))
	if len(got.Tasks) > 0 {
		call(n.alert)
	}
	n.take(t, got.Tasks, over)
	return got, true
}

// take puts claimed tasks in memory. It releases records of later versions, and stops claiming those versions, because
// other nodes can read them. Tasks due at or before over are overdue.
func (n *Node) take(t *term, got []engine.Stored, over int64) {
	recs := make([]*task.Record, len(got))
	var later []engine.Claim
	size := 0
	version, tooLate := byte(math.MaxUint8), error(nil)
	for i, s := range got {
		var err error
		switch recs[i], err = task.Decode(s.Record); {
		case errors.Is(err, ErrVersion) && s.Data[0] > task.RecordVersion:
			later = append(later, engine.Claim{Key: s.Key, Revision: s.Revision, Starts: s.Starts})
			version, tooLate = min(version, s.Data[0]), err
		case err != nil && n.brokenBy(err) == nil:
			n.report.note(func(n *notices) { n.damaged = err })
		case err == nil:
			size += recs[i].Size()
		}
	}
	if later != nil {
		n.mu.Lock()
		if version <= t.readable { // unless a concurrent claim has already lowered it
			t.readable = version - 1
			n.report.note(func(n *notices) { n.later, n.tooLate = n.later+len(later), tooLate })
		}
		n.mu.Unlock()
		n.giveBack(t, later)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if size > 0 {
		n.each = max(size/len(recs), n.each/2, 1) // the next tasks may be larger
	}
	for i, rec := range recs {
		if rec != nil {
			n.placeLocked(rec, claim{term: t, revision: got[i].Revision, starts: got[i].Starts}, rec.Due <= over)
		}
	}
	if n.leavesLocked() { // the claim was in progress when Shutdown or a drain began
		call(n.look)
	}
}
