// SPDX-License-Identifier: MIT

package durable

// WithDraw replaces the numbers from 0 to 1 that are drawn for the waits between attempts.
func WithDraw(draw func() float64) Option {
	return func(c *config) error {
		c.draw = draw
		return nil
	}
}

// Held returns how many tasks the gate of a kind holds, and of how many groups it knows.
func Held(s *Scheduler, kind string) (tasks, groups int) {
	g := s.kinds.get(kind).gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held.len(), len(g.held.of)
}
