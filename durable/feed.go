// SPDX-License-Identifier: MIT

package durable

import (
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A feed takes the tasks of one stretch of time from the store into memory, in due order. What lies up to its
// position has been read: it is in memory, or set aside. What is added there goes to memory at once. What lies
// beyond will be read. There are two, so that the overdue tasks do not delay what falls due afterwards:
//
//	overdue   up to the start, into the backlog, as much as that has room for
//	ahead     from the start to a window before what is due, into the wheel
//
// A task that is due and whose kind has no handler, or is paused, is set aside: it is in the store alone, and
// counted. When its kind is handled after all, or resumed, everything due by then becomes the stretch of the
// overdue feed, which is read again from its beginning and passes over what is in memory.
//
// What the limiter of a kind has no room for is passed over as well, and read on from there when it has room, or
// when it has less of a group than of the others. So are the overdue tasks of a kind that has its share of the
// backlog.
type feed struct {
	at    engine.Position
	until int64 // how far it may go; not before at
}

// end is the position after all that is due by then.
func end(due int64) engine.Position { return engine.Position{Due: due, Key: beyondKeys} }

// beyondKeys is longer, and so greater, than any key.
var beyondKeys = strings.Repeat("\xff", MaxKey+1)

// done reports whether there is nothing to read until the feed may go further.
func (f *feed) done() bool { return f.at == end(f.until) }

// passed reports whether the position lies in the stretch that has been read.
func (f *feed) passed(p engine.Position) bool { return !f.at.Before(p) }

const (
	// feedAtOnce is how many tasks are taken from the store in one go, so that the verbs do not wait for long:
	// a millisecond or two.
	feedAtOnce = 512

	// mostWaiting is how many due tasks may wait for a worker before no more are taken into memory.
	mostWaiting = 1 << 16
)

// feed takes what is to be in memory from the store, but not much at once. It returns when to come back.
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
			return min(again, limit.HireEvery) // more falls due than runs: what is not in memory may stay in the store
		}
		k.read(&k.ahead, feedAtOnce)
		if !k.ahead.done() {
			return 0
		}
	}
	return min(again, time.Duration(k.ahead.until-now.UnixNano())-k.cfg.window/2)
}

// read takes up to most tasks from the store into memory. It reports false if it stops before that, because it will be
// known in a moment whether a kind is quick.
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

// takeIn takes a task that has been read into memory, unless it does not belong there. What is to be changed in
// the store it leaves in the group. The reading had come to before. It reports false if it is to be called again, because
// it will be known in a moment whether the kind is quick.
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

// readCut takes overdue tasks of a kind into memory that were left in the store, from its cut to where the feed has
// come. It looks at up to most tasks of any kind.
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

// readOn takes tasks into memory that were left in the store for the limit of their kind. It looks at up to
// feedAtOnce tasks of any kind.
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

// skip returns what becomes of an overdue task before its run, if its kind passes over what was due by then.
func (k *keeper) skip(rec *task.Record, kind *kind) *task.Record {
	if !rec.Skippable() {
		return rec
	}
	if to := kind.policy.PassesOver(rec.Due, k.now(), rec.Due <= max(k.since, kind.since.Load())); to != engine.None {
		return rec.Skipped(to)
	}
	return rec
}

// setAside counts a task that is due, has been read and is not in memory, because its kind has no handler. That
// its kind is paused is only noted.
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

// reportUnhandled reports the kinds that have turned out to have no handler, each once.
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

// readAgain has what was set aside read again, if any of it is of the kind, which has a handler now, or is
// paused or resumed.
func (k *keeper) readAgain(kind string) {
	if k.unhandled[kind] == 0 && !k.waiting[kind] {
		return
	}
	// What is due now has been read, unless the feed ahead is behind.
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
