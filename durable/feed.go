// SPDX-License-Identifier: MIT

package durable

import (
	"strings"
	"time"
)

// A feed takes the tasks of one stretch of time from the store into the wheel, in due order. What lies up to
// its position is in the wheel, and what is added there goes to the wheel at once; what lies beyond will be
// read. There are two, so that what is overdue at the start does not keep back what falls due afterwards:
//
//	overdue   up to the start, at a bounded rate
//	ahead     from the start to a window before what is due
type feed struct {
	at    Position
	until int64 // how far it may go; not before at
}

// end is the position after all that is due by then.
func end(due int64) Position { return Position{due, beyondKeys} }

// beyondKeys is longer, and so greater, than any key.
var beyondKeys = strings.Repeat("\xff", MaxKey+1)

// done reports whether there is nothing to read until the feed may go further.
func (f *feed) done() bool { return f.at == end(f.until) }

// passed reports whether the position lies in the stretch that has been read.
func (f *feed) passed(p Position) bool {
	return p.Due < f.at.Due || p.Due == f.at.Due && p.Key <= f.at.Key
}

const (
	// feedAtOnce is how many tasks are taken from the store in one go, so that the verbs do not wait for long:
	// a millisecond or two.
	feedAtOnce = 512

	// mostWaiting is how many due tasks may wait for a worker before no more are taken into memory.
	mostWaiting = 1 << 16

	// catchUpEvery is how often overdue tasks are started.
	catchUpEvery = 10 * time.Millisecond
)

// feed takes what is to be in the wheel from the store, but not much at once. It returns when to come back.
func (k *keeper) feed() time.Duration {
	if !k.started || k.Err() != nil {
		return forever
	}
	now := time.Now()
	again := forever
	if k.overdue.until != None && !k.overdue.done() {
		again = k.readOverdue(now)
	}
	if wall := now.UnixNano(); later(wall, k.cfg.window/2) >= k.ahead.until {
		k.ahead.until = max(k.ahead.until, later(wall, k.cfg.window))
	}
	if !k.ahead.done() {
		if k.wheel.Stats().Waiting >= mostWaiting {
			return catchUpEvery // more falls due than runs: what is not in memory yet may as well stay where it is
		}
		k.read(&k.ahead, feedAtOnce)
		if !k.ahead.done() {
			return 0
		}
	}
	return min(again, time.Duration(k.ahead.until-now.UnixNano())-k.cfg.window/2)
}

// readOverdue takes as many overdue tasks from the store as the rate allows by now. It returns when to come
// back.
func (k *keeper) readOverdue(now time.Time) time.Duration {
	rate := k.cfg.catchUp
	each := time.Second / time.Duration(rate)
	if now.Sub(k.caughtUp) > time.Second {
		k.caughtUp = now.Add(-time.Second) // a longer pause is not made up for
	}
	n := min(int(now.Sub(k.caughtUp)/each), feedAtOnce)
	if (k.overdueLive+n)/2 > max(rate, k.cfg.poolSize) {
		n = 0 // the handlers are slow, and tasks would pile up in memory
	}
	if n == 0 {
		return max(catchUpEvery, each)
	}
	k.read(&k.overdue, n)
	k.caughtUp = k.caughtUp.Add(time.Duration(n) * each)
	if n == feedAtOnce {
		return 0
	}
	return catchUpEvery
}

// read takes up to most tasks from the store into the wheel.
func (k *keeper) read(f *feed, most int) {
	g := &group{k: k}
	n, whole := 0, true
	for rec, err := range dueRecords(k.store, f.at, f.until) {
		if err != nil {
			_ = k.fail(err) // which logs it
			return
		}
		if n == most {
			whole = false
			break
		}
		n++
		f.at = rec.position()
		if next := k.skip(rec); next != rec {
			g.put(rec.key, rec, next)
			continue
		}
		k.place(rec.key, rec)
		if l := k.live[rec.key]; f == &k.overdue {
			l.overdue = true
			k.overdueLive++
		}
	}
	if whole {
		f.at = end(f.until)
	}
	_ = k.commit(g) // which fails the keeper, if it does
}

// skip returns what becomes of the task as it is read, if its kind does not run what was due before the start.
func (k *keeper) skip(rec *record) *record {
	if rec.due > k.overdue.until || !rec.repeats() || rec.attempts > 0 {
		return rec
	}
	if kind := k.kinds.get(rec.kind); kind == nil || kind.missed != Skip {
		return rec
	}
	next := *rec
	next.grid = rec.after(time.Now().UnixNano())
	next.due = next.grid
	next.missed += uint64((next.grid - rec.grid) / int64(rec.interval))
	return &next
}
