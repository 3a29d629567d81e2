// SPDX-License-Identifier: MIT

package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/sirupsen/logrus"
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
		s := k.Use(durable.New(ctx, memory.New().Engine(), durable.WithSlog(to))).Scheduler
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
	if _, err := durable.New(ctx, memory.New().Engine(), durable.WithSlog(nil)); err == nil {
		t.Error("a logger that is nil is taken")
	}
}

// A callingHook is called for each line of the log.
type callingHook func(*logrus.Entry)

func (callingHook) Levels() []logrus.Level       { return logrus.AllLevels }
func (h callingHook) Fire(e *logrus.Entry) error { h(e); return nil }

// The scheduler calls the logger on a goroutine of its own: a logger that calls the scheduler, blocks, panics or ends its goroutine holds up
// nothing.
func TestLogger_doesAsItLikes_holdsUpNothing(t *testing.T) {
	log := testkit.Quiet()
	log.SetLevel(logrus.DebugLevel)
	var k *kit.Kit
	var parked, added atomic.Int32
	log.AddHook(callingHook(func(e *logrus.Entry) {
		n := int32(0)
		if strings.Contains(e.Message, "parked") {
			n = parked.Add(1)
		}
		if err := k.AddTask(ctx, durable.Task{Key: fmt.Sprint(e.Message, n), Kind: "note", Delay: hour}); err == nil {
			added.Add(1)
		}
		switch n {
		case 1:
			time.Sleep(10 * sec)
		case 2:
			panic("at the disco")
		case 3:
			runtime.Goexit()
		}
	}))
	kit.OnOwn(t, func(t *testing.T, rig *kit.Kit) {
		k = rig
		k.Handle("once", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(1, sec, sec))
		for i := range 20 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "once", Delay: time.Duration(i+1) * sec})
		}
		rig.After(25 * sec)
		if s := k.Stats(); s.ParkedTotal != 20 {
			t.Errorf("the accounts are %+v", s)
		}
		// The first notice takes ten seconds. The events of that time make one more notice, and so do the events of the
		// next ten.
		if n, a := parked.Load(), added.Load(); n != 3 || a < n {
			t.Errorf("%d notices, and %d tasks that the hook added", n, a)
		}
	}, durable.WithLogger(log))
}
