// SPDX-License-Identifier: MIT

//go:build unix

package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// BenchmarkPage measures the processor time of a process with a million tasks, without a page and with one open, as a
// share of one core. An iteration is one second of the page. The time of the reader is included.
func BenchmarkPage(b *testing.B) {
	const tasks = 1_000_000
	for _, c := range []struct {
		name   string
		source func(b *testing.B, tasks int) Source
		read   func(ctx context.Context, address string, forget func()) error
	}{
		{"wheel", fullWheel, readEvents},
		{"scheduler", fullScheduler, pollScheduler},
		{"scheduler, all overdue and without a handler", overdueScheduler, pollScheduler},
		{"scheduler, all failing", failingScheduler, pollScheduler},
	} {
		b.Run(c.name, func(b *testing.B) {
			srv := httptest.NewServer(Handler([]Source{c.source(b, tasks)}))
			defer srv.Close()
			b.Run("no page", func(b *testing.B) { measure(b, nil) })
			b.Run("one page", func(b *testing.B) {
				measure(b, func(ctx context.Context, shown func()) error { return c.read(ctx, srv.URL+"/api/", shown) })
			})
		})
	}
}

// measure measures for b.N seconds, starting when the page is shown.
func measure(b *testing.B, page func(ctx context.Context, shown func()) error) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	shown, ended := make(chan struct{}), make(chan error, 1)
	if page == nil {
		close(shown)
		ended <- nil
	} else {
		go func() { ended <- page(ctx, func() { close(shown) }) }()
	}
	<-shown
	b.ResetTimer()
	began, before := time.Now(), used(b)
	time.Sleep(time.Duration(b.N) * time.Second)
	b.ReportMetric(100*float64(used(b)-before)/float64(time.Since(began)), "%/core")
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
}

// used returns the processor time of the process.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func get(ctx context.Context, address string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// readEvents does the work of a page of a wheel.
func readEvents(ctx context.Context, api string, shown func()) error {
	body, err := get(ctx, api+"events")
	if err != nil {
		return err
	}
	defer body.Close()
	r := bufio.NewReader(body)
	if _, err := r.ReadString('\n'); err != nil {
		return err
	}
	shown()
	_, err = io.Copy(io.Discard, r)
	return err
}

// pollScheduler does the work of a page of a scheduler: it reads the state every second, and the failures once, when it
// is opened.
func pollScheduler(ctx context.Context, api string, shown func()) error {
	for target, first := api+"scheduler", true; ; first = false {
		body, err := get(ctx, target)
		if err != nil {
			return err
		}
		var state struct{ History []struct{ N int64 } }
		if err := json.NewDecoder(body).Decode(&state); err != nil {
			return err
		}
		body.Close()
		if n := len(state.History); n > 0 {
			target = fmt.Sprintf("%sscheduler?after=%d", api, state.History[n-1].N)
		}
		if first {
			if body, err = get(ctx, api+"failures"); err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, body)
			body.Close()
			shown()
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func fullWheel(b *testing.B, tasks int) Source {
	rec := NewRecorder()
	tw, err := timewheel.New(10*time.Millisecond, 1<<16, timewheel.WithLogger(testkit.Quiet()), rec.Option())
	if err != nil {
		b.Fatal(err)
	}
	tw.Start()
	b.Cleanup(tw.Stop)
	for i := range tasks {
		d := time.Hour + time.Duration(i)*time.Millisecond
		if err := tw.AddTask(&timewheel.Task{Key: fmt.Sprint("key-", i), Interval: d, Job: func(*timewheel.Task) {}}); err != nil {
			b.Fatal(err)
		}
	}
	return Wheel("wheel", tw, rec)
}

// openScheduler returns a scheduler on the engine. The scheduler is not started.
func openScheduler(b *testing.B, on engine.Engine, kind string, h durable.Handler) (*durable.Scheduler, Source) {
	rec := NewAttemptRecorder()
	s, err := durable.New(b.Context(), on, rec.Option(), durable.WithLogger(testkit.Quiet()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	if err := s.Handle(kind, h, durable.WithRetry(1, time.Second, time.Second)); err != nil {
		b.Fatal(err)
	}
	return s, Scheduler("tasks", s, rec)
}

func putAll(b *testing.B, s *durable.Scheduler, tasks int, delay time.Duration) {
	const batch = 1000
	for i := 0; i < tasks; i += batch {
		if err := s.AddTask(b.Context(), many(batch, fmt.Sprint("key-", i), "kind", delay)...); err != nil {
			b.Fatal(err)
		}
	}
}

func fullScheduler(b *testing.B, tasks int) Source {
	s, source := openScheduler(b, memory.New().Engine(), "kind", works)
	putAll(b, s, tasks, time.Hour)
	if err := s.Start(); err != nil {
		b.Fatal(err)
	}
	return source
}

func overdueScheduler(b *testing.B, tasks int) Source {
	m := memory.New()
	before, _ := openScheduler(b, m.Engine(), "kind", works)
	putAll(b, before, tasks, time.Nanosecond)
	next := m.Clone().Engine()
	if err := before.Shutdown(b.Context()); err != nil {
		b.Fatal(err)
	}
	s, source := openScheduler(b, next, "other", works)
	if err := s.Start(); err != nil {
		b.Fatal(err)
	}
	return source
}

func failingScheduler(b *testing.B, tasks int) Source {
	s, source := openScheduler(b, memory.New().Engine(), "kind", func(context.Context, durable.Run) error { return errRefused })
	putAll(b, s, tasks, time.Nanosecond)
	if err := s.Start(); err != nil {
		b.Fatal(err)
	}
	for s.Stats().Parked < tasks {
		time.Sleep(time.Second)
	}
	return source
}
