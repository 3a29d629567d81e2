// SPDX-License-Identifier: MIT

package dashboard

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/timewheel"
)

func runOf(tick, wait, job time.Duration) timewheel.Run {
	ended := time.Now()
	started := ended.Add(-job)
	dispatched := started.Add(-wait)
	return timewheel.Run{Key: "k", Due: dispatched.Add(-tick), Dispatched: dispatched, Started: started, Ended: ended}
}

// within reports whether the value is right to two digits.
func within(got float64, want time.Duration) bool {
	return got >= want.Seconds()*0.99 && got <= want.Seconds()*1.01
}

func TestRecorder_splitsTheLateness(t *testing.T) {
	r := NewRecorder()
	if l := r.lateness(time.Now()); l == nil || *l != (latenessJSON{}) {
		t.Fatalf("before the first run the lateness is %+v", l)
	}
	for i := range 100 {
		r.observe(runOf(time.Duration(i+1)*time.Millisecond, time.Duration(i+1)*time.Microsecond, time.Duration(i+1)*time.Second))
	}
	l := r.lateness(time.Now())
	if l.Runs != 100 {
		t.Errorf("%d runs", l.Runs)
	}
	for name, c := range map[string]struct {
		got  quantilesJSON
		unit time.Duration
	}{"tick": {l.Tick, time.Millisecond}, "wait": {l.Wait, time.Microsecond}, "run": {l.Run, time.Second}} {
		if !within(c.got.P50, 50*c.unit) || !within(c.got.P99, 99*c.unit) || !within(c.got.Max, 100*c.unit) {
			t.Errorf("%s is %+v", name, c.got)
		}
	}
}

func TestRecorder_strangeRuns_areTakenAsTheNearest(t *testing.T) {
	r := NewRecorder()
	r.observe(runOf(-time.Hour, 0, 1000*time.Hour))
	l := r.lateness(time.Now())
	if l.Runs != 1 || l.Tick.Max != 0 || l.Wait.Max != 0 || !within(l.Run.Max, 24*time.Hour) {
		t.Errorf("the lateness is %+v", l)
	}
}

func TestRecorder_forgetsAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, silence := range []time.Duration{0, 65 * time.Second, 24 * time.Hour} {
			r := NewRecorder()
			run := func() { // a run that ends now
				now := time.Now()
				r.observe(timewheel.Run{Due: now, Dispatched: now, Started: now, Ended: now})
			}
			run()
			time.Sleep(silence)
			run()
			if n := r.lateness(time.Now()).Runs; (n == 2) != (silence == 0) {
				t.Errorf("after a silence of %v %d runs are remembered", silence, n)
			}
			var last time.Duration
			for i := range 90 {
				if r.lateness(time.Now()).Runs > 0 {
					last = time.Duration(i) * time.Second
				}
				time.Sleep(time.Second)
			}
			if last < 49*time.Second || last > 60*time.Second {
				t.Errorf("after a silence of %v a run was remembered for %v", silence, last)
			}
		}
	})
}

func TestRecorder_panics_areTheLastTenCutShort(t *testing.T) {
	r := NewRecorder()
	for i := range keepPanics + 3 {
		r.panicked(&timewheel.Task{Key: fmt.Sprint("k", i)}, strings.Repeat("é", maxValueText), []byte(strings.Repeat("s", 2*maxStack)))
	}
	panics, n := r.lastPanics()
	if len(panics) != keepPanics || n != keepPanics+3 {
		t.Fatalf("%d of %d panics were kept", len(panics), n)
	}
	for i, p := range panics {
		if p.Key != fmt.Sprint("k", keepPanics+2-i) || !p.Exact || p.Time.IsZero() {
			t.Errorf("panic %d is of %q", i, p.Key)
		}
		if of := r.panicsOf(p.Key); len(of) != 1 || of[0] != p {
			t.Errorf("the panics of %q are %+v", p.Key, of)
		}
		if len(p.Value) > maxValueText+len("…") || len(p.Stack) != maxStack+len("…") {
			t.Errorf("panic %d has %d bytes of text and %d of stack", i, len(p.Value), len(p.Stack))
		}
	}
}

func TestRecorder_manyWorkersAndPages_atTheSameTime(t *testing.T) {
	r := NewRecorder()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				r.observe(runOf(time.Millisecond, time.Millisecond, time.Millisecond))
			}
		})
		all.Go(func() {
			for range 100 {
				r.lateness(time.Now())
				r.panicked(&timewheel.Task{}, "p", nil)
				r.lastPanics()
			}
		})
	}
	all.Wait()
}

func BenchmarkRecorder(b *testing.B) {
	r := NewRecorder()
	run := runOf(time.Millisecond, time.Millisecond, time.Millisecond)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.observe(run)
		}
	})
}

func BenchmarkAttemptRecorder(b *testing.B) {
	r := NewAttemptRecorder()
	now := time.Now()
	a := durable.Attempt{Kind: "kind", Due: now, Started: now.Add(time.Millisecond), Ended: now.Add(2 * time.Millisecond)}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.observe(a)
		}
	})
}
