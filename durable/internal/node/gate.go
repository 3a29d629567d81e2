// SPDX-License-Identifier: MIT

package node

import "sync"

// A Gate counts the calls in progress. The engine must not be closed during a call. Unlike with a read-write lock, a
// caller that enters a second time does not block while stop waits for all callers to leave.
type Gate struct {
	mu   sync.Mutex // protects the fields below
	n    int
	idle chan struct{} // closed when no call is in progress; nil until Stop is called
}

// Enter reports whether a call may begin. If so, the caller must call Leave afterwards.
func (r *Gate) Enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle != nil {
		return false
	}
	r.n++
	return true
}

// Leave ends a call.
func (r *Gate) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 && r.idle != nil {
		close(r.idle)
	}
}

// Stop refuses further calls. It returns a channel that is closed when all callers have left. It is called only once.
func (r *Gate) Stop() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = make(chan struct{})
	if r.n == 0 {
		close(r.idle)
	}
	return r.idle
}

// Stopped reports whether Stop was called.
func (r *Gate) Stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.idle != nil
}
