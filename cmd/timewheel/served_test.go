// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/cmd/timewheel/internal/serve"
)

// A serving is a service in this process, and a rig whose commands it runs.
type serving struct {
	rig
	dir    string // of the store
	config string
	log    *logged
	end    func() // nil while it does not run
}

// The tokens of operators in the tests.
const (
	annsToken = "the token of ann, of the tests"
)

// newServing starts a service with an empty store. The operators are in addition to ann, who may do everything.
func newServing(t *testing.T, operators ...string) *serving {
	t.Helper()
	s := &serving{dir: filepath.Join(t.TempDir(), "tasks"), config: filepath.Join(t.TempDir(), "serve.json"), log: new(logged)}
	operators = append(operators, `{"name": "ann", "token": "`+annsToken+`", "rights": ["operate", "backup"]}`)
	check(t, os.WriteFile(s.config, []byte(`{"listen": "127.0.0.1:0", "kinds": {
		"unused": {"url": "http://127.0.0.1:1/", "networks": ["127.0.0.1/32"], "secrets": ["a secret of the tests"]}},
		"admin": {"listen": "127.0.0.1:0", "operate": true, "backup": true, "tokens": [`+strings.Join(operators, ", ")+`]}}`), 0o600))
	s.rig = rig{T: t, serves: s}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *serving) start() {
	s.Helper()
	cfg, err := serve.Load(s.config, os.Getenv)
	check(s.T, err)
	p := &program{now: func() time.Time { return now }}
	srv, err := serve.Open(context.Background(), cfg, serve.Place{Dir: s.dir, Commander: p.command}, slog.New(slog.NewTextHandler(s.log, nil)))
	check(s.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx, nil, nil) }()
	s.end = func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	}
	s.place = []string{"-url", fmt.Sprint("http://", srv.AdminAddr()), "-token-file", s.token(annsToken)}
}

func (s *serving) stop() {
	if s.end != nil {
		s.end()
		s.end = nil
	}
}

// token writes a token to a file, and returns its name.
func (s *serving) token(token string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), "token")
	check(s.T, os.WriteFile(path, []byte(token+"\n"), 0o600))
	return path
}
