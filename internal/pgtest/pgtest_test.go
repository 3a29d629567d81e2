// SPDX-License-Identifier: MIT

//go:build unix

package pgtest

import (
	"errors"
	"net"
	"os"
	"testing"
)

func TestServer_startsStopsAndStartsAgain(t *testing.T) {
	s, err := Start()
	if errors.Is(err, ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
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

func TestPrograms_withoutAServer(t *testing.T) {
	if _, err := programs(t.TempDir()); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("an empty folder: %v", err)
	}
}
