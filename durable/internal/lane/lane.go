// SPDX-License-Identifier: MIT

// Package lane provides a batcher, which gathers requests and performs them in groups.
package lane

import (
	"sync"
	"time"
)

// A Lane gathers requests to the engine and performs them in groups. The next group forms while one is in progress, so
// a lone request does not wait, and many requests share a call. At most two groups are in progress at a time. A single
// slow request does not count towards the two, because it may be waiting for a lock and must not hold up the others.
type Lane[T any] struct {
	split func(waiting []T) (group, left []T)
	do    func(group []T)
	few   int // requests that may wait do so while fewer than this are waiting

	mu       sync.Mutex // protects below
	idle     *sync.Cond // signals that no call is in progress
	waiting  []T
	alarm    *time.Timer // fires when the waiting requests may wait no longer; nil if they need not wait
	underWay int         // groups in progress
	calls    int
}

// New returns a Lane. split divides the waiting requests, of which there is at least one, into the next group and the
// requests left over. do performs a group.
func New[T any](few int, split func([]T) (group, left []T), do func([]T)) *Lane[T] {
	l := &Lane[T]{split: split, do: do, few: few}
	l.idle = sync.NewCond(&l.mu)
	return l
}

const (
	wide    = 2
	waiting = 10 * time.Millisecond // how long a single request counts towards wide
)

// Post performs the requests as soon as possible, on another goroutine, together with any waiting requests.
func (l *Lane[T]) Post(r ...T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, r...)
	l.nextLocked()
}

// Gather performs a request that has the given time to wait for others.
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

// nextLocked starts as many groups as may be in progress. Requests that are still waiting after that are performed as
// soon as a group ends.
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

// Aside runs call on another goroutine, outside any group.
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

// Wait performs the waiting requests, and returns once no request is waiting or in progress.
func (l *Lane[T]) Wait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
	for l.calls > 0 || len(l.waiting) > 0 {
		l.idle.Wait()
	}
}
