// SPDX-License-Identifier: MIT

package timewheel

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// A loop is the event loop and all that it owns: the layout, and the links of the entries in it. Callers send
// it entries, never keys and never orders: an entry that arrives means "look at it again". The loop compares
// its place with its state and due time and makes the place fit. So it does not matter in which order two of
// them arrive, nor if the cause has passed meanwhile.
//
// # Who owns the layout
//
// While the loop runs, the loop. Before and after, whoever holds mu: a caller then does the loop's work on
// the spot. The functions whose name ends in Loop are for the owner.
//
// # When the loop wakes up
//
// To wake a goroutine costs more than an add. So the loop is not woken by every entry. It sleeps until the
// next tick at which there is something to do, or until it is called, and publishes an alarm: the instant at
// which it will look into its mailboxes by itself. Callers call it if their entry is due before that, or if
// the mailbox is half full.
//
//	at rest   nothing arrived since the last look; the alarm is never, so the next entry calls the loop
//	busy      entries arrive; the alarm is one poll away, and only what is due sooner calls the loop
//
// Every look is made after the alarm was set: what arrives before it is seen by the look, what arrives after
// it sees the alarm.
type loop struct {
	clock     clock.Clock
	ticks     ticks
	slots     uint64
	blockBits uint8 // a block is 1<<blockBits slots, but for the last
	poll      time.Duration
	dispatch  *dispatcher

	mail     mail
	requests chan func()   // to be done by the owner
	calls    chan struct{} // wakes the loop up; one is enough for many callers
	quit     chan struct{}
	ended    chan struct{}
	alarm    atomic.Uint64
	running  atomic.Bool

	mu sync.Mutex // makes its holder the owner, while the loop does not run

	layout layout
	counts []uint32 // per block of slots, the entries that wait in the layout, for a Dial
	passed uint64   // the last tick that was passed
	due    dueList  // what was taken out to be handed over; empty between two ticks
	read   []*entry // what was taken from a mailbox; empty between two looks
}

const (
	// A busy loop looks into its mailboxes once a tick, but not more often than its timer is good for, nor so
	// seldom that the memory of removed tasks is kept for long.
	minPoll = time.Millisecond
	maxPoll = 10 * time.Millisecond
)

func newLoop(tick time.Duration, slots int, kind Layout, c clock.Clock, m mail) *loop {
	l := &loop{
		clock:    c,
		ticks:    ticks(tick),
		slots:    uint64(slots),
		poll:     min(max(tick, minPoll), maxPoll),
		mail:     m,
		requests: make(chan func()),
		calls:    make(chan struct{}, 1),
		quit:     make(chan struct{}),
		ended:    make(chan struct{}),
	}
	l.alarm.Store(never)
	l.passed = l.ticks.down(l.now()) - 1
	l.layout = newLayout(kind, slots, l.passed)
	for (slots-1)>>l.blockBits >= maxBlocks {
		l.blockBits++
	}
	l.counts = make([]uint32, (slots-1)>>l.blockBits+1)
	return l
}

// now returns the present. It starts one tick after the clock's origin, so that there is a tick before the
// first.
func (l *loop) now() uint64 { return later(l.clock.Now(), time.Duration(l.ticks)) }

