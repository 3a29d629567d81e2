// SPDX-License-Identifier: MIT

package main

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/interrupts"
)

func TestMain(m *testing.M) { interrupts.Main(m, main) }

func TestMain_interrupted_endsWithItsReport(t *testing.T) {
	interrupts.Test(t, "polite", "lively")
}

// In virtual time and without a network, each connection is closed exactly on time.
func TestRun(t *testing.T) {
	const want = `polite left; beats heard: 2
silent was idle for too long; beats heard: 1
lively was idle for too long; beats heard: 9
`
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		pipes := make(pipes)
		began := time.Now()
		if err := run(t.Context(), &out, pipes, pipes.dial); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
		}
		// The last beat comes after 8 times the interval of the beats.
		if took := time.Since(began); took < 8*beat+idle || took > 8*beat+idle+20*time.Millisecond {
			t.Errorf("the last connection was dropped after %v", took)
		}
	})
}

// Over a real network the test makes no claim about time.
func TestRun_overTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	var out strings.Builder
	dial := func() (net.Conn, error) { return net.Dial("tcp", listener.Addr().String()) }
	if err := run(t.Context(), &out, listener, dial); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"polite", "silent", "lively"} {
		if strings.Count(out.String(), name) != 1 {
			t.Errorf("%s is not told once:\n%s", name, out.String())
		}
	}
}

// pipes is a listener whose connections are pipes in memory.
type pipes chan net.Conn

func (p pipes) dial() (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }
