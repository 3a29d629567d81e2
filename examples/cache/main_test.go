// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/interrupts"
	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/ttlcache"
)

func TestMain(m *testing.M) { interrupts.Main(m, main) }

func TestMain_interrupted_endsWithItsReport(t *testing.T) {
	interrupts.Test(t, "another asks", "computations")
}

func TestRun_crowd_computesOnceWhileTheAnswerIsFresh(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, listener); err != nil {
		t.Fatal(err)
	}
	const want = `10 clients ask at the same time
computing the primes below 1000000
another asks
there are 78498 primes below 1000000
the answer for 1000000 is gone: expired
and another
computing the primes below 1000000
there are 78498 primes below 1000000
12 requests, 2 computations
the answer for 1000000 is gone: closed
`
	if out.String() != want {
		t.Errorf("it wrote\n%s\nwant\n%s", &out, want)
	}
}

func TestRun_clientsFail_saysSo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), io.Discard, listener); err == nil {
		t.Error("no client was served, and that is no error")
	}
}

func newServer(t *testing.T) http.Handler {
	t.Helper()
	tw := timewheel.NewTimeWheel(10*time.Millisecond, 64)
	tw.Start()
	t.Cleanup(tw.Stop)
	answers, err := ttlcache.New(tw, ttlcache.Config[int, int]{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /primes/{n}", &server{answers: answers, out: log.New(io.Discard, "", 0)})
	return mux
}

func TestServer_badInput_isARequestError(t *testing.T) {
	s := newServer(t)
	for _, n := range []string{"-1", "x", "2000001", "1e3", "99999999999999999999"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/primes/"+n, nil))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d", n, w.Code)
		}
	}
}

func TestServer_clientLeaves_endsTheComputation(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/primes/2000000", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
}

func TestPrime_smallNumbers(t *testing.T) {
	var got []int
	for n := range 30 {
		if prime(n) {
			got = append(got, n)
		}
	}
	if len(got) != 10 || got[0] != 2 || got[9] != 29 {
		t.Errorf("%v", got)
	}
}
