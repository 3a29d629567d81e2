// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"log/slog"

	"github.com/sirupsen/logrus"
)

// WithLogger makes the wheel log to l instead of logrus.StandardLogger(). Panics (with key and stack) and job errors
// that no [WithErrorHandler] receives are logged as errors, refusals by the executor as warnings, and the wheel's own
// start and stop as debug messages. The wheel never logs ticks, added tasks or runs. If both WithLogger and [WithSlog]
// are given, the last one takes effect. WithLogger panics if l is nil.
func WithLogger(l logrus.FieldLogger) Option {
	if l == nil {
		panic("timewheel: nil logger")
	}
	return func(c *config) error {
		c.report.log = logger{toLogrus(l)}
		return nil
	}
}

// WithSlog is like [WithLogger], but for a logger from package log/slog. It panics if l is nil.
func WithSlog(l *slog.Logger) Option {
	if l == nil {
		panic("timewheel: nil slog logger")
	}
	return func(c *config) error {
		c.report.log = logger{func(level slog.Level, message string, fields ...any) {
			l.Log(context.Background(), level, message, fields...)
		}}
		return nil
	}
}

// A logger writes to the user's logger. It discards that logger's panics, because there is nowhere else to report them.
type logger struct {
	write func(level slog.Level, message string, fields ...any) // fields are name-value pairs, as in package slog
}

func newLogger() logger { return logger{toLogrus(logrus.StandardLogger())} }

func toLogrus(l logrus.FieldLogger) func(level slog.Level, message string, fields ...any) {
	return func(level slog.Level, message string, fields ...any) {
		with := make(logrus.Fields)
		for i := 0; i+1 < len(fields); i += 2 {
			with[fields[i].(string)] = fields[i+1]
		}
		switch l := l.WithFields(with); level {
		case slog.LevelError:
			l.Error(message)
		case slog.LevelWarn:
			l.Warn(message)
		default:
			l.Debug(message)
		}
	}
}

func (l logger) log(level slog.Level, message string, fields ...any) {
	defer func() { _ = recover() }()
	l.write(level, "timewheel: "+message, fields...)
}

func (l logger) lifecycle(event string) { l.log(slog.LevelDebug, event) }
