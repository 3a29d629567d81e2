// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"sync"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// handlings are the runs that the workers of a scheduler have begun and not ended, even if their tasks have changed
// since.
type handlings struct {
	mu    sync.Mutex // protects below, and cancelled of the live of each
	first *handling  // a list: nearly every run ends without being looked up
}

// A handling is a run in the hands of a worker. It begins before the store or the engine has agreed to the start, and
// lasts until its handler and observers have returned.
type handling struct {
	of           *live
	began        time.Time // when its handler was called: see context
	before, next *handling
	over         bool
	ended        chan struct{} // closed at the end; nil if nothing waits for it
	ctx          runContext
	ends         runEnd
}

func (r *handlings) begin(of *live) *handling {
	h := &handling{of: of}
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
// is seen: an earlier handling of the same live may not have called the handler.
func (h *handling) context(parent context.Context, began time.Time) context.Context {
	h.ctx.parent = parent
	h.began, h.of.began = began, began.UnixNano()
	h.of.ran.Store(true)
	return &h.ctx
}

// A progress summarizes runs whose handlers are running.
type progress struct {
	runs  int
	first time.Time // when the handler of the first of them was called
}

// byKind returns the runs in progress of each kind.
func (r *handlings) byKind() map[string]progress {
	all := make(map[string]progress)
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := r.first; h != nil; h = h.next {
		if !h.of.ran.Load() || h.began.IsZero() {
			continue
		}
		p := all[h.of.Rec.Kind]
		if p.runs++; p.runs == 1 || h.began.Before(p.first) {
			p.first = h.began
		}
		all[h.of.Rec.Kind] = p
	}
	return all
}

// longest returns how long the longest of the runs has taken, or 0 if there is none.
func (p progress) longest() time.Duration {
	if p.runs == 0 {
		return 0
	}
	return time.Since(p.first)
}

func (r *handlings) end(h *handling) {
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

// A runContext is the cancellable context of a run. A real one costs two allocations and an entry in its parent, some 8
// % of an empty run, so it is created when the handler first needs it.
type runContext struct {
	parent context.Context

	mu    sync.Mutex // protects below
	real  context.Context
	end   context.CancelCauseFunc // of real
	over  bool
	cause error // why it is done
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

// watch returns the handlings of the tasks, for a wait. If cancel is true it cancels them. A run whose start is not
// confirmed by then is cancelled when it starts, even at a later try.
func (r *handlings) watch(is func(*task.Record) bool, cancel bool) (some []*handling) {
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

// look reports whether one of them has called its handler, and returns one that has not ended, or nil.
func (r *handlings) look(some []*handling) (ran bool, running *handling) {
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

// wait waits until they have ended, and reports whether one of them has called its handler. The error is a RunningError
// if ctx is done or the scheduler stops before that.
func (r *handlings) wait(ctx context.Context, stopped <-chan struct{}, some []*handling) (ran bool, err error) {
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
			return true, &RunningError{Token: Token(running.of.Rec.Token()), err: err}
		}
		break
	}
	ran, _ = r.look(some)
	return ran, nil
}
