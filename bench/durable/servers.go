// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A server is a process on a unix socket in a separate directory. It ends with the measurement.
type server struct {
	cmd    *exec.Cmd
	socket string
}

// startServer starts a program and waits until it answers on the socket.
func startServer(socket string, as *syscall.Credential, name string, args ...string) (*server, error) {
	s := &server{exec.Command(name, args...), socket}
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 300 {
		if conn, err := net.Dial("unix", socket); err == nil {
			return s, conn.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s does not answer", name)
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGINT) // for PostgreSQL a fast shutdown
	_ = s.cmd.Wait()
}

// startRedis starts a Redis whose every write is synced before it is answered.
func startRedis(dir string) (*server, error) {
	socket := filepath.Join(dir, "redis.sock")
	return startServer(socket, nil, "redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning")
}

// startPostgres creates a database with default settings, and starts it. It does not run as root.
func startPostgres(dir string) (*server, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("no PostgreSQL is installed")
	}
	bin := slices.Max(found)
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	as := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	data := filepath.Join(dir, "pg")
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chown(data, uid, gid); err != nil {
		return nil, err
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "bench")
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	initdb.Dir = data
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	s, err := startServer(filepath.Join(data, ".s.PGSQL.5432"), as, filepath.Join(bin, "postgres"), "-D", data,
		"-c", "listen_addresses=", "-c", "unix_socket_directories="+data, "-c", "log_min_messages=fatal")
	if err != nil {
		return nil, err
	}
	s.socket = data
	return s, nil
}
