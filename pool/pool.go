// SPDX-License-Identifier: MIT

// Package pool runs functions on a limited number of goroutines and does not block the goroutine that submits them,
// unless it asks for that.
//
//	p, err := pool.New(8)
//	if err != nil {
//		return err
//	}
//	defer p.Close(context.Background())
//	err = p.Submit(func() { resize(picture) })
//
// If no worker is free, a job waits in a first-in, first-out queue. A worker that has finished a job takes the next one
// from the queue. The queue is unbounded unless [WithMaxWaiting] limits it. [Pool.Submit] then refuses a job that finds
// the queue full, and [Pool.SubmitWait] blocks until there is room.
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
	"math"
	"sync"

	"github.com/seed581295f1/timewheel/internal/crew"
)

var (
	// ErrClosed is returned by Submit and SubmitWait after Close.
	ErrClosed = errors.New("pool: closed")

	// ErrFull is returned by Submit if as many jobs wait as [WithMaxWaiting] allows.
	ErrFull = errors.New("pool: full")
)

// A Pool runs functions on at most Cap goroutines at once. Create one with [New]; the zero value is not usable. A Pool
// is safe for concurrent use, and its jobs may call any of its methods. A job that calls Close waits for itself.
type Pool struct {
	maxWaiting int // number of jobs
	onPanic    func(value any, stack []byte)
	done       chan struct{} // closed when the pool is closed and its last job has ended

	mu      sync.Mutex // protects the fields below
	size    int
	queue   crew.Queue[func()]
	blocked crew.Queue[*blocked] // calls of SubmitWait; empty unless the pool is full
	crew    crew.Crew
	running int // number of jobs in progress
	closed  bool
}

// A blocked is a call of SubmitWait that waits for room.
type blocked struct {
	job    func()
	result chan error // buffers the result of the call
}

// New returns a pool that runs at most size functions at once. It returns an error if size is not positive. Goroutines
// are started only when there are jobs to run.
func New(size int, opts ...Option) (*Pool, error) {
	if size <= 0 {
		return nil, fmt.Errorf("pool: size %d is not positive", size)
	}
	p := &Pool{size: size, maxWaiting: math.MaxInt, onPanic: logPanic, done: make(chan struct{})}
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

// Submit arranges for job to be run and returns at once. It returns [ErrClosed] after Close, and [ErrFull] if the pool
// has a [WithMaxWaiting] and is full; otherwise job is run exactly once. Jobs submitted by one goroutine start in
// submission order. Submit panics if job is nil.
func (p *Pool) Submit(job func()) error {
	if job == nil {
		panic("pool: nil job for Submit")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.fullLocked():
		return ErrFull
	}
	p.pushLocked(job)
	return nil
}

// SubmitWait is like Submit, but if the pool is full, it blocks until there is room, the pool is closed or ctx is done.
// If ctx is done first, SubmitWait returns the cause, and job is not run; a nil ctx is never done. Calls that block are
// served first come, first served. A job that calls SubmitWait keeps its worker meanwhile, and waits forever if all other
// jobs do the same.
func (p *Pool) SubmitWait(ctx context.Context, job func()) error {
	if job == nil {
		panic("pool: nil job for SubmitWait")
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b, number, err := p.submitOrBlock(job)
	if b == nil {
		return err
	}
	select {
	case err := <-b.result:
		return err
	case <-ctx.Done():
	}
	p.mu.Lock()
	_, withdrawn := p.blocked.Withdraw(number, func(x *blocked) bool { return x == b })
	p.mu.Unlock()
	if withdrawn {
		return context.Cause(ctx)
	}
	return <-b.result
}

// submitOrBlock submits job if the pool is not full. Otherwise it returns a new blocked call and its number in the
// queue.
func (p *Pool) submitOrBlock(job func()) (b *blocked, number uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, 0, ErrClosed
	case !p.fullLocked():
		p.pushLocked(job)
		return nil, 0, nil
	}
	b = &blocked{job, make(chan error, 1)}
	number = p.blocked.Next()
	p.blocked.Push(b)
	return b, number, nil
}

// fullLocked reports whether as many jobs wait as may wait. A job for which a worker is free does not count, although
// it waits until that worker starts.
func (p *Pool) fullLocked() bool { return p.queue.Len()-max(p.size-p.running, 0) >= p.maxWaiting }

func (p *Pool) pushLocked(job func()) {
	p.queue.Push(job)
	p.crew.Call(p.queue.Len())
}

// unblockLocked submits the jobs of blocked calls for which there is room.
func (p *Pool) unblockLocked() {
	for p.blocked.Len() > 0 && !p.fullLocked() {
		b, _ := p.blocked.Pop()
		p.pushLocked(b.job)
		b.result <- nil
	}
}

// Running returns the number of jobs in progress. It is never more than Cap, except after a Resize that has made the
// pool smaller.
func (p *Pool) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// Waiting returns the number of jobs that have been submitted but not yet started. The jobs of calls of SubmitWait that
// block do not count.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.Len()
}

// Cap returns the maximum number of jobs that run at once, as given to [New] or to the last Resize.
func (p *Pool) Cap() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// Resize sets the maximum number of jobs that run at once, and returns at once. If the pool grows, waiting jobs start.
// If it shrinks, no job is interrupted, and none starts until fewer than size are in progress. Resize returns an error
// if size is not positive.
func (p *Pool) Resize(size int) error {
	if size <= 0 {
		return fmt.Errorf("pool: size %d is not positive", size)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = size
	p.crew.Resize(size, p.queue.Len())
	p.unblockLocked()
	return nil
}

// Close makes Submit and SubmitWait refuse further jobs, also in calls that block, and waits until all submitted jobs
// have ended or ctx is done. If ctx is done first, Close returns an error that wraps the cause and says how many jobs are
// left. These jobs are not cancelled. Close may be called again to continue waiting. It does not wait for the pool's
// goroutines, which exit soon afterwards.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		for p.blocked.Len() > 0 {
			b, _ := p.blocked.Pop()
			b.result <- ErrClosed
		}
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

// work is the main function of a worker. It runs jobs until none is waiting, there are too many workers, or a job ends
// the goroutine.
func (p *Pool) work() {
	p.mu.Lock()
	p.crew.Begin()
	defer func() {
		p.crew.End(p.queue.Len())
		p.endLocked()
		p.mu.Unlock()
	}()
	for !p.crew.Over() {
		job, ok := p.queue.Pop()
		if !ok {
			return
		}
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
		p.unblockLocked()
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
