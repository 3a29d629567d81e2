// SPDX-License-Identifier: MIT

package durable

import (
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A feed reads the tasks of one stretch of time from the store into memory, in due order. Tasks up to its position have
// been read: they are in memory, or set aside. A task that is added before the position goes into memory at once. Tasks
// beyond the position will be read later. There are two feeds, so that overdue tasks do not delay tasks that fall due
// afterwards:
//
//	overdue   reads tasks due up to the start into the backlog, while the backlog has room
//	ahead     reads tasks due from the start to one window ahead of now into the wheel
//
// A due task is set aside if its kind has no handler or is paused: it is counted, and remains only in the store. When
// the kind gets a handler or is resumed, the stretch of the overdue feed is extended to include all tasks due by that
// time. The feed then starts again from its beginning and skips tasks that are already in memory.
//
// A feed also skips tasks for which their kind's limiter has no room, and overdue tasks of a kind that already has its
// share of the backlog. These tasks are read later, when there is room or when the limiter holds fewer tasks of their
// group than of other groups.
type feed struct {
	at    engine.Position
	until int64 // how far the feed may read; never before at
}

// end returns the position after all tasks due at or before the given time.
func end(due int64) engine.Position { return engine.Position{Due: due, Key: beyondKeys} }

// beyondKeys is longer than any key, and therefore sorts after all keys.
var beyondKeys = strings.Repeat("\xff", MaxKey+1)

// done reports whether the feed has read as far as it may.
func (f *feed) done() bool { return f.at == end(f.until) }

// passed reports whether the position is within the part of the stretch that has been read.
func (f *feed) passed(p engine.Position) bool { return !f.at.Before(p) }

const (
	// feedAtOnce is how many tasks are read from the store at a time. A verb waits only a millisecond or two for such a
	// read.
	feedAtOnce = 512

	// mostWaiting is how many due tasks may wait for a worker before the feed of upcoming tasks stops reading.
	mostWaiting = 1 << 16
)

// feed reads a few tasks from the store into memory. It returns how long to wait before the next call.
func (k *keeper) feed() time.Duration {
	if k.Err() != nil {
		return forever
	}
	k.watchClock()
	if !k.started {
		return forever
	}
	again := forever
	if room := k.backlog.Room(); room > 0 && !k.overdue.done() {
		if again = 0; !k.read(&k.overdue, min(room, feedAtOnce)) {
			again = limit.HireEvery
		}
	}
	for kind := range k.cuts {
		if room := k.backlog.Room(); room > 0 && k.backlog.Takes(kind) {
			k.readCut(kind, min(room, feedAtOnce))
			again = 0
		}
	}
	for _, of := range k.kinds.allLimited() {
		r, next := of.read(k.ahead.at)
		if r != nil {
			k.readOn(of, r)
		}
		again = min(again, next)
	}
	again = min(again, k.backlog.Hire())
	k.reportUnhandled()
	now := time.Now()
	if wall := now.UnixNano(); task.Later(wall, k.cfg.window/2) >= k.ahead.until {
		k.ahead.until = max(k.ahead.until, task.Later(wall, k.cfg.window))
	}
	if !k.ahead.done() {
		if k.wheel.Stats().Waiting >= mostWaiting {
			return min(again, limit.HireEvery) // tasks fall due faster than they run; further tasks stay in the store
		}
		k.read(&k.ahead, feedAtOnce)
		if !k.ahead.done() {
			return 0
		}
	}
	return min(again, time.Duration(k.ahead.until-now.UnixNano())-k.cfg.window/2)
}

// read reads up to the given number of tasks from the store into memory. It reports false if it stopped early because a
// kind will soon be classified as quick or slow.
func (k *keeper) read(f *feed, most int) (on bool) {
	g := &group{k: k}
	n, whole, on := 0, true, true
	for rec, err := range decoded(k.store.Due(f.at, f.until)) {
		if err != nil {
			_ = k.fail(err) // fail reports the error
			return true
		}
		if n == most || f == &k.overdue && k.backlog.IsFull() {
			whole = false
			break
		}
		n++
		before := f.at
		f.at = rec.Position()
		if on = k.takeIn(g, rec, before); !on {
			f.at, whole = before, false
			break
		}
	}
	if whole {
		f.at = end(f.until)
	}
	_ = k.commit(g) // a failed commit fails the keeper
	return on
}

// takeIn puts rec, which was read from the store, in memory if it belongs there, and adds the resulting store changes
// to the group. before is the position just before the task. takeIn reports false if the caller must retry the task
// later, because its kind will soon be classified as quick or slow.
func (k *keeper) takeIn(g *group, rec *task.Record, before engine.Position) (taken bool) {
	switch {
	case k.live[rec.Key] != nil: // it has been read before
	case !k.passed(rec): // the kind's limiter, or the kind's share of the backlog, is full
	case rec.Due > k.overdue.until:
		k.place(rec.Key, rec)
	default:
		kind := k.kinds.of(rec)
		if kind == nil {
			k.setAside(rec)
			return true
		}
		if next := k.skip(rec, kind); next != rec {
			g.put(rec.Key, rec, next)
			return true
		}
		if !k.backlog.Takes(rec.Kind) {
			if k.backlog.MayBeQuick(rec.Kind) {
				return false
			}
			k.cuts[rec.Kind] = before
			return true
		}
		k.place(rec.Key, rec)
	}
	return true
}

// readCut reads overdue tasks of a kind that were left in the store, from the kind's cut to the feed's position. It
// examines up to the given number of tasks, whatever their kind.
func (k *keeper) readCut(kind string, most int) {
	g := &group{k: k}
	n, at, to := 0, k.cuts[kind], k.overdue.at
	delete(k.cuts, kind) // the loop cuts the kind again if it has to stop early
	for rec, err := range decoded(k.store.Due(at, min(to.Due, k.overdue.until))) {
		if err != nil {
			_ = k.fail(err)
			return
		}
		if to.Before(rec.Position()) {
			break
		}
		if n == most || k.backlog.IsFull() {
			k.cuts[kind] = at
			break
		}
		if rec.Kind == kind && !k.takeIn(g, rec, at) {
			k.cuts[kind] = at
		}
		if _, cut := k.cuts[kind]; cut {
			break
		}
		n, at = n+1, rec.Position()
	}
	_ = k.commit(g)
}

// readOn reads tasks that were left in the store because of their kind's limit. It examines at most feedAtOnce tasks,
// whatever their kind.
func (k *keeper) readOn(of *kind, r *reading) {
	g := &group{k: k}
	n, at, to := 0, r.from, r.until
	for rec, err := range decoded(k.store.Due(r.from, r.until.Due)) {
		if err != nil {
			_ = k.fail(err)
			return
		}
		p := rec.Position()
		if r.until.Before(p) {
			break
		}
		if n == feedAtOnce || of.full(r) {
			to = at
			break
		}
		n, at = n+1, p
		if k.kinds.limited(rec) == of {
			k.takeIn(g, rec, at)
		}
	}
	of.end(r, to, k.ahead.at)
	_ = k.commit(g)
}

// skip returns the task with its missed runs skipped, or the same task if its kind does not skip them.
func (k *keeper) skip(rec *task.Record, kind *kind) *task.Record {
	if !rec.Skippable() {
		return rec
	}
	now := k.now()
	if to := kind.policy.PassesOver(rec.Due, now, kind.isOld(rec.Due, k.since, now)); to != engine.None {
		return rec.Skipped(to, now)
	}
	return rec
}

// setAside counts a due task that is not put in memory because its kind has no handler. If the kind is paused, setAside
// only records that the kind has tasks set aside.
func (k *keeper) setAside(rec *task.Record) {
	if k.kinds.pauses().Has(rec.Kind) {
		k.waiting[rec.Kind] = true
		return
	}
	n, known := k.unhandled[rec.Kind]
	if !known {
		k.unreported = append(k.unreported, rec.Kind)
	}
	k.unhandled[rec.Kind] = n + 1
	k.count.unhandled.Add(1)
}

// isAside reports whether the task was set aside and counted.
func (k *keeper) isAside(rec *task.Record) bool {
	return rec != nil && k.live[rec.Key] == nil && k.passed(rec) && k.kinds.of(rec) == nil &&
		!k.kinds.pauses().Has(rec.Kind)
}

// reportUnhandled reports each kind without a handler once.
func (k *keeper) reportUnhandled() {
	if len(k.unreported) == 0 {
		return
	}
	k.report.note(func(n *notices) {
		if n.unhandled == nil {
			n.unhandled = make(map[string]int)
		}
		for _, kind := range k.unreported {
			n.unhandled[kind] = k.unhandled[kind]
		}
	})
	k.unreported = nil
}

// readAgain makes the overdue feed reread the tasks that were set aside, if any of them is of the given kind. It is
// called when the kind gets a handler, or is paused or resumed.
func (k *keeper) readAgain(kind string) {
	if k.unhandled[kind] == 0 && !k.waiting[kind] {
		return
	}
	// Tasks due by now have been read, unless the ahead feed has fallen behind.
	until := max(k.overdue.until, min(time.Now().UnixNano(), k.ahead.at.Due))
	k.overdue = feed{at: engine.Position{Due: engine.None}, until: until}
	if !k.ahead.passed(end(until)) {
		k.ahead.at = end(until) // the overdue feed reads the remaining tasks due at that instant
	}
	for kind := range k.unhandled {
		k.unhandled[kind] = 0 // they are counted again as they are read
	}
	clear(k.waiting)
	k.count.unhandled.Store(0)
}
