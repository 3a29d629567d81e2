// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxSlots bounds the slots of a wheel. An empty one costs 32 bytes, or 64 on each level that is in use.
const maxSlots = 1 << 24

// A TimeWheel runs tasks at their due times. Make one with [New] or [NewTimeWheel]; the zero value is not
// usable. All its methods may be called by any goroutine at any time, jobs of the wheel included.
type TimeWheel struct {
	config
	cancel context.CancelFunc // of the runs

	index    *index
	dates    *dates
	loop     *loop
	dispatch *dispatcher

	paused  atomic.Int64 // tasks
	stopped atomic.Bool  // adds are refused

	mu      sync.Mutex // protects all below; makes Start, Stop and Shutdown one after the other
	started bool
	ended   bool
}

// New returns a wheel with the given tick and number of slots. It can be used before [TimeWheel.Start], but runs
// nothing until then.
//
// The tick is how exactly runs are timed: a run starts less than one tick late on a machine that is not
// overloaded. 1 ms to 1 s is usual; ticks shorter than about 100 µs cost CPU and gain nothing. The slots
// bound nothing: a task that is due after tick × slots waits for a further turn, at no cost. 1,024 slots suit
// nearly everything.
//
// It is an error if tick is not positive, if slots is not between 1 and 16,777,216, or if an option has an invalid
// value. The error names the argument and its value. New panics if an option is nil.
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
	ctx, cancel := context.WithCancel(context.Background())
	tw := &TimeWheel{
		config: c, cancel: cancel, index: newIndex(c.maxPending), dates: newDates(c.clock, ticks(tick)),
	}
	tw.dispatch = newDispatcher(ctx, ticks(tick), c, tw.index, tw.dates)
	tw.loop = newLoop(tick, slots, c.layout, c.clock, tw.dates, tw.dispatch)
	return tw, nil
}

// NewTimeWheel is [New] for arguments known to be valid: it panics where New returns an error.
func NewTimeWheel(tick time.Duration, slots int, opts ...Option) *TimeWheel {
	tw, err := New(tick, slots, opts...)
	if err != nil {
		panic(err)
	}
	return tw
}

// Start starts the wheel. The delays of tasks added before count from AddTask: overdue tasks run at once, in the order
// of their ticks. Start does nothing if the wheel is running or was stopped: a wheel cannot be restarted.
func (tw *TimeWheel) Start() {
	tw.mu.Lock()
	begins := !tw.started && !tw.ended
	if begins {
		tw.started = true
		tw.dispatch.start()
		tw.loop.start()
	}
	tw.mu.Unlock()
	if begins {
		tw.report.log.lifecycle("started")
	}
}

// Stop stops the wheel for good. When it returns no further run starts, and the context of those in progress is done
// (see [Task.Context]). It does not wait for them; [TimeWheel.Shutdown] does. Tasks that have not run can still be
// inspected, removed or drained; adds return [ErrStopped]. Stopping a stopped wheel does nothing. The wheel's
// goroutines end with the last run.
func (tw *TimeWheel) Stop() {
	stopped := tw.halt()
	tw.cancel()
	if stopped {
		tw.report.log.lifecycle("stopped")
	}
}

// Shutdown stops the wheel as Stop does, but cancels no run: it waits until those in progress have ended, or until ctx
// is done. In the first case it returns nil, in the second an error that wraps the cause and says how many runs are
// still running. Then call Stop to cancel their contexts. A job that calls Shutdown waits for itself, until ctx is
// done.
func (tw *TimeWheel) Shutdown(ctx context.Context) error {
	if tw.halt() {
		tw.report.log.lifecycle("stopped")
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

// halt ends everything except the runs in progress, and reports whether this call did so.
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
	return true
}

// IsRunning reports whether the wheel has been started and not yet stopped.
func (tw *TimeWheel) IsRunning() bool { return tw.loop.running.Load() && !tw.stopped.Load() }

// Stats returns the statistics of the wheel.
func (tw *TimeWheel) Stats() Stats {
	s := tw.dispatch.stats()
	s.Paused = int(tw.paused.Load())
	s.Removed = tw.loop.inboxes.count(ended)
	s.Added = tw.loop.inboxes.count(added)                // last: finished and removed tasks were added before
	s.Pending = max(int(s.Added-s.Finished-s.Removed), 0) // but a task may be removed while its add is being counted
	return s
}
