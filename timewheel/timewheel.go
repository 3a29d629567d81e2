// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxSlots is the maximum number of slots in a wheel. An empty slot takes 32 bytes with Hashed, and 64 bytes per level
// in use with Hierarchical.
const maxSlots = 1 << 24

// A TimeWheel runs tasks at their due times. Create one with [New] or [NewTimeWheel]; the zero value is not usable. Its
// methods may be called at any time from any goroutine, including from the wheel's own jobs.
type TimeWheel struct {
	config
	cancel context.CancelFunc // cancels the context of all runs

	index    *index
	dates    *dates
	loop     *loop
	dispatch *dispatcher

	paused  atomic.Int64 // number of paused tasks
	stopped atomic.Bool  // whether adds are refused

	mu      sync.Mutex // protects the fields below; serializes Start, Stop and Shutdown
	started bool
	ended   bool
}

// New returns a wheel with the given tick and number of slots. The wheel can be used before [TimeWheel.Start], but runs
// no task until then.
//
// The tick is the timing resolution: a run starts less than one tick late on a machine that is not overloaded. Ticks
// from 1 ms to 1 s are usual; ticks shorter than about 100 µs cost CPU and gain nothing. The number of slots does not
// limit delays: a task due more than tick × slots from now waits for one or more further circles, at no cost. 1,024
// slots suit nearly every program.
//
// New returns an error if tick is not positive, if slots is not between 1 and 16,777,216, or if an option has an
// invalid value. The error names the argument and its value. New panics if an option is nil.
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
	tw.loop = newLoop(tick, slots, c.layout, c.clock, tw.index, tw.dates, tw.dispatch)
	return tw, nil
}

// NewTimeWheel is like [New] but panics instead of returning an error. It is meant for arguments known to be valid.
func NewTimeWheel(tick time.Duration, slots int, opts ...Option) *TimeWheel {
	tw, err := New(tick, slots, opts...)
	if err != nil {
		panic(err)
	}
	return tw
}

// Start starts the wheel. The delays of tasks added before Start count from AddTask, so overdue tasks run at once, in
// tick order. Start does nothing if the wheel is running or has been stopped: a stopped wheel cannot be restarted.
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

// Stop stops the wheel permanently. After Stop returns, no run starts, and the context of the runs in progress is done
// (see [Task.Context]). Stop does not wait for these runs; [TimeWheel.Shutdown] does. The remaining tasks can still be
// inspected, removed or drained, but adding a task returns [ErrStopped]. Stopping a stopped wheel does nothing. The
// wheel's goroutines exit when the last run has ended.
func (tw *TimeWheel) Stop() {
	stopped := tw.halt()
	tw.cancel()
	if stopped {
		tw.report.log.lifecycle("stopped")
	}
}

// Shutdown stops the wheel without cancelling any run, and waits until the runs in progress have ended or ctx is done.
// It returns nil if the runs have ended. If ctx is done first, it returns an error that wraps the cause and says how
// many runs are still in progress; calling Stop then cancels their contexts. A job that calls Shutdown waits for itself
// until ctx is done.
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

// halt stops everything except the runs in progress. It reports whether this was the first call.
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

// ResizePool sets the maximum number of jobs that run at once, which [WithPoolSize] set first, and returns at once. If
// the pool grows, waiting runs begin. If it shrinks, no run in progress is interrupted, and none begins until fewer than
// size are in progress. ResizePool returns an error if size is not positive or if the wheel has a [WithExecutor].
func (tw *TimeWheel) ResizePool(size int) error {
	if size <= 0 {
		return fmt.Errorf("timewheel: pool size %d is not positive", size)
	}
	if !tw.dispatch.resize(size) {
		return errors.New("timewheel: the wheel has an executor instead of a pool")
	}
	return nil
}

// Stats returns the statistics of the wheel.
func (tw *TimeWheel) Stats() Stats {
	s := tw.loop.stats()
	s.Paused = int(tw.paused.Load())
	return s
}
