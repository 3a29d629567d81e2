// SPDX-License-Identifier: MIT

// Package pgtest starts a private PostgreSQL server, in a temporary directory and on the loopback interface, for tests,
// examples and benchmarks. It stops the server when the program ends, however it ends.
package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNotInstalled means that there is no PostgreSQL or PgBouncer that can be started.
var ErrNotInstalled = errors.New("pgtest: not installed")

// Must ends the test if err is not nil. If err wraps ErrNotInstalled and the environment variable POSTGRES_REQUIRED is
// not set, the test is skipped. Otherwise it fails.
func Must(t interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
}, err error,
) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrNotInstalled) && os.Getenv("POSTGRES_REQUIRED") == "":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// User is the superuser of the servers. It needs no password.
const User = "timewheel"

// A Stop is a way of stopping a server.
type Stop int

const (
	Fast      Stop = iota // transactions are rolled back, and the server shuts down
	Immediate             // all processes end at once, as in a crash
)

// programs returns bin, which is the value of PGBIN. If bin is empty, it returns the program directory of the newest
// installed server.
func programs(bin string) (string, error) {
	if bin == "" {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
		found = slices.DeleteFunc(found, func(dir string) bool { return major(dir) < 14 })
		if len(found) > 0 {
			bin = slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })
		} else if path, err := exec.LookPath("postgres"); err == nil {
			bin = filepath.Dir(path)
		}
	}
	return bin, have(bin, "initdb", "postgres")
}

// have returns ErrNotInstalled if the directory lacks one of the programs.
func have(bin string, programs ...string) error {
	for _, name := range programs {
		if _, err := exec.LookPath(filepath.Join(bin, name)); bin == "" || err != nil {
			return fmt.Errorf("%w: %s of PostgreSQL 14 or later; install Debian's package postgresql (`make postgres` "+
				"does), or set PGBIN to the folder of the programs", ErrNotInstalled, filepath.Join(bin, name))
		}
	}
	return nil
}

// major returns the major version in a path: 15 for /usr/lib/postgresql/15/bin.
func major(bin string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return n
}

// url returns the URL of a database of a server that listens on the port.
func url(port int, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", User, port, database)
}

// settings returns the command-line arguments of a server: the common settings and the extra ones.
func settings(dir string, port int, extra []string) []string {
	args := []string{"-D", filepath.Join(dir, "data")}
	for _, s := range append([]string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=" + dir,
		"max_connections=200", "fsync=on", "logging_collector=off",
	}, extra...) {
		if !strings.Contains(s, "=") {
			s += "="
		}
		args = append(args, "-c", s)
	}
	return args
}
