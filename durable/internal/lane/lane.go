// SPDX-License-Identifier: MIT

// Package lane is a batcher: it gathers requests and makes them in groups.
package lane

import (
	"sync"
	"time"
)

// A Lane gathers requests to the engine and makes them in groups. While one group is in progress the next one forms, so
// a lone request does not wait, and many share a call. At most two groups are in progress at a time. A single slow
// request does not count towards the two: it may be waiting for a lock and must not hold up the others.
type Lane[T any] struct {
	split func(waiting []T) (group, left []T)
	do    func(group []T)
	few   int // requests with time wait for others, while they are fewer than this

	mu       sync.Mutex // protects below
	idle     *sync.Cond // no call is being made
	waiting  []T
	alarm    *time.Timer // when their time is up; nil if some have none
	underWay int         // groups
	calls    int
}

// New returns a Lane. split takes the next group from the waiting requests, of which there is at least one, and do
// makes it.
func New[T any](few int, split func([]T) (group, left []T), do func([]T)) *Lane[T] {
	l := &Lane[T]{split: split, do: do, few: few}
	l.idle = sync.NewCond(&l.mu)
	return l
}

const (
	wide    = 2
	waiting = 10 * time.Millisecond // for a single request
)

// Post makes the requests soon, on another goroutine, together with any that still have time.
func (l *Lane[T]) Post(r ...T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, r...)
	l.nextLocked()
}

// Gather makes a request that may wait that long for others.
func (l *Lane[T]) Gather(r T, has time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, r)
	switch n := len(l.waiting); {
	case n >= l.few || has <= 0:
		l.nextLocked()
	case n == 1:
		l.alarm = time.AfterFunc(has, func() { l.Post() })
	}
}

// nextLocked begins as many groups as may be in progress. The requests still waiting then have no time left.
func (l *Lane[T]) nextLocked() {
	if l.alarm != nil {
		l.alarm.Stop()
		l.alarm = nil
	}
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
		if l.underWay--; l.alarm == nil {
			l.nextLocked()
		}
	})
	defer over()
	if len(group) == 1 {
		timer := time.AfterFunc(waiting, over)
		defer timer.Stop()
	}
	l.do(group)
}

// Aside makes a call outside any group.
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

// Wait returns when no request waits or is in progress.
func (l *Lane[T]) Wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
	for l.calls > 0 || len(l.waiting) > 0 {
		l.idle.Wait()
	}
}
