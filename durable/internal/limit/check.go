// SPDX-License-Identifier: MIT

package limit

import "fmt"

// Waits reports whether the task is in the backlog or waits for its kind's limiter.
func (b *Backlog) Waits(t *Task) bool {
	b.mu.Lock()
	queued := b.queue.Has(t)
	b.mu.Unlock()
	if l := b.Kinds.Limiter(t.Rec); l != nil && !queued {
		l.Locked(func() { queued = l.queue.Has(t) })
	}
	return queued
}

// Check compares the counts of the backlog and of the limiters with the waiting tasks, and returns the counts that
// disagree. It is for tests. Nothing may change during the call.
func (b *Backlog) Check(waiting []*Task, limiters []*Limiter) (wrong []string) {
	same := func(what string, counted, is int) {
		if counted != is {
			wrong = append(wrong, fmt.Sprintf("%s: %d are counted, and %d are there", what, counted, is))
		}
	}
	for _, l := range limiters {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, 0
	held, heldBytes := make(map[*Limiter]int), make(map[*Limiter]int)
	for _, t := range waiting {
		l := b.Kinds.Limiter(t.Rec)
		if b.queue.Has(t) && (l == nil || !l.overdue.Has(t)) {
			n, size = n+1, size+t.Rec.Size()
		}
		if l != nil && l.holdsLocked(t) { // otherwise the task was added before the limiter
			held[l]++
			heldBytes[l] += t.Rec.Size()
		}
	}
	same("backlog", b.n, n)
	same("bytes of the backlog", b.size, size)
	same("queued in the backlog", b.Len(), b.queue.Len())
	for _, l := range limiters {
		same("held by a limiter", l.held.Len(), held[l])
		same("bytes of a limiter", l.bytes, heldBytes[l])
	}
	return wrong
}
