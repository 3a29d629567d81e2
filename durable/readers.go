// SPDX-License-Identifier: MIT

package durable

import "sync"

// Readers are those that read the store, which must not be closed meanwhile. Unlike with a read-write lock one
// that has entered may enter again while somebody waits for all to leave.
type readers struct {
	mu   sync.Mutex // protects below
	n    int
	idle chan struct{} // closed when nobody reads; not nil from stop on
}

// enter reports whether the store may be read. If so, leave is to be called.
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

// stop lets nobody enter any more. What it returns is closed when all have left. It is called once.
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
