// SPDX-License-Identifier: MIT

package durable

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

// InMemory returns how many tasks of the kind, or of all kinds if it is empty, the scheduler holds, and roughly how many
// bytes they take.
func InMemory(s *Scheduler, kind string) (n, size int) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	for _, l := range s.node.held {
		if kind == "" || l.Rec.Kind == kind {
			n, size = n+1, size+l.Rec.Size()
		}
	}
	return n, size
}
