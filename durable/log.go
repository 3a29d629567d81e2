// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"
)

// WithLogger sets the logger of the scheduler and its wheel. The default is logrus.StandardLogger(). The scheduler logs
// parked tasks, kinds without a handler, a failed engine, an unavailable engine, an expired lease, unreadable records,
// handler panics, and notes from [Run.Complete]. It does not log successful runs without a note. Hooks of l may call
// the scheduler. A slow logger does not delay the scheduler. Events that occur while the logger is busy are combined
// into one line for each type of event. After the first task of a kind is parked with a given error, further ones are
// combined into one line every ten seconds. If both WithLogger and [WithSlog] are used, the last one wins. l must not
// be nil.
func WithLogger(l logrus.FieldLogger) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("durable: logger is nil")
		}
		c.Log = l
		return nil
	}
}

// WithSlog is like [WithLogger], but for a logger from package log/slog. l must not be nil.
func WithSlog(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("durable: slog logger is nil")
		}
		log := logrus.New()
		log.SetOutput(io.Discard)
		log.SetFormatter(unformatted{})
		log.SetLevel(logrus.TraceLevel) // l applies its own level
		log.AddHook(slogHook{l})
		c.Log = log
		return nil
	}
}

// A slogHook forwards log entries to a slog logger.
type slogHook struct{ to *slog.Logger }

func (slogHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h slogHook) Fire(e *logrus.Entry) error {
	level := slog.LevelDebug
	switch {
	case e.Level <= logrus.ErrorLevel:
		level = slog.LevelError
	case e.Level == logrus.WarnLevel:
		level = slog.LevelWarn
	case e.Level == logrus.InfoLevel:
		level = slog.LevelInfo
	}
	var with []any
	for _, name := range slices.Sorted(maps.Keys(e.Data)) {
		with = append(with, name, e.Data[name])
	}
	h.to.Log(context.Background(), level, e.Message, with...)
	return nil
}

// unformatted is a formatter without output. The hook receives the entry itself.
type unformatted struct{}

func (unformatted) Format(*logrus.Entry) ([]byte, error) { return nil, nil }
