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
// been read: they are in memory, or set aside. A task that is added there goes to memory at once, and tasks beyond it
// will be read. There are two feeds, so that the overdue tasks do not delay those that fall due afterwards:
//
//	overdue   up to the start, into the backlog, while that has room
//	ahead     from the start to a window ahead of now, into the wheel
//
// A due task is set aside if its kind has no handler or is paused: it stays in the store only, and is counted. When its
// kind gets a handler or is resumed, everything due by then becomes the stretch of the overdue feed. That feed starts
// again from its beginning and passes over tasks already in memory.
//
// A feed also passes over tasks for which the limiter of their kind has no room, and over overdue tasks of a kind that
// has its share of the backlog. They are read later, when there is room, or when the limiter has fewer tasks of their
// group than of the others.
type feed struct {
	at    engine.Position
	until int64 // how far it may go; at or after at
}

// end is the position after all tasks due by then.
func end(due int64) engine.Position { return engine.Position{Due: due, Key: beyondKeys} }

// beyondKeys is longer, and so greater, than any key.
var beyondKeys = strings.Repeat("\xff", MaxKey+1)

// done reports whether the feed has read as far as it may go.
func (f *feed) done() bool { return f.at == end(f.until) }

// passed reports whether the position lies in the stretch that has been read.
func (f *feed) passed(p engine.Position) bool { return !f.at.Before(p) }

const (
	// feedAtOnce is how many tasks are read from the store at once, so that verbs wait for only a millisecond or two.
	feedAtOnce = 512

	// mostWaiting is how many due tasks may wait for a worker before the feeds stop.
	mostWaiting = 1 << 16
)

// feed reads a few tasks from the store into memory. It returns when to call it again.
func (k *keeper) feed() time.Duration {
	if k.Err() != nil {
		return forever
	}
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
			return min(again, limit.HireEvery) // tasks fall due faster than they run: the rest may stay in the store
		}
		k.read(&k.ahead, feedAtOnce)
		if !k.ahead.done() {
			return 0
		}
	}
	return min(again, time.Duration(k.ahead.until-now.UnixNano())-k.cfg.window/2)
}

// read reads up to most tasks from the store into memory. It reports false if it stopped early because a kind is about
// to be known as quick or slow.
func (k *keeper) read(f *feed, most int) (on bool) {
	g := &group{k: k}
	n, whole, on := 0, true, true
	for rec, err := range decoded(k.store.Due(f.at, f.until)) {
		if err != nil {
			_ = k.fail(err) // which reports it
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
	_ = k.commit(g) // which fails the keeper, if it does
	return on
}

// takeIn puts a task that was read in memory, if it belongs there. It adds changes of the store to the group. before is
// the position before the task. It reports false if it is to be called again, because the kind is about to be known as
// quick or slow.
func (k *keeper) takeIn(g *group, rec *task.Record, before engine.Position) (taken bool) {
	switch {
	case k.live[rec.Key] != nil: // it has been read before
	case !k.passed(rec): // the limit of its kind is full, or its share of the backlog
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

// readCut reads overdue tasks of a kind that were left in the store, from its cut to the feed's position. It looks at
// up to most tasks of any kind.
func (k *keeper) readCut(kind string, most int) {
	g := &group{k: k}
	n, at, to := 0, k.cuts[kind], k.overdue.at
	delete(k.cuts, kind) // or it is cut again
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

// readOn reads tasks that were left in the store because of the limit of their kind. It looks at up to feedAtOnce tasks
// of any kind.
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

// skip returns the task after its missed runs are skipped, if its kind skips them.
func (k *keeper) skip(rec *task.Record, kind *kind) *task.Record {
	if !rec.Skippable() {
		return rec
	}
	if to := kind.policy.PassesOver(rec.Due, k.now(), rec.Due <= max(k.since, kind.since.Load())); to != engine.None {
		return rec.Skipped(to)
	}
	return rec
}

// setAside counts a due task that is not put in memory because its kind has no handler. If its kind is paused, setAside
// only notes that.
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

// isAside reports whether the task was set aside, and is counted.
func (k *keeper) isAside(rec *task.Record) bool {
	return rec != nil && k.live[rec.Key] == nil && k.passed(rec) && k.kinds.of(rec) == nil &&
		!k.kinds.pauses().Has(rec.Kind)
}

// reportUnhandled reports the kinds without a handler, each once.
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

// readAgain makes the overdue feed reread the tasks that were set aside, if any of them is of the kind. The kind has a
// handler now, or was paused or resumed.
func (k *keeper) readAgain(kind string) {
	if k.unhandled[kind] == 0 && !k.waiting[kind] {
		return
	}
	// Tasks due now have been read, unless the feed ahead is behind.
	until := max(k.overdue.until, min(time.Now().UnixNano(), k.ahead.at.Due))
	k.overdue = feed{at: engine.Position{Due: engine.None}, until: until}
	if !k.ahead.passed(end(until)) {
		k.ahead.at = end(until) // the rest of that instant is the overdue feed's
	}
	for kind := range k.unhandled {
		k.unhandled[kind] = 0 // they are counted again as they are read
	}
	clear(k.waiting)
	k.count.unhandled.Store(0)
}
