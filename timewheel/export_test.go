// SPDX-License-Identifier: MIT

package timewheel

import (
	"fmt"
	"slices"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// WithClock makes the wheel read the time from c.
func WithClock(c clock.Clock) Option {
	return func(cfg *config) error {
		cfg.clock = c
		return nil
	}
}

// Check verifies the wheel's internal structure and returns the first error, or nil. Call it when the wheel is quiet.
func (tw *TimeWheel) Check() (err error) {
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	tw.loop.do(func() {
		l, d := tw.loop, tw.dispatch
		seen := make(map[*entry]bool)
		counted := newCensus(int(l.census.slots))
		l.layout.check(fail, func(e *entry, _ int) {
			if seen[e] {
				fail("entry %q is in two slots", e.key)
			}
			seen[e] = true
			counted.add(e.at, 1)
			if at := max(l.ticks.up(e.due.Load()), l.layout.now+1); e.at > at {
				fail("entry %q is placed at tick %d and due at %d", e.key, e.at, at)
			}
			if s := e.load(); s != scheduled && s != waiting {
				fail("entry %q is in a slot in state %d", e.key, s)
			}
		})
		if !slices.Equal(counted.tasks, l.census.tasks) {
			fail("the sectors have %d entries, and the loop counts %d", counted.tasks, l.census.tasks)
		}
		d.mu.Lock()
		for r := range d.queue.All {
			e := r.e
			if _, ok := d.queue.Find(e.state.Load()>>stateBits, func(o dueRun) bool { return o == r }); !ok || e.load() != waiting {
				fail("entry %q is in the queue in state %d, and is found there: %v", e.key, e.load(), ok)
			}
			if repeats := e.times.Load() != 0; repeats != seen[e] || r.last() == repeats {
				fail("entry %q waits and repeats: %v, and is in a slot: %v", e.key, repeats, seen[e])
			}
			seen[e] = true
		}
		d.mu.Unlock()
		for _, room := range [][]*entry{l.layout.few[:cap(l.layout.few)], l.read[:cap(l.read)], l.again[:cap(l.again)]} {
			if slices.ContainsFunc(room, func(e *entry) bool { return e != nil }) {
				fail("an entry is kept from the collector")
			}
		}
		if len(l.again)+len(l.read) != 0 {
			fail("%d entries were left behind", len(l.again)+len(l.read))
		}
		n := 0
		for _, e := range tw.index.entries() {
			if e.load() == paused {
				n++
			} else if e.live() && !seen[e] {
				fail("entry %q is live and nowhere in the wheel", e.key)
			}
		}
		if s := tw.Stats(); s.Paused != n || s.Pending != len(seen)+n {
			fail("%d entries are in the wheel and %d paused, and the accounts are %+v", len(seen), n, s)
		}
		if x := tw.index; x.max > 0 && int(x.count.Load()) != len(seen)+n {
			fail("%d entries are in the wheel, %d paused, and %d were admitted", len(seen), n, x.count.Load())
		}
		if n := tw.loop.dates.count.Load(); n != int64(len(tw.loop.dates.all)) {
			fail("there are %d dates, and %d are counted", len(tw.loop.dates.all), n)
		}
		for e := range tw.loop.dates.all {
			if s := e.load(); s == removed || s == done && tw.Stats().Running == 0 {
				fail("the date of %q is kept, which is in state %d", e.key, s)
			}
		}
	})
	return err
}

// check walks all lists. It calls fail for every inconsistency, and visit with every entry and its level.
func (l *layout) check(fail func(format string, args ...any), visit func(e *entry, level int)) {
	n := uint64(len(l.slots))
	for i := range l.slots {
		earliest := uint64(never)
		unit := uint64(1)
		coming := l.coming(uint64(i))
		for k, lv := range l.slots[i].levels {
			least := uint64(never)
			for d := 0; lv != nil && d < len(lv.lists); d++ {
				at := lv.visits[0][d]
				least = min(least, at)
				if (len(lv.lists[d]) == 0) != (at == never) {
					fail("slot %d, level %d, list %d has %d entries, and is visited at %d", i, k, d, len(lv.lists[d]), at)
				}
				for j, e := range lv.lists[d] {
					number := e.at / n
					if int(e.at%n) != i || number/unit%(2*l.width) != uint64(d) {
						fail("slot %d, level %d, list %d has %q, at %d", i, k, d, e.key, e.at)
					}
					if want := number/unit*unit - uint64(min(k, 1))*unit; at != want {
						fail("slot %d, level %d, list %d with %d is visited at %d, want %d", i, k, d, number, at, want)
					}
					if int(e.place) != j+1 {
						fail("slot %d, level %d: number %d of list %d has place %d", i, k, j, d, e.place)
					}
					if e.at <= l.now {
						fail("entry %q waits for tick %d, and %d has passed", e.key, e.at, l.now)
					}
					earliest = min(earliest, e.at)
					visit(e, k)
				}
				if room := lv.lists[d][len(lv.lists[d]):cap(lv.lists[d])]; slices.ContainsFunc(room, func(e *entry) bool { return e != nil }) {
					fail("slot %d, level %d, list %d keeps an entry that is gone", i, k, d)
				}
			}
			if lv != nil && (least == never || least != lv.visits.least()) {
				fail("slot %d, level %d: the first list is at %d, not %d", i, k, least, lv.visits.least())
			}
			if lv != nil && k > 0 && least+unit < coming {
				fail("slot %d, level %d: a list that begins at %d is there at %d", i, k, least+unit, coming)
			}
			unit *= l.width
		}
		if at := l.visits[0][i]; at > earliest || (earliest == never) != (at == never) || at < l.now || at == l.now && uint64(i) == l.now%n {
			fail("slot %d is visited at %d, now is %d, and its first entry is due at %d", i, at, l.now, earliest)
		}
	}
	if slices.Min(l.visits[0]) != l.next() {
		fail("the next visit is %d, not %d", slices.Min(l.visits[0]), l.next())
	}
}
