// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Drift returns the differences between a keeper's counters and the tasks in memory and in the store. Nothing may
// happen while it runs.
func Drift(s *Scheduler) []string {
	k := s.below.(*keeper)
	d := drift{k: k}
	if err := k.ask(context.Background(), op{do: func(*group) error { return d.find() }}); err != nil {
		d.wrong("%v", err)
	}
	return d.found
}

// InMemory returns how many tasks a keeper has in memory, and roughly how many bytes they take.
func InMemory(s *Scheduler) (n, size int) {
	k := s.below.(*keeper)
	_ = k.ask(context.Background(), op{do: func(*group) error {
		for _, l := range k.live {
			n, size = n+1, size+l.Rec.Size()
		}
		return nil
	}})
	return n, size
}

type drift struct {
	k     *keeper
	found []string
}

func (d *drift) wrong(format string, args ...any) {
	d.found = append(d.found, fmt.Sprintf(format, args...))
}

// same records a wrong count.
func (d *drift) same(what string, counted, is int) {
	if counted != is {
		d.wrong("%s: %d are counted, and %d are there", what, counted, is)
	}
}

func (d *drift) find() error {
	d.memory()
	d.k.running.mu.Lock()
	defer d.k.running.mu.Unlock()
	for key, l := range d.k.running.of {
		if d.k.live[key] != l {
			d.wrong("%s is running, and is not live", key)
		}
	}
	return d.store()
}

// memory checks the backlog and the limiters.
func (d *drift) memory() {
	k := d.k
	var waiting []*limit.Task
	var limiters []*limit.Limiter
	for key, l := range k.live {
		if !l.Waits() {
			continue
		}
		waiting = append(waiting, &l.Task)
		if l.overdue && !k.backlog.Waits(&l.Task) {
			d.wrong("%s is overdue, and waits nowhere", key)
		}
	}
	for _, of := range k.kinds.allLimited() {
		limiters = append(limiters, of.Limiter)
		of.Limiter.Locked(func() {
			shared := 0
			for _, of := range of.shares.of {
				shared += of.held.Len()
			}
			d.same("shares of "+of.name, shared, of.shares.Len())
		})
	}
	d.found = append(d.found, k.backlog.Check(waiting, limiters)...)
}

// store checks where each task in the store is kept.
func (d *drift) store() error {
	k := d.k
	unhandled, n, live := make(map[string]int), 0, 0
	for rec, err := range decoded(k.store.Due(engine.Position{Due: engine.None}, task.Never)) {
		if err != nil {
			return err
		}
		if k.prints != nil && k.prints.free(rec.Key) {
			d.wrong("%s has no fingerprint", rec.Key)
		}
		l := k.live[rec.Key]
		switch {
		case l != nil:
			live++
			if l.Rec.Token() != rec.Token() || l.Rec.Due != rec.Due {
				d.wrong("%s is live as %+v, and stored as %+v", rec.Key, l.Rec, rec)
			}
		case !k.passed(rec):
		case k.kinds.of(rec) != nil:
			d.wrong("%s was read, is handled, and is not in memory", rec.Key)
		case k.kinds.pauses().Has(rec.Kind):
			if !k.waiting[rec.Kind] {
				d.wrong("%s is set aside, and would not be read again", rec.Key)
			}
		default:
			unhandled[rec.Kind]++
			n++
		}
	}
	d.same("live", len(k.live), live)
	d.same("unhandled", int(k.count.unhandled.Load()), n)
	for kind, counted := range k.unhandled {
		d.same("unhandled of "+kind, counted, unhandled[kind])
	}
	return nil
}
