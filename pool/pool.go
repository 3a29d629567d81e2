// SPDX-License-Identifier: MIT

// Package pool runs functions on a limited number of goroutines and never blocks the goroutine that submits them.
//
//	p, err := pool.New(8)
//	if err != nil {
//		return err
//	}
//	defer p.Close(context.Background())
//	err = p.Submit(func() { resize(picture) })
//
// If no worker is free, a job waits in a first-in, first-out queue. A worker that has finished a job takes the next one
// from the queue. The queue is unbounded, so a program that keeps submitting jobs without checking [Pool.Waiting] can
// run out of memory.
//
// The goroutines come from github.com/panjf2000/ants. This package adds the queue, because a full ants pool either
// blocks the submitter or refuses the job. It also limits how many workers are about to start at any time: starting a
// goroutine for each of many short jobs costs more than the jobs themselves. When a worker starts, it takes a job and,
// if more jobs are waiting, calls the next worker. So short jobs are all run by the few workers that get a processor.
// With jobs that block, the pool grows as fast as processors become free.
//
// An idle pool holds no goroutines: its workers exit after a second without jobs.
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

// A Pool runs functions on at most Cap goroutines at once. Create one with [New]; the zero value is not usable. A Pool
// is safe for concurrent use, and its jobs may call any of its methods. A job that calls Close waits for itself.
type Pool struct {
	size    int
	onPanic func(value any, stack []byte)
	done    chan struct{} // closed when the pool is closed and its last job has ended

	mu      sync.Mutex // protects the fields below
	queue   crew.Queue[func()]
	crew    crew.Crew
	running int // number of jobs in progress
	closed  bool
}

// New returns a pool that runs at most size functions at once. It returns an error if size is not positive. Goroutines
// are started only when there are jobs to run.
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

// Running returns the number of jobs in progress. It is never more than Cap.
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

// Cap returns the maximum number of jobs that run at once, as given to [New].
func (p *Pool) Cap() int { return p.size }

// Close makes Submit refuse further jobs, and waits until all submitted jobs have ended or ctx is done. If ctx is done
// first, Close returns an error that wraps the cause and says how many jobs are left. These jobs are not cancelled.
// Close may be called again to continue waiting. It does not wait for the pool's goroutines, which exit soon
// afterwards.
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

// work is the main function of a worker. It runs jobs until none is waiting or a job ends the goroutine.
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

// runUnlocked runs job with the lock released. The lock is held again when runUnlocked ends, whatever job does.
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
