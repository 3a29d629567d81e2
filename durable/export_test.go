// SPDX-License-Identifier: MIT

package durable

// WithDraw replaces the random numbers from 0 to 1 for the waits between attempts.
func WithDraw(draw func() float64) Option {
	return func(c *config) error {
		c.Draw = draw
		return nil
	}
}

// WithClocks replaces the monotonic and the wall clock of a node, in nanoseconds.
func WithClocks(read func() (mono, wall int64)) Option {
	return func(c *config) error {
		c.Clocks = read
		return nil
	}
}

// InMemory is node.InMemory.
func InMemory(s *Scheduler, kind string) (n, size int) { return s.node.InMemory(kind) }

// Drift is node.Drift.
func Drift(s *Scheduler) []string { return s.node.Drift() }
