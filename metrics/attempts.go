// SPDX-License-Identifier: MIT

package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed581295f1/timewheel/durable"
)

// Attempts holds histograms of handler calls on one durable scheduler, by kind.
type Attempts struct {
	duration, lateness *prometheus.HistogramVec
	kinds              byKind[attempts]
}

// attempts holds the histograms of one kind.
type attempts struct{ duration, lateness prometheus.Observer }

// NewAttempts returns empty histograms.
func NewAttempts() *Attempts {
	vec := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(histogramOf(name, help), []string{"kind"})
	}
	a := &Attempts{
		duration: vec("timewheel_durable_run_duration_seconds", "Time from the call of a handler until its end."),
		lateness: vec("timewheel_durable_run_lateness_seconds",
			"Time from when a run, or after a failure its next attempt, was due until the call of the handler."),
	}
	a.kinds.make = func(label string) attempts {
		return attempts{a.duration.WithLabelValues(label), a.lateness.WithLabelValues(label)}
	}
	return a
}

// Option returns a scheduler option that makes the scheduler record its attempts in a.
func (a *Attempts) Option() durable.Option { return durable.WithObserver(a.Observe) }

// Observe records an attempt.
func (a *Attempts) Observe(at durable.Attempt) {
	of := a.kinds.get(at.Kind)
	of.duration.Observe(at.Ended.Sub(at.Started).Seconds())
	of.lateness.Observe(at.Started.Sub(at.Due).Seconds())
}

// mostKinds is the maximum number of kinds with their own value of the label kind. All further kinds share the value
// other, so that a program that generates kinds does not create an unbounded number of series.
const mostKinds = 100

// byKind holds a T for each of the first mostKinds kinds, and one that all further kinds share.
type byKind[T any] struct {
	make func(label string) T

	mu   sync.RWMutex // protects the fields below
	of   map[string]T
	rest *T
}

func (b *byKind[T]) get(kind string) T {
	b.mu.RLock()
	of, ok := b.of[kind]
	b.mu.RUnlock()
	if ok {
		return of
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if of, ok := b.of[kind]; ok {
		return of
	}
	if len(b.of) < mostKinds {
		if b.of == nil {
			b.of = make(map[string]T)
		}
		of = b.make(strings.ToValidUTF8(kind, "\uFFFD")) // a label value must be valid UTF-8
		b.of[kind] = of
		return of
	}
	if b.rest == nil {
		rest := b.make("other")
		b.rest = &rest
	}
	return *b.rest
}
