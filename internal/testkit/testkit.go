// SPDX-License-Identifier: MIT

// Package testkit has helpers for the tests of several packages.
package testkit

import (
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

// Settle lets d pass in a synctest bubble, and waits until every other goroutine of the bubble is blocked.
func Settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// hangs is how long a call may take before a test reports a hang. It does not measure speed.
const hangs = 30 * time.Second

// Returns fails the test if f does not return.
func Returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(hangs):
		t.Fatalf("%s has not returned after %v", what, hangs)
	}
}

// Quiet returns a logger that discards its output.
func Quiet() *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

// NotForRaces skips a test in short mode under the race detector, which makes a test take ten times as long. It is for
// tests whose races other tests would also find, such as walks and measurements.
func NotForRaces(t testing.TB) {
	t.Helper()
	if Race && testing.Short() {
		t.Skip("has no more races than other tests")
	}
}

// Heap returns how many bytes are in use on the Go heap after a garbage collection.
func Heap() int64 {
	runtime.GC()
	runtime.GC() // the first one keeps the content of each sync.Pool
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
