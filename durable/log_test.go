// SPDX-License-Identifier: MIT

package durable_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/durable/memstore"
)

// The log lines of the scheduler and its wheel go to a logger of package log/slog, with their level and fields.
func TestWithSlog(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		var out bytes.Buffer
		to := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))
		s := k.Use(durable.New(memstore.New(), durable.WithSlog(to))).Scheduler
		k.Must(s.Handle("mail", func(context.Context, durable.Run) error { return durable.Park(errors.New("no address")) }),
			s.Start(), s.AddTask(t.Context(), durable.Task{Key: "k", Kind: "mail"}))
		k.After(time.Minute)
		k.Must(s.Shutdown(t.Context()))
		for _, want := range []string{
			`level=WARN msg="durable: a task is parked" failure="no address" kind=mail task=k`,
			`level=DEBUG msg="timewheel: `,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log has no line %s:\n%s", want, out.String())
			}
		}
	})
	if _, err := durable.New(memstore.New(), durable.WithSlog(nil)); err == nil {
		t.Error("a logger that is nil is taken")
	}
}
