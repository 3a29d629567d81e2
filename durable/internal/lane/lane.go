// SPDX-License-Identifier: MIT

// Package lane gathers requests and makes them in groups.
package lane

import (
	"sync"
	"time"
)

// A Lane gathers requests to the engine and makes them in groups. While one group is under way the next one
// forms, so that a lone request does not wait, and many share a call. At most two groups are under way at a
// time. One request alone that takes long, for it may have met a lock, does not count, so that no other waits
// for it.
type Lane[T any] struct {
	split func(waiting []T) (group, left []T)
	do    func(group []T)

	mu       sync.Mutex // protects below
	idle     *sync.Cond // nothing waits, and no call is being made
	waiting  []T
	underWay int // groups
	calls    int
}

// New returns a Lane that makes a group with do. split takes a group, which is not empty, from what waits.
func New[T any](split func([]T) (group, left []T), do func([]T)) *Lane[T] {
	l := &Lane[T]{split: split, do: do}
	l.idle = sync.NewCond(&l.mu)
	return l
}

const (
	wide    = 2
	waiting = 10 * time.Millisecond // for one request alone
)

// Post makes the request, soon, on another goroutine.
func (l *Lane[T]) Post(r T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, r)
	l.nextLocked()
}

func (l *Lane[T]) nextLocked() {
	for l.underWay < wide && len(l.waiting) > 0 {
		var group []T
		group, l.waiting = l.split(l.waiting)
		l.underWay++
		l.asideLocked(func() { l.call(group) })
	}
}

func (l *Lane[T]) call(group []T) {
	over := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.underWay--
		l.nextLocked()
	})
	defer over()
	if len(group) == 1 {
		timer := time.AfterFunc(waiting, over)
		defer timer.Stop()
	}
	l.do(group)
}

// Aside makes a call that belongs to no group.
func (l *Lane[T]) Aside(call func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asideLocked(call)
}

func (l *Lane[T]) asideLocked(call func()) {
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

// Wait returns when nothing waits or is under way.
func (l *Lane[T]) Wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.calls > 0 {
		l.idle.Wait()
	}
}
