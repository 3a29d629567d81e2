// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// handlings holds the runs that a scheduler's workers have begun but not ended, even if their tasks have since changed.
type handlings struct {
	mu    sync.Mutex // protects the fields below, and the cancelled field of each handling's live
	first *Run       // head of a list, because nearly every run ends without being looked up
}

// A Run is a run that a worker is executing. It begins before the engine has confirmed the start, and
// lasts until the handler has returned, and the observers that are called on its goroutine.
type Run struct {
	Rec     *task.Record // the task before the attempt
	Fence   int64        // as in the type Run of package durable
	Called  int64        // when the handler is called, by the engine's clock
	Began   time.Time    // the same by the clock of this process; see context
	Due     int64        // when the task was due
	Overdue bool         // it was overdue
	Ending  Ending

	kind         *Kind
	of           *live
	outcome      task.Outcome // of the attempt; see Result
	before, next *Run
	over         bool
	ended        chan struct{} // closed when the handling ends; nil if nothing waits for it
	ctx          runContext
}

// An Ending records how a handler ends its run, apart from its return value.
type Ending struct {
	Note    atomic.Pointer[string] // the note of a handler that says its run is complete; nil if it has not
	Written atomic.Bool            // a user's write completes the run
}

func (r *handlings) begin(of *live) *Run {
	h := &Run{of: of}
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.next = r.first; h.next != nil {
		h.next.before = h
	}
	r.first = h
	if of.cancelled {
		h.ctx.cancel(ErrCancelled)
	}
	return h
}

// context returns the context for the handler, which the worker calls next. Fields set before ran may be read once ran
// is true. ran belongs to the live, so it can be true even for an earlier handling of the same live that never called
// the handler.
func (h *Run) context(parent context.Context, began time.Time) context.Context {
	h.ctx.parent = parent
	h.Began = began
	h.of.ran.Store(true)
	return &h.ctx
}

// A Progress summarizes runs whose handlers are running.
type Progress struct {
	Runs  int
	first time.Time // when the first of their handlers was called
}

// byKind summarizes the runs in progress by kind.
func (r *handlings) byKind() map[string]Progress {
	all := make(map[string]Progress)
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := r.first; h != nil; h = h.next {
		if !h.of.ran.Load() || h.Began.IsZero() {
			continue
		}
		p := all[h.of.Rec.Kind]
		if p.Runs++; p.Runs == 1 || h.Began.Before(p.first) {
			p.first = h.Began
		}
		all[h.of.Rec.Kind] = p
	}
	return all
}

// Longest returns how long the longest run has been in progress, or 0 if there are no runs.
func (p Progress) Longest() time.Duration {
	if p.Runs == 0 {
		return 0
	}
	return time.Since(p.first)
}

func (r *handlings) end(h *Run) {
	r.mu.Lock()
	if h.over = true; h.before == nil {
		r.first = h.next
	} else {
		h.before.next = h.next
	}
	if h.next != nil {
		h.next.before = h.before
	}
	if h.ended != nil {
		close(h.ended)
	}
	r.mu.Unlock()
	h.ctx.cancel(nil)
}

// A runContext is a run's cancellable context. A standard context costs two allocations and an entry in its parent,
// about 8 % of an empty run, so it is created only when the handler first needs it.
type runContext struct {
	parent context.Context

	mu    sync.Mutex // protects the fields below
	real  context.Context
	end   context.CancelCauseFunc // cancels real
	over  bool
	cause error // why the context is done
}

func (c *runContext) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if c.over, c.cause = true, cause; c.real != nil {
		c.end(cause)
	}
}

func (c *runContext) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		if c.real, c.end = context.WithCancelCause(c.parent); c.over {
			c.end(c.cause)
		}
	}
	return c.real
}

func (c *runContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *runContext) Done() <-chan struct{}       { return c.made().Done() }
func (c *runContext) Err() error                  { return c.made().Err() }
func (c *runContext) Value(key any) any           { return c.made().Value(key) }

// watch returns the handlings whose tasks satisfy the predicate, so that the caller can wait for them. If cancel is
// true, watch cancels their runs. A run whose start has not been confirmed yet is cancelled when it starts, even if
// that takes another try.
func (r *handlings) watch(is func(*task.Record) bool, cancel bool) (some []*Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := r.first; h != nil; h = h.next {
		if !is(h.of.Rec) {
			continue
		}
		if h.ended == nil {
			h.ended = make(chan struct{})
		}
		if cancel {
			h.of.cancelled = true
			h.ctx.cancel(ErrCancelled)
		}
		some = append(some, h)
	}
	return some
}

// look reports whether any of the handlings has called its handler, and returns one that has not ended, or nil if all
// have ended.
func (r *handlings) look(some []*Run) (ran bool, running *Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range some {
		ran = ran || h.of.ran.Load()
		if !h.over && (running == nil || h.of.ran.Load()) {
			running = h
		}
	}
	return ran, running
}

// wait waits until all of the handlings have ended, and reports whether any of them has called its handler. It returns
// a RunningError if ctx is done or the scheduler stops first.
func (r *handlings) wait(ctx context.Context, stopped <-chan struct{}, some []*Run) (ran bool, err error) {
	for _, h := range some {
		select {
		case <-h.ended:
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-stopped:
			err = ErrStopped
		}
		if _, running := r.look(some); running != nil {
			return true, &RunningError{Token: running.of.Rec.Token, Err: err}
		}
		break
	}
	ran, _ = r.look(some)
	return ran, nil
}
