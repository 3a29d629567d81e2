// SPDX-License-Identifier: MIT

//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

func TestServer_startsStopsAndStartsAgain(t *testing.T) {
	s, err := Start()
	Must(t, err)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Errorf("the directory is still there: %v", err)
		}
	}()
	for _, how := range []Stop{Fast, Immediate} {
		if _, err := s.PID(); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(how); err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", s.Addr()); err == nil {
			_ = conn.Close()
			t.Fatal("the server still listens")
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

// Connections take ports while the server is stopped, but never the server's own port.
func TestFreePort_isNoneThatTheSystemGives(t *testing.T) {
	least := 49152 // according to the registry of ports
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if _, err := fmt.Sscan(string(text), &least); err != nil {
			t.Fatal(err)
		}
	}
	if least < 32768 {
		t.Skipf("this system gives ports from %d on", least)
	}
	for range 100 {
		if port, err := freePort(); err != nil || port >= least {
			t.Fatalf("port %d, %v; the system gives those from %d on", port, err, least)
		}
	}
}

func TestPrograms_withoutAServer(t *testing.T) {
	if _, err := programs(t.TempDir()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("an empty folder: %v", err)
	}
}

// started returns a server that ends with the test, and a function that fails the test on an error.
func started(t *testing.T) (*Server, func(error)) {
	s, err := Start()
	Must(t, err)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { check(s.Close()) })
	return s, check
}

// A paused server answers once it is resumed. A server whose requests or answers are held answers once they are
// released.
func TestServer_pausedOrHeld_answersLater(t *testing.T) {
	s, check := started(t)
	p, err := NewProxy(s)
	check(err)
	defer p.Close()
	hold := func(d Direction) func() func() {
		return func() func() { return p.Hold(d) }
	}
	for what, begin := range map[string]func() func(){
		"a pause": func() func() {
			check(s.Pause())
			return func() { check(s.Resume()) }
		},
		"held requests": hold(Requests),
		"held answers":  hold(Answers),
	} {
		conn, err := net.Dial("tcp", p.l.Addr().String())
		check(err)
		end := begin()
		_, err = conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}) // asks for TLS; the server answers N
		check(err)
		answer := make([]byte, 1)
		check(conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
		if _, err := conn.Read(answer); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("during %s it answers %q, %v", what, answer, err)
		}
		end()
		check(conn.SetReadDeadline(time.Now().Add(starts)))
		if _, err := conn.Read(answer); err != nil || answer[0] != 'N' {
			t.Errorf("after %s it answers %q, %v", what, answer, err)
		}
		check(conn.Close())
	}
}

// A standby is promoted when its primary is lost. The old primary may start again.
func TestStandby_isPromoted_afterTheLossOfThePrimary(t *testing.T) {
	primary, check := started(t)
	standby, err := primary.Standby()
	Must(t, err)
	defer func() { check(standby.Close()) }()
	check(primary.Kill())
	if conn, err := net.Dial("tcp", primary.Addr()); err == nil {
		_ = conn.Close()
		t.Error("the primary still listens")
	}
	check(standby.Promote())
	check(primary.Restart())
}

// A verdict records how Must ends a test.
type verdict string

func (*verdict) Helper()        {}
func (v *verdict) Skip(...any)  { *v += "skipped" }
func (v *verdict) Fatal(...any) { *v += "failed" }

// A missing server skips a test, but fails it where PostgreSQL is required. Every other error fails it.
func TestMust(t *testing.T) {
	for _, c := range []struct {
		required string
		err      error
		want     verdict
	}{
		{"", nil, ""},
		{"1", nil, ""},
		{"", fmt.Errorf("start: %w", ErrNotInstalled), "skipped"},
		{"1", fmt.Errorf("start: %w", ErrNotInstalled), "failed"},
		{"", errors.New("refused"), "failed"},
		{"1", errors.New("refused"), "failed"},
	} {
		t.Setenv("POSTGRES_REQUIRED", c.required)
		var got verdict
		if Must(&got, c.err); got != c.want {
			t.Errorf("with POSTGRES_REQUIRED=%q, %v: %q, want %q", c.required, c.err, got, c.want)
		}
	}
}
