// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"sync"
)

// handlings are what the workers of a scheduler have begun and not ended, whatever has become of the tasks since.
type handlings struct {
	mu  sync.Mutex // protects all, and the fields of each
	all map[*handling]struct{}
}

// A handling is a run from when a worker begins it, before the store or the engine has agreed, until its handler and
// its observers have returned.
type handling struct {
	token     Token
	ran       bool                    // the handler was called
	cancel    context.CancelCauseFunc // of the handler's context; nil before it is called
	cancelled bool                    // by Cancel
	ended     chan struct{}           // closed at the end; nil if nothing waits for it
}

func (r *handlings) begin(of *record) *handling {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[*handling]struct{})
	}
	h := &handling{token: of.token()}
	r.all[h] = struct{}{}
	return h
}

// context returns the context of the handler, which is to be called with it.
func (r *handlings) context(h *handling, parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.ran, h.cancel = true, cancel; h.cancelled {
		cancel(ErrCancelled)
	}
	return ctx
}

func (r *handlings) end(h *handling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, h)
	if h.cancel != nil {
		h.cancel(nil)
	}
	if h.ended != nil {
		close(h.ended)
	}
}

// watch returns the handlings of the key, to be waited for. It cancels them if it is asked to.
func (r *handlings) watch(key string, cancel bool) (some []*handling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := range r.all {
		if h.token.Key != key {
			continue
		}
		if h.ended == nil {
			h.ended = make(chan struct{})
		}
		if cancel {
			if h.cancelled = true; h.cancel != nil {
				h.cancel(ErrCancelled)
			}
		}
		some = append(some, h)
	}
	return some
}

// look reports whether any of them has called its handler, and returns one that has not ended, or nil.
func (r *handlings) look(some []*handling) (ran bool, running *handling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range some {
		ran = ran || h.ran
		if _, is := r.all[h]; is && (running == nil || h.ran) {
			running = h
		}
	}
	return ran, running
}

// wait returns when they have ended, and whether one of them has called its handler. The error is a
// RunningError, if ctx is done before that, or the scheduler has stopped.
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
			return true, &RunningError{Token: running.token, err: err}
		}
		break
	}
	ran, _ = r.look(some)
	return ran, nil
}
