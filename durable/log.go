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
// parked tasks, kinds without a handler, a failed store, an unavailable engine, an expired lease, unreadable records,
// panics of handlers, and the notes of [Run.Complete]. It logs no other successful run. A hook of l may call the
// scheduler. A slow logger delays nothing else: events that happen in the meantime share one line. The last of
// WithLogger and [WithSlog] wins. l must not be nil.
func WithLogger(l logrus.FieldLogger) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("durable: logger is nil")
		}
		c.log = l
		return nil
	}
}

// WithSlog is [WithLogger] for a logger of package log/slog. l must not be nil.
func WithSlog(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("durable: slog logger is nil")
		}
		log := logrus.New()
		log.SetOutput(io.Discard)
		log.SetFormatter(unformatted{})
		log.SetLevel(logrus.TraceLevel) // l decides
		log.AddHook(slogHook{l})
		c.log = log
		return nil
	}
}

// A slogHook forwards log entries.
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

// unformatted formats nothing, because the hook gets the entry itself.
type unformatted struct{}

func (unformatted) Format(*logrus.Entry) ([]byte, error) { return nil, nil }
