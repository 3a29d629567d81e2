// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/timewheel/timewheeltest"
)

// A downReceiver is a receiver in a bubble that is down until a time. It counts the requests, by key.
type downReceiver struct {
	*testing.T
	until time.Time
	takes time.Duration // a request

	mu         sync.Mutex
	calls      map[string]int
	down       int // requests while it was down
	inProgress int
	most       int // in progress at once, after the first minute
	begun      time.Time
}

func (d *downReceiver) answer(r *http.Request) int {
	key := r.Header.Get(headerKey)
	d.mu.Lock()
	d.calls[key]++
	if got := r.Header.Get(headerAttempt); got != strconv.Itoa(d.calls[key]) {
		d.Errorf("request %d for %s is attempt %s", d.calls[key], key, got)
	}
	isDown := time.Now().Before(d.until)
	if isDown {
		d.down++
		d.inProgress++
		if time.Since(d.begun) > time.Minute {
			d.most = max(d.most, d.inProgress)
		}
	}
	d.mu.Unlock()
	if !isDown {
		return http.StatusOK
	}
	time.Sleep(d.takes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inProgress--
	return []int{0, http.StatusServiceUnavailable}[d.down%2]
}

// A receiver that is down for an hour gets few requests, one at a time. Waiting uses up no attempt, so no task is parked,
// and all are delivered when it is back. Another kind is not affected.
func TestBreaker_receiverDownForAnHour_isSpared_andNothingIsLost(t *testing.T) {
	const tasks, concurrency = 200, 20
	for _, c := range []struct {
		name  string
		takes time.Duration
	}{{"it refuses", 0}, {"it is slow", 3 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := config(t, "", `{"listen": "127.0.0.1:0", "kinds": {
					"k": {`+https+`, "concurrency": `+strconv.Itoa(concurrency)+`, "retry": {"most": "10m"}}, "good": {`+https+`}}}`)
				begun := time.Now()
				at := &downReceiver{T: t, until: begun.Add(time.Hour), takes: c.takes, begun: begun, calls: make(map[string]int)}
				var good []time.Time
				s, breakers, log := startInBubble(t, cfg, func(r *http.Request) int {
					if r.Header.Get(headerKind) == "good" {
						good = append(good, time.Now())
						return http.StatusOK
					}
					return at.answer(r)
				})
				var all []durable.Task
				for i := range tasks { // half of them at once, and half in the course of the hour
					all = append(all, durable.Task{Key: keyOf("a", i), Kind: "k",
						Delay: max(0, time.Duration(i-tasks/2)*time.Hour/tasks)})
				}
				check(t, s.AddTask(t.Context(), all...))
				timewheeltest.Advance(30 * time.Minute)
				b := breakers["k"]
				equal(t, "whether the breaker is open", b.isOpen(), true)
				equal(t, "whether that of another kind is open", breakers["good"].isOpen(), false)
				check(t, s.AddTask(t.Context(), durable.Task{Key: "good", Kind: "good"}))
				timewheeltest.Advance(30 * time.Minute)
				equal(t, "the number of good runs", len(good), 1)
				if late := good[0].Sub(begun.Add(30 * time.Minute)); late > time.Second {
					t.Errorf("the good run is %v late", late)
				}
				// Pauses of 1 to 9 s, and then of 10 s.
				if most := concurrency + 10 + int(time.Hour/mostPause); at.down > most || at.down < most/4 {
					t.Errorf("it got %d requests while it was down, want at most %d", at.down, most)
				}
				equal(t, "the number of requests at once", at.most, 1)
				parked, err := s.Find(t.Context(), durable.Query{State: durable.Parked})
				check(t, err)
				equal(t, "the number of parked tasks", len(parked.Tasks), 0)
				timewheeltest.Advance(mostWaiting + time.Minute)
				equal(t, "the number of tasks that are left", s.Len(), 0)
				equal(t, "the number of tasks that were called", len(at.calls), tasks)
				equal(t, "whether the breaker is open in the end", b.isOpen(), false)
				equal(t, "the number of lines that it opens", log.count("a receiver fails"), 1)
				equal(t, "the number of lines that it closes", log.count("a receiver answers again"), 1)
			})
		})
	}
}

