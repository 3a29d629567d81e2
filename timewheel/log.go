// SPDX-License-Identifier: MIT

package timewheel

import (
	"errors"

	"github.com/sirupsen/logrus"
)

// WithLogger has the wheel write to l in place of logrus.StandardLogger(). It logs panics with key and stack
// as errors, an executor that refuses as a warning, and its start and stop for debugging; never a tick, an
// add or a run. It is an error if l is nil.
func WithLogger(l logrus.FieldLogger) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("timewheel: logger is nil")
		}
		c.log = logger{l}
		return nil
	}
}

// A logger writes to the user's logger, whose panics it swallows: there is nowhere left to report them.
type logger struct{ l logrus.FieldLogger }

func newLogger() logger { return logger{logrus.StandardLogger()} }

func (l logger) panicked(key string, value any, stack []byte) {
	defer func() { _ = recover() }()
	l.l.WithFields(logrus.Fields{"key": key, "panic": value, "stack": string(stack)}).
		Error("timewheel: job panicked")
}

func (l logger) misbehaved(what string, value any, stack []byte) {
	defer func() { _ = recover() }()
	l.l.WithFields(logrus.Fields{"panic": value, "stack": string(stack)}).
		Error("timewheel: " + what + " panicked")
}

func (l logger) refused(err error) {
	defer func() { _ = recover() }()
	l.l.WithError(err).Warn("timewheel: executor refuses work, asking again until it takes it")
}

func (l logger) lifecycle(event string) {
	defer func() { _ = recover() }()
	l.l.Debug("timewheel: " + event)
}
