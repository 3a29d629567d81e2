// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"time"
)

// WithDraw replaces the random numbers from 0 to 1 for the waits between attempts.
func WithDraw(draw func() float64) Option {
	return func(c *config) error {
		c.draw = draw
		return nil
	}
}

// WithClocks replaces the monotonic and the wall clock of a node, in nanoseconds.
func WithClocks(read func() (mono, wall int64)) Option {
	return func(c *config) error {
		c.clocks = read
		return nil
	}
}

// Held returns how many tasks the limiter of a kind holds, and how many groups it knows.
func Held(s *Scheduler, kind string) (tasks, groups int) {
	k := s.kinds.get(kind)
	k.Limiter.Locked(func() { tasks, groups = k.shares.Len(), len(k.shares.of) })
	return tasks, groups
}

// ShownLater makes a scheduler on a store believe that the clock showed a later time when it was last read.
func ShownLater(s *Scheduler, by time.Duration) error {
	k := s.below.(*keeper)
	return k.ask(context.Background(), op{do: func(*group) error {
		k.latest += int64(by)
		return nil
	}})
}
