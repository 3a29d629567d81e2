// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// WithClock has the wheel tell the time from c.
func WithClock(c clock.Clock) Option {
	return func(cfg *config) error {
		cfg.clock = c
		return nil
	}
}

// A restless clock moves on between its first two readings, as a real one does, by which a wheel decides that
// each shard of the index is to have a mailbox of its own.
type restless struct {
	clock.Clock
	readings atomic.Int64
}

func (c *restless) Now() uint64 {
	if c.readings.Add(1) == 2 {
		return c.Clock.Now() + 1
	}
	return c.Clock.Now()
}

// Check returns what is wrong with the wheel's inner order, or nil. It is to be called at a quiet moment.
func (tw *TimeWheel) Check() (err error) {
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	tw.loop.do(func() {
		l, d := tw.loop, tw.dispatch
		seen := make(map[*entry]bool)
		counts := make([]uint32, len(l.counts))
		tw.loop.layout.(checked).check(fail, func(e *entry, _ int) {
			if seen[e] {
				fail("entry %q is in two slots", e.key)
			}
			seen[e] = true
			counts[e.at%l.slots>>l.blockBits]++
			if e.at <= l.passed {
				fail("entry %q waits for tick %d, and %d has passed", e.key, e.at, l.passed)
			}
			if at := max(l.ticks.up(e.due.Load()), l.passed+1); e.at > at {
				fail("entry %q is placed at tick %d and due at %d", e.key, e.at, at)
			}
			if s := e.state.Load(); s != scheduled && s != waiting {
				fail("entry %q is in a slot in state %d", e.key, s)
			}
		})
		if !slices.Equal(counts, l.counts) {
			fail("the blocks have %d entries, and the loop counts %d", counts, l.counts)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		n := 0
		for e := range d.backlog.all() {
			n++
			if e.state.Load() != waiting || d.backlog.node(e.node).e != e {
				fail("entry %q is in the backlog in state %d", e.key, e.state.Load())
			}
			if !e.last() && !seen[e] {
				fail("entry %q waits and repeats, and is in no slot", e.key)
			}
			if e.last() && seen[e] {
				fail("entry %q waits for its last run and is in a slot", e.key)
			}
			seen[e] = true
		}
		if n != d.backlog.length {
			fail("the backlog has %d entries and says %d", n, d.backlog.length)
		}
		if len(seen) != tw.Len() {
			fail("%d entries are in the wheel, and %d are pending", len(seen), tw.Len())
		}
		if n := len(l.due.entries) + len(l.due.other); n != 0 {
			fail("%d due entries were left behind", n)
		}
		for _, e := range tw.index.entries() {
			if !e.live() {
				fail("entry %q is dead and in the index", e.key)
			} else if !seen[e] {
				fail("entry %q is live and nowhere in the wheel", e.key)
			}
		}
	})
	return err
}

// A checked layout is one that can be looked through: check walks all lists and tells fail what does not fit,
// and visit every entry and the number of its level.
type checked interface {
	layout
	check(fail func(format string, args ...any), visit func(e *entry, level int))
}

func count(l list) (n int) {
	for range l.all() {
		n++
	}
	return n
}

func (r *ring) check(fail func(format string, args ...any), visit func(e *entry, level int)) {
	n := uint64(len(r.slots))
	least := uint64(never)
	for i := range r.slots {
		s := &r.slots[i]
		for l := s.levels; l != nil; l = l.up {
			if l.up != nil && l.up.shift <= l.shift {
				fail("slot %d: level %d is above level %d", i, l.up.shift, l.shift)
			}
			if l.occupied == 0 {
				fail("slot %d: level %d is empty", i, l.shift)
			}
			for d := range l.lists {
				head := l.lists[d].head
				if n := uint32(count(l.lists[d])); n != l.lengths[d] {
					fail("slot %d, level %d, list %d has %d entries, and says %d", i, l.shift, d, n, l.lengths[d])
				}
				if (head != nil) != (l.occupied&(1<<d) != 0) {
					fail("slot %d, level %d: bit %d is wrong", i, l.shift, d)
				}
				for e := range l.lists[d].all() {
					if e.next.prev != e {
						fail("slot %d: broken ring at %q", i, e.key)
					}
					if int(e.at%n) != i || s.shiftOf(e.at/n) != l.shift || digit(e.at/n, l.shift) != uint64(d) {
						fail("slot %d, level %d, list %d has %q, at %d", i, l.shift, d, e.key, e.at)
					}
					if e.at < r.visits[0][i] {
						fail("slot %d is visited at %d, too late for %q at %d", i, r.visits[0][i], e.key, e.at)
					}
					visit(e, int(l.shift)/digitBits)
				}
			}
		}
		least = min(least, r.visits[0][i])
	}
	if least != r.visits.least() {
		fail("the next visit is %d, not %d", least, r.visits.least())
	}
	if least <= r.now {
		fail("the next visit %d is not after %d", least, r.now)
	}
}

func (h *hierarchy) check(fail func(format string, args ...any), visit func(e *entry, level int)) {
	for i, list := range h.levels[0].slots {
		if n, says := count(list), int(h.lengths[i]); says > n || (says == 0) != (n == 0) {
			fail("level 0, slot %d has %d entries, and says %d", i, n, says)
		}
	}
	unit := uint64(1)
	for k := range h.levels {
		l := &h.levels[k]
		if l.unit != unit {
			fail("level %d has a unit of %d ticks, not %d", k, l.unit, unit)
		}
		unit *= h.slots
		least := uint64(never)
		for i := range l.slots {
			head, coming := l.slots[i].head, l.visits[0][i]
			if (head == nil) != (coming == never) || head != nil && (coming <= h.now || coming%l.unit != 0) {
				fail("level %d, slot %d: the next visit is at %d, now is %d", k, i, coming, h.now)
			}
			least = min(least, coming)
			for e := range l.slots[i].all() {
				if e.next.prev != e {
					fail("level %d, slot %d: broken ring at %q", k, i, e.key)
				}
				if number := e.at / l.unit; int(number%h.slots) != i || number*l.unit != coming {
					fail("level %d, slot %d, visited at %d, has %q at %d", k, i, coming, e.key, e.at)
				}
				visit(e, k)
			}
		}
		if least != l.visits.least() {
			fail("level %d: the next visit is %d, not %d", k, least, l.visits.least())
		}
	}
}
