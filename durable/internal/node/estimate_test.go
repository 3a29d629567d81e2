// SPDX-License-Identifier: MIT

package node

import (
	"testing"
	"time"
)

func TestEstimate(t *testing.T) {
	const least, most = 500 * time.Millisecond, 2 * time.Second
	var e estimate
	is := func(want time.Duration) {
		t.Helper()
		if got := e.allow(least, most); got != want {
			t.Errorf("%+v allows %v, want %v", e, got, want)
		}
	}
	is(least)
	e.late++
	is(2 * least)
	e.late = 60
	is(most)
	e.add(600 * time.Millisecond) // the deviation is half of it
	is(1800 * time.Millisecond)
	for range 100 {
		e.add(600 * time.Millisecond)
	}
	if got := e.allow(least, most); got < 600*time.Millisecond || got > 610*time.Millisecond {
		t.Errorf("after answers that all take 600ms it allows %v", got)
	}
	e.add(1600 * time.Millisecond)
	if got := e.allow(least, most); got < 1700*time.Millisecond {
		t.Errorf("after an answer that took longer it allows %v", got)
	}
	for range 100 {
		e.add(time.Millisecond)
	}
	is(least)
}
