// SPDX-License-Identifier: MIT

package durable

// WithDraw replaces the numbers from 0 to 1 that are drawn for the waits between attempts.
func WithDraw(draw func() float64) Option {
	return func(c *config) error {
		c.draw = draw
		return nil
	}
}
