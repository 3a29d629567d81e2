// SPDX-License-Identifier: MIT

package durable

import (
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
)

// An Option changes how a scheduler made by [Open] or [New] behaves.
type Option func(*config) error

// config is what the options set.
type config struct {
	tick     time.Duration
	window   time.Duration
	poolSize int
	catchUp  int
	prints   bool
	log      logrus.FieldLogger
}

// slots is the size of the wheel: with the default tick and window one revolution is ten seconds.
const slots = 1024

func newConfig(opts []Option) (config, error) {
	c := config{
		tick: 10 * time.Millisecond, window: time.Minute, poolSize: 1024, catchUp: 10_000, prints: true,
		log: logrus.StandardLogger(),
	}
	for _, o := range opts {
		if o == nil {
			return c, errors.New("durable: nil option")
		}
		if err := o(&c); err != nil {
			return c, err
		}
	}
	c.window = max(c.window, leastWindow, 2*c.tick)
	c.catchUp = min(c.catchUp, mostCatchUp)
	return c, nil
}

const (
	leastWindow = 100 * time.Millisecond
	mostCatchUp = 1_000_000
)

// WithTick sets the tick of the wheel; 10 ms unless it is given. It is an error if d is not positive.
func WithTick(d time.Duration) Option {
	return func(c *config) error {
		c.tick = d
		return positive("tick", d)
	}
}

// WithWindow sets how long before it is due a task is taken into memory; one minute unless it is given. What is
// due within the window is what memory is needed for. Less than 100 ms, or than two ticks, count as that. It is
// an error if d is not positive.
func WithWindow(d time.Duration) Option {
	return func(c *config) error {
		c.window = d
		return positive("window", d)
	}
}

// WithPoolSize sets how many handlers may run at once; 1024 unless it is given. It is an error if n is not
// positive.
func WithPoolSize(n int) Option {
	return func(c *config) error {
		c.poolSize = n
		return positive("pool size", n)
	}
}

// WithCatchUp sets how many overdue tasks may start in a second after downtime; 10,000 unless it is given. It is
// an upper bound, to protect what the handlers call: overdue tasks run on spare workers alone, and do not delay
// what falls due now whatever the rate is. A rate that no worker was spare for is made up for by a tenth of a
// second at most. More than a million count as that. It is an error if n is not positive.
func WithCatchUp(n int) Option {
	return func(c *config) error {
		c.catchUp = n
		return positive("catch-up rate", n)
	}
}

// WithoutFingerprints saves the 9 to 18 bytes of memory that the scheduler spends on each task to know, mostly
// without a look at the disk, that a key is free. It makes adding slower.
func WithoutFingerprints() Option {
	return func(c *config) error {
		c.prints = false
		return nil
	}
}

// WithLogger has the scheduler and its wheel write to l in place of logrus.StandardLogger(). It logs what is
// parked, kinds without a handler, a store that fails, and handlers that panic; never a task or a run that goes
// well. A hook of l may call the scheduler. A logger that is slow holds up nothing else: what comes up meanwhile
// is written as one line. It is an error if l is nil.
func WithLogger(l logrus.FieldLogger) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("durable: logger is nil")
		}
		c.log = l
		return nil
	}
}

func positive[N ~int | ~int64](what string, n N) error {
	if n <= 0 {
		return fmt.Errorf("durable: %s %v is not positive", what, n)
	}
	return nil
}