// Only a receiver that does not answer, or answers with 429 or 5xx, opens the breaker, and only several times in a row.
func TestBreaker_opens_afterFailuresInARow(t *testing.T) {
	repeat := func(status, n int) (all []int) {
		for range n {
			all = append(all, status)
		}
		return all
	}
	for _, c := range []struct {
		name     string
		statuses []int
		want     bool
	}{
		{"no answer", repeat(0, 5), true},
		{"429", repeat(429, 5), true},
		{"500", repeat(500, 5), true},
		{"503", repeat(503, 5), true},
		{"599", repeat(599, 5), true},
		{"four", repeat(500, 4), false},
		{"of two kinds", []int{0, 500, 429, 503, 0}, true},
		{"one in between", []int{500, 500, 500, 500, 404, 500, 500, 500, 500}, false},
		{"200", repeat(200, 9), false},
		{"302", repeat(302, 9), false},
		{"400", repeat(400, 9), false},
		{"410", repeat(410, 9), false},
		{"499", repeat(499, 9), false},
	} {
		h := calling(t, func(n int) int { return c.statuses[n] })
		for range c.statuses {
			if h.attempt(t.Context()) {
				t.Errorf("%s: an attempt waits too early", c.name)
			}
		}
		equal(t, c.name+": whether it is open", h.breaker.isOpen(), c.want)
	}
}

// While an attempt is in progress there is no other, and after a failure there is a pause. Any answer closes the breaker,
// also of an attempt that began before it opened. One that was cancelled shows nothing.
func TestBreaker_whileOpen_admitsOneAttempt(t *testing.T) {
	b := &breaker{log: slog.New(slog.DiscardHandler)}
	now := time.Unix(0, 0)
	admits := func(what string, want bool) {
		t.Helper()
		probe, is := b.admit(now)
		equal(t, what, is, want)
		equal(t, what+", as a probe", probe, want)
	}
	for range mostFailures {
		b.admit(now)
		b.end(false, isFailing, nil, now)
	}
	admits("at once", false)
	now = now.Add(time.Second)
	admits("after a second", true)
	admits("while one is in progress", false)
	b.end(false, isFailing, nil, now) // it began before
	now = now.Add(time.Hour)
	admits("after the end of another", false)
	b.end(true, isUnknown, nil, now)
	admits("after one that was cancelled", true)
	b.end(true, isFailing, nil, now)
	for pause := 2 * time.Second; pause <= 20*time.Second; pause += time.Second {
		now = now.Add(min(pause, mostPause) - 1)
		admits("before the end of the pause", false)
		now = now.Add(1)
		admits(fmt.Sprint("after ", pause), true)
		b.end(true, isFailing, nil, now)
	}
	b.end(false, isAnswering, nil, now)
	for range 2 {
		if probe, is := b.admit(now); probe || !is {
			t.Errorf("an attempt after an answer is admitted: %t, as a probe: %t", is, probe)
		}
	}
}

// An attempt that an operator cancels is no failure of its receiver, and one that times out is.
func TestBreaker_cancelledAttempts_doNotCount(t *testing.T) {
	h := calling(t, func(int) int { return 0 })
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(durable.ErrCancelled)
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	for ctx, want := range map[context.Context]bool{cancelled: false, late: true} {
		h.breaker.failures = 0
		for range mostFailures {
			h.attempt(ctx)
		}
		equal(t, fmt.Sprint("whether it is open after ", context.Cause(ctx)), h.breaker.isOpen(), want)
	}
}

