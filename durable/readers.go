// SPDX-License-Identifier: MIT

package durable

import "sync"

// Readers counts the reads of the store in progress, during which it must not be closed. Unlike with a
// read-write lock, a reader may enter again while stop waits for all to leave.
type readers struct {
	mu   sync.Mutex // protects below
	n    int
	idle chan struct{} // closed when no read is in progress; not nil from stop on
}

// enter reports whether the store may be read. If so, the caller must call leave.
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

// stop refuses further readers. The channel it returns is closed when all have left. It is called once.
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
