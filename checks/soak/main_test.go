// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestSoak_aMoment_isAsItShouldBe(t *testing.T) {
	var out, progress bytes.Buffer
	ok, err := soak(t.Context(), &out, &progress, 3*time.Second, 1)
	if err != nil || !ok {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, want := range []string{"operations", "lateness p99", "early", "lost", "doubled", "heap", "goroutines", "all as it should be"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not tell of %q:\n%s", want, &out)
		}
	}
	if !strings.Contains(progress.String(), "operations") {
		t.Errorf("the progress is %q", &progress)
	}
}

// The account must find violations, or the soak proves nothing.
func TestRecord_whatMustNotBe_isFound(t *testing.T) {
	for _, c := range []struct {
		name                 string
		does                 func(r *record)
		early, lost, doubled int64
	}{
		{"right", func(r *record) { r.begin(); r.begin(); r.settle() }, 0, 0, 0},
		{"one run too few", func(r *record) { r.begin(); r.settle() }, 0, 1, 0},
		{"one run too many", func(r *record) { r.begin(); r.begin(); r.begin(); r.settle() }, 0, 1, 1},
		{"early", func(r *record) { r.earlier = time.Now().Add(time.Hour); r.begin(); r.replace(); r.settle() }, 1, 0, 0},
		{"moved", func(r *record) {
			r.earlier = time.Now().Add(time.Hour)
			r.move()
			r.begin()
			r.end()
			r.settle()
		}, 0, 0, 0},
		{"ran and removed", func(r *record) { r.times = 1; r.begin(); r.end(); r.settle() }, 0, 0, 1},
		{"removed and ran", func(r *record) { r.times = 1; r.end(); r.begin(); r.settle() }, 0, 0, 1},
	} {
		var a account
		c.does(&record{account: &a, key: "k", times: 2})
		if a.early.Load() != c.early || a.lost.Load() != c.lost || a.doubled.Load() != c.doubled {
			t.Errorf("%s: %d early, %d lost, %d doubled", c.name, a.early.Load(), a.lost.Load(), a.doubled.Load())
		}
	}
}

// A run that waits to be counted because of another one does not count as early.
func TestRecord_runsThatOverlap_areNotEarly(t *testing.T) {
	var a account
	r := &record{account: &a, key: "k"}
	r.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.begin()
	}()
	for a.runs.Load() == 0 { // it has begun
		runtime.Gosched()
	}
	r.earlier = time.Now() // when the next run is due, as set by the run that is counted first
	r.mu.Unlock()
	<-done
	if n := a.early.Load(); n != 0 {
		t.Errorf("%d early: %v", n, a.faults)
	}
}
