// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/timewheel/timewheeltest"
)

// A fakeReceiver answers requests of a synctest bubble without a connection. A status 0 is no answer.
type fakeReceiver func(r *http.Request) (status int)

func (f fakeReceiver) RoundTrip(r *http.Request) (*http.Response, error) {
	status := f(r)
	if status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: status, Header: make(http.Header), Body: http.NoBody, Request: r}, nil
}

// startInBubble starts a scheduler with the kinds of a configuration, whose webhooks call the receiver. It returns the
// breakers by kind, and their log.
func startInBubble(t *testing.T, cfg *Config, at fakeReceiver) (*durable.Scheduler, map[string]*breaker, *lines) {
	t.Helper()
	log := new(lines)
	s, err := durable.New(t.Context(), memory.New().Engine(), durable.WithPoolSize(cfg.workers()))
	check(t, err)
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "answers"}, []string{"kind", "code"})
	breakers := make(map[string]*breaker)
	for name, of := range cfg.Kinds {
		h := newWebhook(name, of, answers, &breaker{kind: name, log: slog.New(slog.NewTextHandler(log, nil))})
		h.client.Transport = at
		breakers[name] = h.breaker
		check(t, s.Handle(name, h.run, of.options()...))
	}
	check(t, s.Start())
	t.Cleanup(func() { check(t, s.Shutdown(context.Background())) })
	return s, breakers, log
}

// By default the attempts of a run last for most of a day, and as long as HTTP.md says.
func TestRetry_byDefault_lastsForMostOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t, "", `{"listen": "127.0.0.1:0", "kinds": {"k": {`+https+`}}}`)
		var longest time.Duration
		for wait, n := time.Second, 1; n < defaultAttempts; n++ {
			longest += wait
			wait = min(2*wait, time.Hour)
		}
		begun := time.Now()
		var calls int
		var last time.Time
		s, _, _ := startInBubble(t, cfg, func(*http.Request) int {
			calls++
			last = time.Now()
			return http.StatusBadRequest
		})
		check(t, s.AddTask(t.Context(), durable.Task{Key: "a", Kind: "k"}))
		timewheeltest.Advance(longest + time.Hour)
		info, _, err := s.Get(t.Context(), "a")
		check(t, err)
		equal(t, "whether it is parked", info.State == durable.Parked, true)
		equal(t, "the number of calls", calls, defaultAttempts)
		if took := last.Sub(begun); took < longest/2 || took > longest+time.Minute {
			t.Errorf("the attempts took %v, want %v to %v", took, longest/2, longest)
		}
		hours := func(d time.Duration) string { return strconv.Itoa(int(d.Round(time.Hour).Hours())) }
		readme, err := os.ReadFile("../../HTTP.md")
		check(t, err)
		if text := hours(longest/2) + " to " + hours(longest) + " hours"; !strings.Contains(string(readme), text) {
			t.Errorf("HTTP.md does not contain %q", text)
		}
	})
}
