// SPDX-License-Identifier: MIT

package durable

import (
	"sync"
	"time"
)

// A lane gathers requests to the engine and makes them in groups. While one group is under way the next one
// forms, so that a lone request does not wait, and many share a call. At most two groups are under way at a
// time. One request alone that takes long, for it may have met a lock, does not count, so that no other waits
// for it.
type lane[T any] struct {
	split func(waiting []T) (group, left []T) // what comes next; the group is not empty
	do    func(group []T)

	mu       sync.Mutex // protects below
	idle     *sync.Cond // nothing waits, and no call is being made
	waiting  []T
	underWay int // groups
	calls    int
}

func newLane[T any](split func([]T) (group, left []T), do func([]T)) *lane[T] {
	l := &lane[T]{split: split, do: do}
	l.idle = sync.NewCond(&l.mu)
	return l
}

const (
	laneWide    = 2
	laneWaiting = 10 * time.Millisecond // for one request alone
)

// post makes the request, soon, on another goroutine.
func (l *lane[T]) post(r T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, r)
	l.nextLocked()
}

func (l *lane[T]) nextLocked() {
	for l.underWay < laneWide && len(l.waiting) > 0 {
		var group []T
		group, l.waiting = l.split(l.waiting)
		l.underWay++
		l.asideLocked(func() { l.call(group) })
	}
}

func (l *lane[T]) call(group []T) {
	over := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.underWay--
		l.nextLocked()
	})
	defer over()
	if len(group) == 1 {
		timer := time.AfterFunc(laneWaiting, over)
		defer timer.Stop()
	}
	l.do(group)
}

// aside makes a call that belongs to no group.
func (l *lane[T]) aside(call func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asideLocked(call)
}

func (l *lane[T]) asideLocked(call func()) {
	l.calls++
	go func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.calls--; l.calls == 0 {
				l.idle.Broadcast()
			}
		}()
		call()
	}()
}

// wait returns when nothing waits or is under way.
func (l *lane[T]) wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.calls > 0 {
		l.idle.Wait()
	}
}
