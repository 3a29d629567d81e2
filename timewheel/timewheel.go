// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/pool"
)

// maxSlots bounds the slots of a wheel. An empty one costs 24 bytes, or 4 and 16 a level.
const maxSlots = 1 << 24

// A TimeWheel runs tasks at their due times. Make one with [New] or [NewTimeWheel]; the zero value is of no
// use. All its methods may be called by any goroutine at any time, jobs of the wheel included.
type TimeWheel struct {
	config
	ctx    context.Context // of the runs
	cancel context.CancelFunc

	index    *index
	loop     *loop
	dispatch *dispatcher
	pool     *pool.Pool // nil if the user gave an executor, and
	asker    *asker     // nil if not

	stopped  atomic.Bool  // adds are refused
	timers   atomic.Int64 // live timers, which the index does not know
	admitted atomic.Int64 // live tasks, timers too; kept only if maxPending bounds them, and so is
	leaving  atomic.Int64 // how many tasks are about to end, and may be counted in admitted still

	mu      sync.Mutex // protects all below; makes Start, Stop and Shutdown one after the other
	started bool
	ended   bool
}

// New returns a wheel with the given tick and number of slots. It does not run before [TimeWheel.Start], but
// may be used.
//
// The tick is how exactly runs are timed: a run starts less than one tick after it was due, if the machine
// has time for it. 1 ms to 1 s is usual; a tick below what the machine's timers can do, some 100 µs, only
// costs. The slots bound nothing: a task that is due after tick × slots waits for a further revolution, at
// no cost. 1,024 slots suit nearly everything: an empty slot costs 24 bytes, one that tasks wait in some 900
// ([WithLayout] has another that differs in that).
//
// It is an error if tick is not positive, if slots is not between 1 and 16,777,216, or if an option is wrong;
// the error names the argument and its value.
func New(tick time.Duration, slots int, opts ...Option) (*TimeWheel, error) {
	if tick <= 0 {
		return nil, fmt.Errorf("timewheel: tick %v is not positive", tick)
	}
	if slots < 1 || slots > maxSlots {
		return nil, fmt.Errorf("timewheel: slots %d is not between 1 and %d", slots, maxSlots)
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	earlier := c.clock.Now()
	still := earlier == c.clock.Now() // as a test's clock stands, see mailbox
	tw := &TimeWheel{config: c, index: newIndex(still)}
	tw.loop = newLoop(tick, slots, c.layout, c.clock, tw.index.mail)
	tw.ctx, tw.cancel = context.WithCancel(context.Background())
	tw.dispatch = &dispatcher{tw: tw, loop: tw.loop, idle: make(chan struct{})}
	tw.loop.dispatch = tw.dispatch
	work := tw.dispatch.work
	if c.executor != nil {
		tw.asker = newAsker(c.executor, work, c.clock, c.log)
		tw.dispatch.ask = tw.asker.ask
		return tw, nil
	}
	if tw.pool, err = pool.New(c.poolSize); err != nil {
		return nil, err
	}
	// The pool refuses only when it is closed, and no run begins then.
	tw.dispatch.ask = func() { _ = tw.pool.Submit(work) }
	return tw, nil
}

// NewTimeWheel is [New] for arguments that are known to be right: where New returns an error, it panics.
func NewTimeWheel(tick time.Duration, slots int, opts ...Option) *TimeWheel {
	tw, err := New(tick, slots, opts...)
	if err != nil {
		panic(err)
	}
	return tw
}

// Start starts the wheel. Tasks that were added before count from their AddTask: what is overdue runs at
// once, in due order. Start does nothing if the wheel runs, or was stopped: a stopped wheel stays so.
func (tw *TimeWheel) Start() {
	if tw.begin() {
		tw.log.lifecycle("started")
	}
}

// begin starts the goroutines, and reports whether it was this call that did.
func (tw *TimeWheel) begin() bool {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	if tw.started || tw.ended {
		return false
	}
	tw.started = true
	if tw.asker != nil {
		go tw.asker.run()
	}
	tw.loop.start()
	return true
}

// Stop stops the wheel for good. When it returns no further run starts, and the context of those that go on
// is done (see [Task.Context]). It does not wait for them; [TimeWheel.Shutdown] does. Tasks that have not run
// stay to be looked at, removed or drained; adds return [ErrStopped]. To stop a wheel again does nothing. The
// wheel's goroutines end with the last run.
func (tw *TimeWheel) Stop() {
	stopped := tw.halt()
	tw.cancel()
	if stopped {
		tw.log.lifecycle("stopped")
	}
}

// Shutdown stops the wheel as Stop does, but cancels no run: it waits until those that go on have ended, or
// until ctx is done. In the first case it returns nil, in the second an error that wraps the cause and says
// how many runs go on; call Stop then to have their contexts done. A job that calls Shutdown waits for
// itself, until ctx is done.
func (tw *TimeWheel) Shutdown(ctx context.Context) error {
	if tw.halt() {
		tw.log.lifecycle("stopped")
	}
	if ctx == nil {
		ctx = context.Background()
	}
	select {
	case <-tw.dispatch.idle:
	case <-ctx.Done():
		if n := tw.Stats().Running; n > 0 {
			return fmt.Errorf("timewheel: shutdown: still running: %d: %w", n, context.Cause(ctx))
		}
	}
	tw.cancel()
	return nil
}

// halt ends everything but the runs that go on, and reports whether it was this call that did.
func (tw *TimeWheel) halt() bool {
	tw.stopped.Store(true)
	tw.dispatch.stop()

	tw.mu.Lock()
	defer tw.mu.Unlock()
	if tw.ended {
		return false
	}
	tw.ended = true
	if tw.started {
		tw.loop.stop()
	}
	if tw.asker != nil {
		close(tw.asker.quit)
	}
	if tw.pool != nil {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = tw.pool.Close(gone) // does not wait: the runs that go on end by themselves
	}
	return true
}

// IsRunning reports whether the wheel was started and not stopped.
func (tw *TimeWheel) IsRunning() bool { return tw.loop.running.Load() && !tw.stopped.Load() }

// Stats returns the accounts of the wheel.
func (tw *TimeWheel) Stats() Stats {
	s := Stats{
		Added:   tw.index.mail.count(toAdd),
		Removed: tw.index.mail.count(toRemove),
		Pending: tw.Len(), // which takes the locks of the index, and so must come before the dispatcher's
	}
	d := tw.dispatch
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Finished = d.finished
	s.Due, s.Started, s.Missed, s.Withdrawn, s.Panicked = d.due, d.started, d.missed, d.withdrawn, d.panicked
	s.Waiting, s.Running = d.backlog.length, d.running
	return s
}
