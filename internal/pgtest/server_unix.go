// SPDX-License-Identifier: MIT

//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Server is a PostgreSQL. Its methods are for one goroutine at a time.
type Server struct {
	bin, dir string
	port     int
	extra    []string
	as       *syscall.Credential // nil: who runs this program

	guard *exec.Cmd // the running server's, or nil
	life  io.Closer // the guard ends the server when it is closed
}

// The guard starts the server, and ends it when its standard input ends: when Stop closes it, or this program
// has ended.
const guard = `
"$@" &
pid=$!
while read -r signal; do kill -s "$signal" $pid; done
kill -s QUIT $pid 2>/dev/null
wait $pid`

// starts is how long a server may take to start or stop.
const starts = time.Minute

// Start makes a database and starts a server for it. Each of the settings is name=value. The caller must call
// Close.
func Start(settings ...string) (s *Server, err error) {
	s = &Server{extra: settings}
	if s.bin, err = programs(os.Getenv("PGBIN")); err != nil {
		return nil, err
	}
	if s.as, err = account(); err != nil {
		return nil, err
	}
	return s.create("initdb", "-U", User, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
}

// Standby makes a standby of the server and starts it, with settings of its own. The caller must call Close.
func (s *Server) Standby(settings ...string) (*Server, error) {
	r := &Server{bin: s.bin, as: s.as, extra: settings}
	return r.create("pg_basebackup", "-d", s.URL(), "-R", "-c", "fast", "--no-sync")
}

// Promote makes a standby the primary, and returns when it is.
func (s *Server) Promote() error {
	cmd := s.command(filepath.Join(s.bin, "pg_ctl"), "promote", "-D", filepath.Join(s.dir, "data"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: pg_ctl promote: %w: %s", err, out)
	}
	return nil
}

// account returns the user that the server runs as: PostgreSQL refuses to run as root.
func account() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("pgtest: PostgreSQL does not run as root, and there is no user postgres or nobody")
}

// create makes the files of the server with a program of PostgreSQL, and starts it.
func (s *Server) create(program string, args ...string) (_ *Server, err error) {
	if s.dir, err = os.MkdirTemp("", "pgtest"); err != nil {
		return nil, err
	}
	if err := s.fill(program, args...); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

func (s *Server) fill(program string, args ...string) (err error) {
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return err
		}
	}
	cmd := s.command(filepath.Join(s.bin, program), append(args, "-D", filepath.Join(s.dir, "data"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: %s: %w: %s", program, err, out)
	}
	if s.port, err = freePort(); err != nil {
		return err
	}
	return s.Restart()
}

// freePort returns a port that is free. It is below those that systems give to connections and to listeners that
// ask for any: while the server is stopped, no other program gets the port by chance, and it can start again.
func freePort() (port int, err error) {
	const least, below, tries = 10_000, 32_768, 100
	for range tries {
		port = least + rand.IntN(below-least)
		var free net.Listener
		if free, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, free.Close()
		}
	}
	return 0, err
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.as}
	return cmd
}

// URL returns the URL of the database that every server has.
func (s *Server) URL() string { return url(s.port, "postgres") }

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// PID returns the process id of the server's first process.
func (s *Server) PID() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	return pid, err
}

// Restart starts the server, which must have been stopped, and returns when it answers.
func (s *Server) Restart() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	args := []string{"-c", guard, "guard", filepath.Join(s.bin, "postgres")}
	args = append(args, settings(s.dir, s.port, s.extra)...)
	cmd := s.command("/bin/sh", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.life, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.guard = cmd
	for deadline := time.Now().Add(starts); ; time.Sleep(20 * time.Millisecond) {
		if s.answers() {
			return nil
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			return errors.Join(fmt.Errorf("pgtest: the server does not answer:\n%s", text), s.Stop(Immediate))
		}
	}
}

// answers reports whether the server takes connections: it answers a request for TLS with one byte before it is
// ready, and a start message with an error while it starts.
func (s *Server) answers() bool {
	cmd := s.command(filepath.Join(s.bin, "pg_isready"), "-q", "-U", User, "-d", "postgres",
		"-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-t", "5")
	return cmd.Run() == nil
}

// Stop stops the server, and returns when it has ended.
func (s *Server) Stop(how Stop) error {
	if s.guard == nil {
		return nil
	}
	cmd, in := s.guard, s.life.(io.WriteCloser)
	s.guard = nil
	signal := "INT"
	if how == Immediate {
		signal = "QUIT"
	}
	_, err := io.WriteString(in, signal+"\n")
	if how == Fast {
		s.awaitEnd()
	}
	err = errors.Join(err, in.Close())
	_ = cmd.Wait() // it is the server's own status, and a server that was stopped in this way has a bad one
	return err
}

// Pause stops all processes of the server in their tracks, as a machine does that is suspended. Its connections
// stay.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

// Kill ends all processes of the server with SIGKILL, as the loss of its machine does. Its files stay.
func (s *Server) Kill() error {
	if err := s.Pause(); err != nil { // or those that live on might still answer
		return err
	}
	pids, err := s.children()
	if err != nil {
		return err
	}
	first, err := s.PID()
	if err != nil {
		return err
	}
	cmd := s.guard
	s.guard = nil
	err = errors.Join(kill(syscall.SIGKILL, append(pids, first)...), s.life.Close())
	_ = cmd.Wait()
	return err
}

// signal sends a signal to the first process of the server, so that it starts no more, and then to the others.
func (s *Server) signal(sig syscall.Signal) error {
	first, err := s.PID()
	if err != nil {
		return err
	}
	if err := syscall.Kill(first, sig); err != nil {
		return err
	}
	pids, err := s.children()
	return errors.Join(err, kill(sig, pids...))
}

// children returns the process ids of the server, without that of its first process.
func (s *Server) children() (pids []int, err error) {
	first, err := s.PID()
	if err != nil {
		return nil, err
	}
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		if _, err := fmt.Sscan(line, &pid, &parent); err == nil && parent == first {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// kill sends a signal to processes, of which some may have ended.
func kill(sig syscall.Signal, pids ...int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// awaitEnd waits until the server has removed its file.
func (s *Server) awaitEnd() {
	for deadline := time.Now().Add(starts); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := s.PID(); err != nil {
			return
		}
	}
}

// Close stops the server and deletes its database.
func (s *Server) Close() error {
	return errors.Join(s.Stop(Immediate), os.RemoveAll(s.dir))
}
