// SPDX-License-Identifier: MIT

//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Pooler is a PgBouncer process in transaction mode. Its methods must not be called concurrently.
type Pooler struct {
	place
	program string
	process *process // nil if the pooler is not running
}

// Pooler starts a pooler for the server. Each setting has the form name=value. The caller must call Close. The error
// wraps ErrNotInstalled if PgBouncer is not installed.
func (s *Server) Pooler(settings ...string) (_ *Pooler, err error) {
	p := &Pooler{}
	if p.program, err = pgbouncer(); err != nil {
		return nil, err
	}
	if p.place, err = newPlace(""); err != nil {
		return nil, err
	}
	lines := append([]string{
		"[databases]", fmt.Sprintf("* = host=127.0.0.1 port=%d user=%s", s.port, User),
		"[pgbouncer]", "listen_addr=127.0.0.1", fmt.Sprintf("listen_port=%d", p.port), "unix_socket_dir=",
		"auth_type=any", "pool_mode=transaction", "max_client_conn=500",
	}, settings...)
	err = os.WriteFile(p.config(), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	if err == nil {
		err = p.Restart()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

func (p *Pooler) config() string { return filepath.Join(p.dir, "pgbouncer.ini") }

// pgbouncer returns the path of the program: the value of PGBOUNCER, or the path of the installed program.
func pgbouncer() (string, error) {
	for _, name := range []string{os.Getenv("PGBOUNCER"), "pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: PgBouncer; install Debian's package pgbouncer (`make pgbouncer` does), or set PGBOUNCER to "+
		"the program", ErrNotInstalled)
}

// Restart starts the pooler, which must have been killed, and returns when it answers.
func (p *Pooler) Restart() (err error) {
	p.process, err = p.run(p.program, p.config())
	return err
}

// Kill kills the pooler with SIGKILL.
func (p *Pooler) Kill() error {
	process := p.process
	if process == nil {
		return nil
	}
	p.process = nil
	return errors.Join(process.signal("KILL"), process.end())
}

// Version returns the version that the pooler reports.
func (p *Pooler) Version() (string, error) {
	out, err := p.command(p.program, "--version").Output()
	version, _, _ := strings.Cut(string(out), "\n")
	return version, err
}

// Close ends the pooler.
func (p *Pooler) Close() error { return errors.Join(p.Kill(), os.RemoveAll(p.dir)) }
