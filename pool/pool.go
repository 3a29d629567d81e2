// SPDX-License-Identifier: MIT

// Package pool runs functions on a bounded number of goroutines and never makes the one who submits wait.
//
//	p, err := pool.New(8)
//	if err != nil {
//		return err
//	}
//	defer p.Close(context.Background())
//	err = p.Submit(func() { resize(picture) })
//
// What finds no free worker waits in a queue, first in, first out, and a worker that ends its job takes the
// next one from it before it goes back. The queue has no bound of its own: whoever submits without end and
// without looking at [Pool.Waiting] fills the memory.
//
// The goroutines come from github.com/panjf2000/ants. This package adds the queue, since an ants pool that is
// full either blocks the submitter or refuses the job, and a thrifty way to start workers: handing each of
// many short jobs to a goroutine of its own costs more than the jobs. At most a few workers are about to
// start at any time. One that starts takes a job and, while more wait, calls the next. So short jobs are all
// done by the few workers that get a processor, and with jobs that block the pool grows as fast as processors
// come free.
//
// A pool at rest holds no goroutine: its workers are given back after a second without a job.
package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClosed is returned by Submit after Close.
var ErrClosed = errors.New("pool: closed")

const (
	// starters is how many workers may be about to start. One would do; a few let a machine with many
	// processors get all of them going at once.
	starters = 4

	// rest is how long a pool without a job keeps its goroutines. ants wakes up twice a second to keep the
	// time, which an idle program should not have to pay.
	rest = time.Second
)

// A Pool runs functions on at most Cap goroutines at once. Make one with [New]; the zero value is of no use.
// A Pool is safe for use by several goroutines, and its jobs may call all of its methods, though a job that
// waits in Close waits for itself.
type Pool struct {
	size    int
	onPanic func(value any, stack []byte)
	done    chan struct{} // closed when the pool is closed and its last job has ended

	mu       sync.Mutex // protects all below
	queue    queue
	starting int // workers that were called and have not taken a job yet
	running  int // jobs that run
	closed   bool
	workers  goroutines
	idle     *time.Timer // gives the goroutines back; nil until they were first at rest
}

// New returns a pool that runs at most size functions at once. It is an error if size is not positive.
// Goroutines are started when there is something to do.
func New(size int, opts ...Option) (*Pool, error) {
	if size <= 0 {
		return nil, fmt.Errorf("pool: size %d is not positive", size)
	}
	p := &Pool{size: size, onPanic: logPanic, done: make(chan struct{})}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("pool: option %d is nil", i+1)
		}
		if err := opt(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Submit arranges for job to be run and returns at once. It returns [ErrClosed] after Close, and an error if
// job is nil; otherwise job is run exactly once. Jobs start in the order of their submission, those that one
// goroutine submits at any rate.
func (p *Pool) Submit(job func()) error {
	if job == nil {
		return errors.New("pool: job is nil")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.queue.push(job)
	p.callLocked()
	return nil
}

// Running returns how many jobs run now. It is never more than Cap.
func (p *Pool) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// Waiting returns how many jobs were submitted and have not started.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.len()
}

// Cap returns how many jobs may run at once, the size given to New.
func (p *Pool) Cap() int { return p.size }

// Close makes Submit refuse further jobs and waits until those that were submitted have ended, or until ctx
// is done; it then returns an error that wraps ctx.Err() and says how many are left. They go on: nothing is
// cancelled. Close may be called again to wait again. It does not wait for the goroutines, which end soon
// after.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.restLocked()
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
		if p.running+p.queue.len() == 0 {
			return nil
		}
		return fmt.Errorf("pool: close: running: %d, waiting: %d: %w",
			p.running, p.queue.len(), context.Cause(ctx))
	}
}

// callLocked starts a worker if one is of use: a job waits for which none was called, and the size has room.
func (p *Pool) callLocked() {
	if p.queue.len() <= p.starting || p.starting >= starters || p.running+p.starting >= p.size {
		return
	}
	p.starting++
	p.workers.start(p.work)
}

// work is a worker's life: it runs jobs until none waits, or until a job ends the goroutine; the place of a
// worker that went so is given to another.
func (p *Pool) work() {
	p.mu.Lock()
	p.starting--
	defer func() {
		p.callLocked()
		p.restLocked()
		p.mu.Unlock()
	}()
	called := false
	for job, ok := p.queue.pop(); ok; job, ok = p.queue.pop() {
		p.running++
		if !called {
			called = true
			p.callLocked()
		}
		p.runUnlocked(job)
	}
}

// runUnlocked runs job with the lock released. Whatever job does, the lock is held again at the end.
func (p *Pool) runUnlocked(job func()) {
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.running--
	}()
	defer p.recover()
	job()
}

// restLocked sends the goroutines home if there is nothing to do: soon if a job may yet come, at once if not.
func (p *Pool) restLocked() {
	if p.running+p.starting+p.queue.len() > 0 {
		return
	}
	switch {
	case p.closed:
		if p.idle != nil {
			p.idle.Stop()
		}
		p.workers.release()
		close(p.done)
	case p.idle == nil:
		p.idle = time.AfterFunc(rest, p.release)
	default:
		p.idle.Reset(rest)
	}
}

func (p *Pool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running+p.starting+p.queue.len() == 0 {
		p.workers.release()
	}
}