// time returns the instant as a time of day.
func (l *loop) time(instant uint64) time.Time { return l.clock.Time(instant - uint64(l.ticks)) }

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
		alarm, now := uint64(never), l.now()
		if busy {
			alarm = later(now, l.poll)
		}
		l.alarm.Store(alarm)
		came := l.lookLoop(now)
		l.advanceLoop(now)
		if came != busy {
			busy = came
			continue
		}
		if at := min(alarm, l.ticks.instant(l.layout.next())); at == never {
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

// end leaves the layout to the callers. What they send before they see that the loop is gone, it has seen to.
func (l *loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running.Store(false)
	l.alarm.Store(never)
	l.lookLoop(l.now())
	close(l.ended)
}

// posted has the owner look at what was posted; by the instant by, if that matters.
func (l *loop) posted(r receipt, by uint64) {
	if alarm := l.alarm.Load(); by < alarm || r.n >= mailCap/2 || !l.running.Load() {
		l.call(alarm)
	}
	if r.n >= mailCap {
		r.box.awaitRoom()
	}
}

// call wakes the loop up, if it still has the given alarm set: if not, or if that is 0, it has looked since
// or is about to. If there is no loop it does the work itself; one that is there after the call looks once
// more before it ends.
func (l *loop) call(alarm uint64) {
	if alarm != 0 && l.running.Load() && l.alarm.CompareAndSwap(alarm, 0) {
		select {
		case l.calls <- struct{}{}:
		default:
		}
	}
	if l.running.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running.Load() {
		l.lookLoop(l.now())
	}
}

// do has the owner do f, after it has looked at all that was posted before.
func (l *loop) do(f func()) {
	finished := make(chan struct{})
	g := func() {
		l.lookLoop(l.now())
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

// lookLoop looks at what was posted, and reports whether there was anything. Each mailbox is emptied once, so
// that callers cannot keep the loop from its ticks.
func (l *loop) lookLoop(now uint64) (came bool) {
	for _, b := range l.mail {
		all := b.take(l.read)
		for _, e := range all {
			l.settleLoop(e, now)
		}
		came = came || len(all) > 0
		clear(all)
		l.read = all[:0]
	}
	return came
}

// settleLoop makes the place of the entry fit its state and due time. An entry that is due later than its
// place says stays there: the visit will find that out, and a deadline that is pushed back again and again
// costs one move.
func (l *loop) settleLoop(e *entry, now uint64) {
	switch e.state.Load() {
	case scheduled, moving:
		at := l.ticks.up(e.due.Load())
		if e.linked() {
			if e.at <= at {
				return
			}
			l.unlinkLoop(e)
		}
		if at <= l.passed && l.running.Load() {
			l.due.add(e)
			l.fireLoop(now, now)
			return
		}
		l.placeLoop(e, max(at, l.passed+1))
	case removed:
		if e.linked() {
			l.unlinkLoop(e)
		}
	}
}

// placeLoop has an entry that is in no slot wait for the tick, which has not passed.
func (l *loop) placeLoop(e *entry, at uint64) {
	e.at = at
	*l.countLoop(at)++
	l.layout.place(e)
}

// countLoop is the number of entries that wait in the slot of the tick, or in its block.
func (l *loop) countLoop(tick uint64) *uint32 { return &l.counts[tick%l.slots>>l.blockBits] }

func (l *loop) unlinkLoop(e *entry) {
	*l.countLoop(e.at)--
	l.layout.unlink(e)
}

// drainLoop takes everything out of the layout and the backlog, and calls take for each entry.
func (l *loop) drainLoop(take func(e *entry)) {
	l.layout.drain(take)
	clear(l.counts)
	for _, e := range l.dispatch.entries() {
		take(e)
	}
}

// placeDueLoop has an entry that is in no slot, and due after the present, wait for its due time.
func (l *loop) placeDueLoop(e *entry) { l.placeLoop(e, l.ticks.up(e.due.Load())) }

// advanceLoop passes every tick that has come, and hands over what was due at it. How many those are
// is told by the clock: a loop that was held up finds more.
func (l *loop) advanceLoop(now uint64) {
	l.passed = l.ticks.down(now)
	for tick := l.layout.next(); tick <= l.passed; tick = l.layout.next() {
		entries := l.layout.visit()
		l.due.take(&entries, tick)
		*l.countLoop(tick) -= uint32(len(l.due.entries))
		if len(l.due.entries) > 0 {
			l.fireLoop(l.ticks.instant(tick), now)
		}
	}
	l.layout.pass(l.passed)
}

// fireLoop hands over what was taken out and is due by the given instant.
func (l *loop) fireLoop(by, now uint64) {
	l.dispatch.fireLoop(l.due.entries, by, now)
	l.due.reset()
}