// A service with runs that wait stops at once: they are in the store.
func TestBreaker_waitingRuns_doNotDelayTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t, "", `{"listen": "127.0.0.1:0", "kinds": {"k": {`+https+`, "concurrency": 5}}}`)
		s, breakers, _ := startInBubble(t, cfg, func(*http.Request) int { return 0 })
		for i := range 50 {
			check(t, s.AddTask(t.Context(), durable.Task{Key: keyOf("a", i), Kind: "k"}))
		}
		timewheeltest.Advance(10 * time.Minute)
		equal(t, "whether the breaker is open", breakers["k"].isOpen(), true)
		equal(t, "the number of tasks", s.Len(), 50)
		begun := time.Now()
		check(t, s.Shutdown(t.Context()))
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}

// The metrics and the page show which breaker is open, and the history which attempts have waited.
func TestBreaker_isShown(t *testing.T) {
	var up atomic.Bool
	at := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	r := start(t, config(t, at, `{"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}, "kinds": {
		"k": {`+local+`, "history": {}}, "other": {`+local+`}}}`))
	admin := &rig{T: t, url: "http://" + r.srv.AdminAddr().String()}
	shows := func(text string) bool { return strings.Contains(admin.must(200, "GET", "/metrics", ""), text) }
	notes := func() []any {
		return jsonOf(t, admin.must(200, "GET", "/api/scheduler", ""))["health"].(map[string]any)["notes"].([]any)
	}
	before := time.Now()
	equal(t, "the number of notes", len(notes()), 0)
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
	until(t, "the metric says that the breaker is open", func() bool { return shows(`timewheel_serve_breaker_open{kind="k"} 1`) })
	if !shows(`timewheel_serve_breaker_open{kind="other"} 0`) {
		t.Error("that of another kind is not closed")
	}
	equal(t, "the number of lines", r.log.count(`its kind gets one attempt at a time, and the others wait" kind=k failures=5 `+
		`error="webhook: answer 502 Bad Gateway"`), 1)
	if all := notes(); len(all) != 1 {
		t.Errorf("the notes are %v", all)
	} else {
		note := all[0].(map[string]any)
		equal(t, "the note", note["text"].(string), "The receiver of kind k fails, so the kind gets one attempt at a time, and its other "+
			"due tasks wait: webhook: answer 502 Bad Gateway")
		equal(t, "its kind", note["about"].(string), "k")
		since, err := time.Parse(time.RFC3339, note["since"].(string))
		check(t, err)
		if since.Before(before.Truncate(time.Second)) || since.After(time.Now()) {
			t.Errorf("it says since %v", since)
		}
	}
	up.Store(true)
	r.ends("a")
	equal(t, "the number of notes after an answer", len(notes()), 0)
	if !shows(`timewheel_serve_breaker_open{kind="k"} 0`) {
		t.Error("it is still open after an answer")
	}
	until(t, "the history has an attempt that has waited", func() bool {
		return strings.Contains(r.must(200, "GET", "/history?outcome=snoozed", ""), `"key":"a"`)
	})
}

// A lone webhook runs without a scheduler.
type lone struct{ *webhook }

// calling returns a webhook whose request n is answered with the status that f returns.
func calling(t *testing.T, f func(n int) (status int)) lone {
	cfg := config(t, "", `{"listen": "127.0.0.1:0", "kinds": {"k": {`+https+`}}}`)
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "answers"}, []string{"kind", "code"})
	h := newWebhook("k", cfg.Kinds["k"], answers, &breaker{kind: "k", log: slog.New(slog.DiscardHandler)})
	n := -1
	h.client.Transport = fakeReceiver(func(*http.Request) int {
		n++
		return f(n)
	})
	return lone{h}
}

// attempt makes an attempt, and reports whether it waits.
func (l lone) attempt(ctx context.Context) (waits bool) {
	return durable.IsSnooze(l.run(ctx, durable.Run{Due: time.Unix(0, 0)}))
}
