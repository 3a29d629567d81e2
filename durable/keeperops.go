// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// runTask runs the task, unless it was removed, replaced or moved at the last moment.
func (k *keeper) runTask(l *live) {
	if !l.state.CompareAndSwap(waits, begun) {
		return
	}
	h := k.handlings.begin(l)
	defer k.handlings.end(h)
	kind := k.kinds.of(l.Rec)
	if kind == nil {
		k.leave(l, false)
		return
	}
	rec := l.Rec
	if rec.Starts > 0 {
		rec = rec.Interrupted(l.Rec.Starts, &kind.policy, k.now())
		if r := k.teller.interrupted(kind, l.Rec, rec, l.Rec.Starts); r.tally.isLast() {
			k.conclude(l, r)
			return
		}
	}
	if l.overdue || rec.Due <= k.overdueUntil() { // it may have waited long, been restored, or slept with the machine
		if next := k.skip(rec, kind); next != rec {
			k.conclude(l, result{next: next})
			return
		}
	}
	if l.overdue {
		if k.counted.Add(1) <= int64(countedStarts+k.cfg.poolSize) && !k.countStart(l) {
			return
		}
	}
	if rec.IsExpired(k.now(), k.cfg.tick) { // here, because counting the start may have taken long
		k.conclude(l, k.teller.expired(kind, rec))
		return
	}
	if !k.running.add(l) {
		return // a verb for the same task was committed at that moment
	}
	kind.began(l)
	began := time.Now()
	k.count.start(l.Rec, k.cfg.age(began))
	if rec.Due <= began.UnixNano()-int64(overdueAfter) {
		kind.overdue.note(l.Rec, began)
	}
	kind.attempt(h.context(k.ctx, began), began, kind.toRun(rec, 0, began.UnixNano(), &h.ends), k.teller, func(o task.Outcome, now int64) *task.Record {
		return rec.After(o, &kind.policy, now, rand.Float64())
	}, func(_ task.Outcome, r result) { k.conclude(l, r) })
}

// leave reports to the keeper that the kind of the task has no handler or is paused. The keeper sets the task aside, or
// runs it if that has changed. If the task's start was counted, leave undoes the count.
func (k *keeper) leave(l *live, counted bool) {
	_ = k.post(op{do: func(g *group) error {
		key := l.Rec.Key
		if k.live[key] != l || g.touched(key) != nil {
			return nil // it was removed, replaced or moved meanwhile
		}
		if counted {
			g.mark(l.Rec, l.Rec)
		}
		if k.kinds.of(l.Rec) != nil {
			k.place(key, l.Rec)
			return nil
		}
		delete(k.live, key)
		if k.passed(l.Rec) { // otherwise the overdue feed reads it again
			k.setAside(l.Rec)
		}
		return nil
	}})
}

// countStart stores the start of an overdue run before the run begins, and reports whether the run may still begin. It
// is needed because an overdue run may be one that ended an earlier process. A task that falls due now does not wait
// for this: if its run ends the process, the task is overdue afterwards.
//
// To bound the cost, only the first overdue runs of a process are counted. When a run ends the process, all earlier
// runs have been acknowledged, except runs still in progress and runs in the last commits. So after the next start, the
// run that ended the process is among the first.
func (k *keeper) countStart(l *live) bool {
	err := k.ask(k.ctx, op{size: l.Rec.Size(), do: func(g *group) error {
		if k.live[l.Rec.Key] != l || g.touched(l.Rec.Key) != nil {
			return errGone
		}
		next := *l.Rec
		next.Starts++
		g.mark(l.Rec, &next)
		return nil
	}})
	if err == nil && k.kinds.of(l.Rec) == nil { // the kind was paused in the meantime
		k.leave(l, true)
		return false
	}
	return err == nil
}

// countedStarts exceeds the number of overdue runs that can have begun without being stored: half of the backlog, plus
// tasks added in the meantime.
const countedStarts = 1 << 13

// errGone means that the task has been removed, replaced or moved.
var errGone = errors.New("durable: the task is gone")

// conclude sends the keeper the result of a run, without waiting until it is stored. Until then, the task counts as
// running and no other run of it starts.
func (k *keeper) conclude(l *live, r result) {
	err := k.post(op{size: l.Rec.Size(), settled: r.settled, do: func(g *group) error {
		if k.live[l.Rec.Key] != l || g.touched(l.Rec.Key) != nil {
			return errGone
		}
		g.tally.add(r.tally)
		g.put(l.Rec.Key, l.Rec, r.next)
		return nil
	}})
	if err != nil {
		r.settled.call(false)
	}
}

// apply adds the verb's changes to the group, or returns an error if the verb cannot be applied.
func (v *verb) apply(g *group) error {
	switch v.what {
	case toAdd:
		return v.add(g)
	case toSet:
		return v.set(g)
	}
	old, err := g.find(v.key)
	if err != nil {
		return err
	}
	if !v.fits(old) {
		return notFound(v.key)
	}
	if v.what != toRemove {
		if next := v.change(old); next != old {
			g.put(v.key, old, next)
		}
		return nil
	}
	g.tally.removed++
	g.put(v.key, old, nil)
	return nil
}

func (v *verb) add(g *group) error {
	var taken []string
	for _, rec := range v.records {
		old, err := g.find(rec.Key)
		if err != nil {
			return err
		}
		if old != nil || v.twice[rec.Key] {
			taken = append(taken, rec.Key)
		}
	}
	if taken != nil {
		return &DuplicateKeysError{taken}
	}
	v.number(g.k.next(0, uint64(len(v.records))))
	g.putNew(v.records)
	g.tally.added += uint64(len(v.records))
	return nil
}

func (v *verb) set(g *group) error {
	rec := v.records[0]
	old, err := g.find(rec.Key)
	if err != nil {
		return err
	}
	if rec.Deadline != 0 && old != nil {
		rec = rec.Following(old, g.k.running.has(old), g.k.now())
		v.records[0] = rec
	}
	var before uint64
	if old != nil {
		g.tally.removed++
		before = old.Generation
	}
	g.tally.added++
	v.number(g.k.next(before, 1))
	g.put(rec.Key, old, rec)
	return nil
}
