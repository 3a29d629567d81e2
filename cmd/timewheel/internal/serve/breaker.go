// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed581295f1/timewheel/dashboard"
)

const (
	mostFailures = 5                // in a row, before the breaker opens
	mostPause    = 10 * time.Second // between two attempts while it is open
	leastWait    = time.Second      // of a run that is not attempted
	mostWaiting  = 10 * time.Minute
)

// A health says how the receiver of a kind does, as an attempt shows it.
type health int

const (
	isUnknown   health = iota // the attempt was cancelled
	isAnswering               // any other answer
	isFailing                 // no answer, 429 or 5xx
)

func healthOf(status int) health {
	if status == http.StatusTooManyRequests || status >= 500 {
		return isFailing
	}
	return isAnswering
}

// A breaker decides whether a kind may call its receiver. It is closed until mostFailures attempts in a row were failing.
// Then it is open: it admits one attempt at a time, with pauses that grow from one second to mostPause. It closes when the
// receiver answers any attempt, also one that began before.
type breaker struct {
	kind string
	log  *slog.Logger

	mu       sync.Mutex // protects below
	failures int        // in a row; while it is open, only of the attempts that it admits
	probing  bool       // it is open, and an attempt that it admitted is in progress
	next     time.Time  // when it admits another attempt while it is open
	since    time.Time  // when it was opened
	err      error      // of the last failing attempt that counts
}

// isOpen reports whether the kind gets one attempt at a time.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= mostFailures
}

// note returns a note for the page, or nil unless the breaker is open.
func (b *breaker) note() []dashboard.Note {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < mostFailures {
		return nil
	}
	return []dashboard.Note{{Kind: b.kind, Since: b.since, Text: fmt.Sprintf(
		"The receiver of kind %s fails, so the kind gets one attempt at a time, and its other due tasks wait: %v", b.kind, b.err)}}
}

// notes returns the notes of all kinds for the page.
func (srv *Server) notes() (all []dashboard.Note) {
	for _, kind := range slices.Sorted(maps.Keys(srv.webhooks)) {
		all = append(all, srv.webhooks[kind].Load().breaker.note()...)
	}
	return all
}

// gauge returns a metric that is 1 while the breaker is open.
func (b *breaker) gauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "timewheel_serve_breaker_open", ConstLabels: prometheus.Labels{"kind": b.kind},
		Help: "1 while the receiver of the kind fails and gets one attempt at a time, otherwise 0.",
	}, func() float64 {
		if b.isOpen() {
			return 1
		}
		return 0
	})
}

// admit reports whether a run may call the receiver. If so, the caller must pass probe to end.
func (b *breaker) admit(now time.Time) (probe, admitted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < mostFailures {
		return false, true
	}
	if b.probing || now.Before(b.next) {
		return false, false
	}
	b.probing = true
	return true, true
}

// end ends an attempt. The error is that of a failing one.
func (b *breaker) end(probe bool, is health, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe {
		b.probing = false
	}
	wasOpen := b.failures >= mostFailures
	switch {
	case is == isAnswering:
		b.failures = 0
		if wasOpen {
			b.log.Info("a receiver answers again", "kind", b.kind, "after", now.Sub(b.since).Round(time.Second).String())
		}
	case is == isFailing && (probe || !wasOpen):
		b.failures, b.err = b.failures+1, err
		b.next = now.Add(min(time.Duration(b.failures-mostFailures+1)*time.Second, mostPause))
		if !wasOpen && b.failures == mostFailures {
			b.since = now
			b.log.Warn("a receiver fails, so its kind gets one attempt at a time, and the others wait", "kind", b.kind,
				"failures", b.failures, "error", err)
		}
	}
}

// waitOf returns how long a run waits that is not admitted: half as long as it is already late, within bounds, and
// shortened at random by up to half, so that the breaker is asked often even if all runs were due at once.
func waitOf(late time.Duration) time.Duration {
	wait := min(max(late/2, leastWait), mostWaiting)
	return wait - rand.N(wait/2)
}
