// SPDX-License-Identifier: MIT

package durable

import "sync"

// readers counts the reads in progress. The engine must not be closed during a read. Unlike with a read-write lock, a
// reader that enters a second time does not block while stop waits for all readers to leave.
type readers struct {
	mu   sync.Mutex // protects the fields below
	n    int
	idle chan struct{} // closed when no read is in progress; nil until stop is called
}

// enter reports whether the engine may be read. If so, the caller must call leave afterwards.
func (r *readers) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle != nil {
		return false
	}
	r.n++
	return true
}

func (r *readers) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 && r.idle != nil {
		close(r.idle)
	}
}

// stop refuses further readers. It returns a channel that is closed when all readers have left. It is called only once.
func (r *readers) stop() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = make(chan struct{})
	if r.n == 0 {
		close(r.idle)
	}
	return r.idle
}

func (r *readers) stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.idle != nil
}
