// SPDX-License-Identifier: MIT

//go:build unix

package pgtest

import (
	"encoding/binary"
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

// A Server is a PostgreSQL server. Its methods must not be called concurrently.
type Server struct {
	place
	bin     string
	extra   []string
	process *process // nil if the server is not running
}

// A place is where a program runs and listens.
type place struct {
	dir  string
	port int
	as   *syscall.Credential // nil: the user that runs this program
}

// A process is a running program. It ends when it is ended explicitly or when this program ends.
type process struct {
	guard *exec.Cmd
	life  io.WriteCloser // the guard forwards the signals written to it, and ends the program when it is closed
}

// The guard starts the program, and ends it when the guard's standard input is closed.
const guard = `
"$@" &
pid=$!
while read -r signal; do kill -s "$signal" $pid; done
kill -s QUIT $pid 2>/dev/null
wait $pid`

// starts is how long a server may take to start or stop.
const starts = time.Minute

// Start creates a database and starts a server for it. Each setting has the form name=value. The caller must call
// Close.
func Start(settings ...string) (*Server, error) { return StartIn("", settings...) }

// StartIn is Start for a server whose files are in a new folder in dir.
func StartIn(dir string, settings ...string) (s *Server, err error) {
	s = &Server{extra: settings, place: place{dir: dir}}
	if s.bin, err = programs(os.Getenv("PGBIN")); err != nil {
		return nil, err
	}
	return s.create("initdb", "-U", User, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
}

// Standby creates a standby of the server and starts it with the given settings. The caller must call Close. The error
// wraps ErrNotInstalled if the server's program directory lacks pg_basebackup or pg_ctl.
func (s *Server) Standby(settings ...string) (*Server, error) {
	if err := have(s.bin, "pg_basebackup", "pg_ctl"); err != nil {
		return nil, err
	}
	r := &Server{bin: s.bin, extra: settings}
	return r.create("pg_basebackup", "-d", s.URL(), "-R", "-c", "fast", "--no-sync")
}

// Promote makes a standby the primary, and returns when the promotion is complete.
func (s *Server) Promote() error {
	cmd := s.command(filepath.Join(s.bin, "pg_ctl"), "promote", "-D", filepath.Join(s.dir, "data"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: pg_ctl promote: %w: %s", err, out)
	}
	return nil
}

// account returns the user that the server must run as, because PostgreSQL refuses to run as root. It returns nil if
// this program does not run as root.
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

// create creates the server's files with a PostgreSQL program, and starts the server.
func (s *Server) create(program string, args ...string) (_ *Server, err error) {
	if s.place, err = newPlace(s.dir); err != nil {
		return nil, err
	}
	cmd := s.command(filepath.Join(s.bin, program), append(args, "-D", filepath.Join(s.dir, "data"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: %s: %w: %s", program, err, out), os.RemoveAll(s.dir))
	}
	if err := s.Restart(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// newPlace returns a new directory in dir, or in the system's one for temporary files, and a free port.
func newPlace(dir string) (p place, err error) {
	if p.as, err = account(); err != nil {
		return p, err
	}
	if p.port, err = freePort(); err != nil {
		return p, err
	}
	if p.dir, err = os.MkdirTemp(dir, "pgtest"); err != nil {
		return p, err
	}
	if p.as != nil {
		err = os.Chown(p.dir, int(p.as.Uid), int(p.as.Gid))
	}
	return p, err
}

// freePort returns a free port. The port is below the range that systems use for connections and for listeners without
// a fixed port. So no other program gets the port by chance while the server is stopped.
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

func (p place) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.as}
	return cmd
}

// URL returns the URL of the database that every server has.
func (p place) URL() string { return url(p.port, "postgres") }

// Addr returns the address that the program listens on.
func (p place) Addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// PID returns the process ID of the server's first process.
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
	p, err := s.run(filepath.Join(s.bin, "postgres"), settings(s.dir, s.port, s.extra)...)
	s.process = p
	return err
}

// run starts a program, and returns when it accepts connections to the database.
func (p place) run(program string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := p.command("/bin/sh", append([]string{"-c", guard, "guard", program}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	started := &process{cmd, life}
	for deadline := time.Now().Add(starts); !p.answers(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			return nil, errors.Join(fmt.Errorf("pgtest: %s does not answer:\n%s", program, text), started.end())
		}
	}
	return started, nil
}

// signal sends a signal to the program through the guard.
func (p *process) signal(name string) error {
	_, err := io.WriteString(p.life, name+"\n")
	return err
}

// end ends the program, and returns when it has ended.
func (p *process) end() error {
	err := p.life.Close()
	_ = p.guard.Wait() // the error is the exit status, which is not 0 for a program ended in this way
	return err
}

// answers reports whether the server accepts connections. While the server is starting or recovering, it answers with
// an error.
func (p place) answers() bool {
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	parameters := "user\x00" + User + "\x00database\x00postgres\x00\x00"
	message := binary.BigEndian.AppendUint32(nil, uint32(8+len(parameters)))
	message = binary.BigEndian.AppendUint32(message, 3<<16) // version 3.0 of the protocol
	if _, err := conn.Write(append(message, parameters...)); err != nil {
		return false
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, 1)
	_, err = conn.Read(answer)
	return err == nil && answer[0] == 'R' // an authentication message
}

// Stop stops the server and waits for it to exit.
func (s *Server) Stop(how Stop) (err error) {
	p := s.process
	if p == nil {
		return nil
	}
	s.process = nil
	if how == Fast {
		err = p.signal("INT")
		s.awaitEnd()
	}
	return errors.Join(err, p.end())
}

// Pause suspends all processes of the server at once, as if its machine were suspended. Its connections stay open.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

// Kill kills all processes of the server with SIGKILL, as if its machine were lost. Its files remain.
func (s *Server) Kill() error {
	if err := s.Pause(); err != nil { // otherwise surviving processes might still answer
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
	p := s.process
	s.process = nil
	return errors.Join(kill(syscall.SIGKILL, append(pids, first)...), p.end())
}

// signal sends a signal to the first process of the server, so that it starts no further processes, and then to the
// other processes.
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

// children returns the process IDs of the server's processes, except the first.
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

// kill sends a signal to processes, some of which may have ended.
func kill(sig syscall.Signal, pids ...int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// awaitEnd waits until the server has removed its PID file.
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
