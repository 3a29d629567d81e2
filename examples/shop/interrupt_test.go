// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// A signal ends the program and all its child processes. Ctrl-C sends SIGINT to the whole process group.
func TestMain_signal_leavesNoProcess(t *testing.T) {
	const ready, ending = "to make trouble", "interrupted"
	const during = 200 * time.Millisecond // so that work is in progress
	for _, c := range []struct {
		name    string
		window  time.Duration
		signals map[string]syscall.Signal // the signal to send to the process group when a line contains the key
		want    string                    // how the program ends
		report  string
	}{
		{"interrupted", time.Second, map[string]syscall.Signal{ready: syscall.SIGINT}, "exit status 0", "to the unit"},
		{"interrupted before it serves", time.Second, map[string]syscall.Signal{"on one PostgreSQL": syscall.SIGINT},
			"exit status 0", "to the unit"},
		{"interrupted twice", time.Hour, map[string]syscall.Signal{ready: syscall.SIGINT, ending: syscall.SIGINT},
			"signal: interrupt", ""},
		{"killed", time.Hour, map[string]syscall.Signal{ready: syscall.SIGKILL}, "signal: killed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startShop(t, "-processes", "2", "-window", c.window.String(), "-lease", "500ms", "-rate", "100",
				"-callers", "4", "-for", "1h", "-kill", "1h")
			var text strings.Builder
			lines := bufio.NewScanner(p.out)
			for lines.Scan() {
				fmt.Fprintln(&text, lines.Text())
				for when, sig := range c.signals {
					if strings.Contains(lines.Text(), when) {
						time.Sleep(during)
						check(t, syscall.Kill(-p.cmd.Process.Pid, sig))
					}
				}
			}
			_ = p.cmd.Wait()
			if strings.Contains(text.String(), pgtest.ErrNotInstalled.Error()) {
				pgtest.Must(t, pgtest.ErrNotInstalled)
			}
			got := p.cmd.ProcessState.String()
			if got != c.want || !strings.Contains(text.String(), c.report) {
				t.Errorf("the program ended with %s, want %s, and wrote, without %q\n%s", got, c.want, c.report, &text)
			}
			p.awaitLast(t)
		})
	}
}

// startShop starts the program as the first process of a session. Its PostgreSQL runs as another user, who may not
// enter t.TempDir.
func startShop(t *testing.T, args ...string) *shopProcess {
	t.Helper()
	dir, err := os.MkdirTemp("", "shop")
	check(t, err)
	check(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it also starts a new process group
	r, w, err := os.Pipe()
	check(t, err)
	cmd.Stdout, cmd.Stderr = w, w
	check(t, cmd.Start())
	check(t, w.Close())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = r.Close() })
	watchdog := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { watchdog.Stop() })
	return &shopProcess{cmd, r}
}

// A shopProcess is the program, the first process of a session.
type shopProcess struct {
	cmd *exec.Cmd
	out io.ReadCloser
}

// awaitLast waits until the last process of the program's session has ended.
func (p *shopProcess) awaitLast(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left := p.session(t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("processes are left:\n%s", strings.Join(left, "\n"))
		}
	}
}

// session returns the processes of the session that have not ended.
func (p *shopProcess) session(t *testing.T) (all []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	check(t, err)
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The fields after the name are state, parent, process group and session.
		stat := string(text)
		fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		if len(fields) > 3 && fields[3] == strconv.Itoa(p.cmd.Process.Pid) && fields[0] != "Z" {
			all = append(all, stat)
		}
	}
	return all
}
