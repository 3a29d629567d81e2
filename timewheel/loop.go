// SPDX-License-Identifier: MIT

package timewheel

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
	"github.com/seed581295f1/timewheel/internal/crew"
)

// A loop is the event loop together with the data that it owns: the layout, and the places of the entries in it.
// Callers post entries to the loop, never keys or commands: an entry in an inbox means "look at this entry again". The
// loop compares the entry's place with its state and due time, and moves the entry if they do not match. So it does not
// matter in which order entries arrive, or whether the reason for a post still applies.
//
// # Ownership of the layout
//
// While the loop is running, it owns the layout. Before and after that, the holder of mu owns it, and callers do the
// loop's work themselves. Only the owner may call functions whose names end in Loop.
//
// # When the loop wakes up
//
// Waking a goroutine costs more than an add, so not every entry wakes the loop. The loop sleeps until the next tick
// with work, or until it is called. It publishes an alarm: the instant at which it will look into its inboxes without
// being called. A caller wakes the loop only if its entry is due before the alarm.
//
//	at rest   no entry has arrived since the last look; the alarm is never, so the next entry wakes the loop
//	busy      entries are arriving; the alarm is one poll away, and only entries due sooner wake the loop
//
// After setting an alarm the loop looks once more. This look sees every entry that arrived before it, and the caller of
// any later entry sees the alarm.
type loop struct {
	clock    clock.Clock
	ticks    ticks
	index    *index
	dates    *dates
	dispatch *dispatcher

	inboxes  inboxes
	requests chan func()   // functions for the loop to call
	calls    chan struct{} // wakes the loop; one value serves many callers
	quit     chan struct{}
	ended    chan struct{}
	alarm    atomic.Uint64 // 0 if the loop has been called since the alarm was set
	running  atomic.Bool

	mu sync.Mutex // makes its holder the owner of the layout while the loop is not running

	layout *layout
	census census
	trim   trimmer
	again  []*entry // entries returned by the dispatcher; empty between ticks
	read   []*entry // entries taken from an inbox; empty between looks
}

const (
	// poll is the interval at which a busy loop looks into its inboxes, and the time that a submitter waits after a
	// refusal.
	poll = time.Millisecond

	// noHurry is the instant to pass with a post that is not urgent: later than any alarm of a busy loop, and before
	// the alarm of a loop at rest.
	noHurry = never - 1
)

func newLoop(tick time.Duration, slots int, layout Layout, c clock.Clock, x *index, dates *dates, d *dispatcher) *loop {
	l := &loop{
		clock:    c,
		ticks:    ticks(tick),
		index:    x,
		dates:    dates,
		dispatch: d,
		requests: make(chan func()),
		calls:    make(chan struct{}, 1),
		quit:     make(chan struct{}),
		ended:    make(chan struct{}),
		census:   newCensus(slots),
		trim:     trimmer{at: never, came: uncounted}, // tasks may have come before Start
	}
	l.alarm.Store(never)
	l.layout = newLayout(layout, slots, l.ticks.down(l.now())-1)
	return l
}

// now returns the current instant.
func (l *loop) now() uint64 { return l.ticks.now(l.clock) }

// start makes the loop the owner of the layout and starts it.
func (l *loop) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running.Store(true)
	go l.run()
}

// stop ends the loop, which must have been started, and waits until it has ended.
func (l *loop) stop() {
	close(l.quit)
	<-l.ended
}

func (l *loop) run() {
	timer := l.clock.NewTimer()
	defer timer.Stop()
	for busy := false; ; {
		now := l.now()
		alarm := l.setAlarm(busy, now)
		came := l.lookLoop(now)
		if (came > 0) != busy {
			busy = came > 0
			alarm = l.setAlarm(busy, now)
			came += l.lookLoop(now)
		}
		trim := l.trim.look(now, came, l.pending, l.index)
		watch := l.watchLoop(now) // after the looks, because entries found by them may have a date
		l.advanceLoop(now)
		if at := min(alarm, trim, watch, l.ticks.instant(l.layout.next())); at == never {
			timer.Stop()
		} else {
			timer.Reset(until(at, l.now()))
		}
		select {
		case <-timer.C():
		case <-l.calls:
		case f := <-l.requests:
			f()
		case <-l.quit:
			l.end()
			return
		}
	}
}

// setAlarm publishes and returns the instant at which the loop will check its inboxes even if it is not woken.
func (l *loop) setAlarm(busy bool, now uint64) uint64 {
	alarm := uint64(never)
	if busy {
		alarm = later(now, poll)
	}
	l.alarm.Store(alarm)
	return alarm
}

// watchLoop makes entries with a date follow the wall clock, and returns when it must be called again.
func (l *loop) watchLoop(now uint64) (next uint64) {
	moved, next := l.dates.look(now)
	for _, e := range moved {
		l.settleLoop(e, now)
	}
	return next
}

// end leaves the layout to the callers. Before callers can see that the loop has ended, it handles everything they have
// posted.
func (l *loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running.Store(false)
	l.lookLoop(l.now())
	close(l.ended)
}

// post makes the owner look at the entry no later than the given instant.
func (l *loop) post(e *entry, why kind, by uint64) {
	l.inboxes.of(e).put(e, why)
	if l.running.Load() { // the loop will look once more before it ends
		if alarm := l.alarm.Load(); by < alarm && alarm != 0 && l.alarm.CompareAndSwap(alarm, 0) {
			select {
			case l.calls <- struct{}{}:
			default:
			}
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running.Load() {
		l.lookLoop(l.now())
	}
}

// do makes the owner call f after it has handled all earlier posts and, if the loop is running, all ticks that have
// come.
func (l *loop) do(f func()) {
	finished := make(chan struct{})
	g := func() {
		now := l.now()
		l.lookLoop(now)
		if l.running.Load() {
			l.advanceLoop(now)
		}
		f()
		close(finished)
	}
	l.mu.Lock()
	if !l.running.Load() {
		g()
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	select {
	case l.requests <- g:
		<-finished
	case <-l.ended:
		l.do(f)
	}
}

// lookLoop handles the posted entries, and returns how many there were. It empties each inbox once, so that callers
// cannot keep the loop from its ticks.
func (l *loop) lookLoop(now uint64) (came int) {
	for i := range l.inboxes {
		all := l.inboxes[i].empty(l.read)
		for _, e := range all {
			l.settleLoop(e, now)
		}
		came += len(all)
		clear(all)
		l.read = all[:0]
		if cap(all) > maxVisit/len(l.inboxes) {
			l.read = nil // only a burst needs a slice of this size
		}
	}
	return came
}

// settleLoop moves the entry if its place does not match its state and due time. An entry that is due later than the
// tick of its place stays there until that tick, so a deadline that is postponed many times costs only one move.
func (l *loop) settleLoop(e *entry, now uint64) {
	switch e.load() {
	case scheduled, moving:
		at := l.ticks.up(e.due.Load())
		if e.placed() {
			if e.at <= at {
				return
			}
			l.unlinkLoop(e)
		}
		if at <= l.layout.now && l.running.Load() {
			l.fireLoop([]*entry{e}, now, now)
			return
		}
		l.placeLoop(e, at)
	case removed:
		if e.placed() {
			l.unlinkLoop(e)
		}
	}
}

// placeLoop places an entry that is in no slot. It places the entry at the given tick, or at the next tick if the given
// one has passed.
func (l *loop) placeLoop(e *entry, tick uint64) {
	e.at = max(tick, l.layout.now+1)
	l.census.add(e.at, 1)
	l.layout.place(e)
}

func (l *loop) unlinkLoop(e *entry) {
	l.census.add(e.at, -1)
	l.layout.unlink(e)
}

// advanceLoop handles every tick that has come, and dispatches the entries due at that tick. The clock determines the
// number of ticks, so a loop that was delayed handles several.
func (l *loop) advanceLoop(now uint64) {
	upTo := l.ticks.down(now)
	for due, tick, more := l.layout.advance(upTo); more; due, tick, more = l.layout.advance(upTo) {
		l.census.add(tick, -len(due))
		for len(due) > 0 {
			n := min(len(due), crew.BlockSize) // few at a time, so that no worker waits long for the dispatcher's lock
			for _, e := range due[:n] {
				if e.place = 0; e.at != tick {
					panic("timewheel: entry in the wrong slot") // a bug: the entry would run at the wrong time
				}
			}
			l.fireLoop(due[:n], l.ticks.instant(tick), now)
			clear(due[:n])
			due = due[n:]
		}
	}
}

// fireLoop dispatches the entries that are due by the given instant. It places an entry again if the entry has a
// further run, was moved, or is being moved. None of the entries may be in a slot.
func (l *loop) fireLoop(due []*entry, by, now uint64) {
	l.again = l.dispatch.fire(due, by, now, l.again)
	for _, e := range l.again {
		// A moving entry may still have its old due time. In that case the loop looks at it again at the next tick.
		l.dates.passed(e)
		l.placeLoop(e, l.ticks.up(e.due.Load()))
	}
	clear(l.again)
	l.again = l.again[:0]
}

// stats returns the statistics of the wheel without its paused tasks.
func (l *loop) stats() Stats {
	s := l.dispatch.stats()
	s.Removed = l.inboxes.count(ended)
	s.Added = l.inboxes.count(added)                      // read last: finished and removed tasks were added earlier
	s.Pending = max(int(s.Added-s.Finished-s.Removed), 0) // but a task may be removed while its add is being counted
	return s
}

func (l *loop) pending() int { return l.stats().Pending }

// A census counts the entries in the layout by slot of the wheel, or by block of slots if the wheel has very many
// slots. The loop owns it.
type census struct {
	slots uint64
	shift uint8    // a block is 1<<shift slots; the last block may be smaller
	tasks []uint32 // number of entries, by block
}

func newCensus(slots int) census {
	c := census{slots: uint64(slots)}
	for (slots-1)>>c.shift >= 2*maxSectors {
		c.shift++
	}
	c.tasks = make([]uint32, (slots-1)>>c.shift+1)
	return c
}

// add adds n to the count of entries that wait for the tick.
func (c *census) add(tick uint64, n int) { c.tasks[tick%c.slots>>c.shift] += uint32(n) }

// sector returns the blocks from first up to end, exclusive, as one sector.
func (c *census) sector(first, end int) (s Sector) {
	s.Slots = min(end<<c.shift, int(c.slots)) - first<<c.shift
	for _, n := range c.tasks[first:end] {
		s.Tasks += int(n)
	}
	return s
}
