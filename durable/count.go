// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"sync"
	"time"
)

// A count takes the census of an engine, in the background and not too often: see [Scheduler.Census].
type count struct {
	mu    sync.Mutex // protects below
	last  Census     // At is zero before the first
	begun time.Time  // when the last one that has ended was begun, and
	took  time.Duration
	err   error
	done  chan struct{} // closed when the one that is under way has ended; nil if none is
}

const (
	// A count that took longer than briefCount is used for countShare times as long.
	briefCount = 5 * time.Millisecond
	countShare = 100

	// countTimeout is how long a count may take.
	countTimeout = time.Minute
)

// take returns the last census that take has returned, or that of a new one if it is due and does not take longer
// than lookFor. The error is that of the last one.
func (c *count) take(ctx context.Context, do func() (Census, error)) (Census, error) {
	c.mu.Lock()
	if c.done == nil && (c.last.At.IsZero() || c.err != nil || c.took <= briefCount ||
		time.Since(c.begun) >= c.took+countShare*c.took) {
		c.done = make(chan struct{})
		go c.run(do)
	}
	done := c.done
	c.mu.Unlock()
	if done != nil {
		timer := time.NewTimer(lookFor)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		case <-ctx.Done():
			return Census{}, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.err
}

// read returns the last census.
func (c *count) read() Census {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *count) run(do func() (Census, error)) {
	begun := time.Now()
	taken, err := do()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun, c.took, c.err = begun, time.Since(begun), err
	if err == nil {
		c.last = taken
	}
	close(c.done)
	c.done = nil
}
