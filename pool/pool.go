// SPDX-License-Identifier: MIT

// Package pool runs functions on a bounded number of goroutines and never makes the submitter wait.
//
//	p, err := pool.New(8)
//	if err != nil {
//		return err
//	}
//	defer p.Close(context.Background())
//	err = p.Submit(func() { resize(picture) })
//
// A job that finds no free worker waits in a queue, first in, first out. A worker that ends its job takes the next one
// from there before it goes back. The queue is unbounded: a program that keeps submitting jobs without checking
// [Pool.Waiting] can run out of memory.
//
// The goroutines come from github.com/panjf2000/ants. This package adds the queue, since an ants pool that is
// full either blocks the submitter or refuses the job. It also adds a rule that starts few workers: passing
// each of many short jobs to a goroutine of its own costs more than the jobs. Only a few workers are about to
// start at any time. A worker that starts takes a job and, if more wait, calls the next worker. So short jobs
// are all done by the few workers that get a processor. With jobs that block, the pool grows as fast as
// processors come free.
//
// A pool at rest holds no goroutine: its workers end after a second without a job.
package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed581295f1/timewheel/internal/crew"
)

// ErrClosed is returned by Submit after Close.
var ErrClosed = errors.New("pool: closed")

// A Pool runs functions on at most Cap goroutines at once. Make one with [New]; the zero value is not usable.
// A Pool is safe for use by several goroutines, and its jobs may call all of its methods. A job that calls
// Close waits for itself.
type Pool struct {
	size    int
	onPanic func(value any, stack []byte)
	done    chan struct{} // closed when the pool is closed and its last job has ended

	mu      sync.Mutex // protects all below
	queue   crew.Queue[func()]
	crew    crew.Crew
	running int // jobs
	closed  bool
}

// New returns a pool that runs at most size functions at once. It is an error if size is not positive.
// Goroutines are started when there is something to do.
func New(size int, opts ...Option) (*Pool, error) {
	if size <= 0 {
		return nil, fmt.Errorf("pool: size %d is not positive", size)
	}
	p := &Pool{size: size, onPanic: logPanic, done: make(chan struct{})}
	p.crew = crew.New(size, p.work, p.mu.Lock, p.mu.Unlock)
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("pool: option %d is nil", i+1))
		}
		if err := opt(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Submit arranges for job to be run and returns at once. It returns [ErrClosed] after Close; otherwise job is
// run exactly once. Jobs submitted by one goroutine start in submission order. Submit panics if job is nil.
func (p *Pool) Submit(job func()) error {
	if job == nil {
		panic("pool: nil job for Submit")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.queue.Push(job)
	p.crew.Call(p.queue.Len())
	return nil
}

// Running returns how many jobs run now. It is never more than Cap.
func (p *Pool) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// Waiting returns the number of jobs that have been submitted but not yet started.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.Len()
}

// Cap returns how many jobs may run at once, the size given to New.
func (p *Pool) Cap() int { return p.size }

// Close makes Submit refuse further jobs, and waits until all submitted jobs have ended or ctx is done. If ctx
// is done first, Close returns an error that wraps the cause and says how many jobs are left. They continue:
// nothing is cancelled. Close may be called again to wait again. It does not wait for the goroutines, which end
// soon after.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.endLocked()
	}
	p.mu.Unlock()

	if ctx == nil {
		ctx = context.Background()
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.running+p.queue.Len() == 0 {
			return nil
		}
		return fmt.Errorf("pool: close: running: %d, waiting: %d: %w",
			p.running, p.queue.Len(), context.Cause(ctx))
	}
}

// work is the function of a worker: it runs jobs until none waits, or until a job ends the goroutine.
func (p *Pool) work() {
	p.mu.Lock()
	p.crew.Begin()
	defer func() {
		p.crew.End(p.queue.Len())
		p.endLocked()
		p.mu.Unlock()
	}()
	for job, ok := p.queue.Pop(); ok; job, ok = p.queue.Pop() {
		p.running++
		p.crew.Call(p.queue.Len())
		p.runUnlocked(job)
	}
}

// runUnlocked runs job with the lock released. The lock is held again at the end, whatever job does.
func (p *Pool) runUnlocked(job func()) {
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.running--
	}()
	defer p.recover()
	job()
}

// endLocked ends the pool if it is closed and its last job has ended.
func (p *Pool) endLocked() {
	if !p.closed || p.running+p.queue.Len() > 0 {
		return
	}
	select {
	case <-p.done:
	default:
		close(p.done)
		p.crew.Close()
	}
}
