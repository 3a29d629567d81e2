// SPDX-License-Identifier: MIT

//go:build unix

package test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

// suspendable names the environment variable that makes the test below act as the suspended process.
const suspendable = "TIMEWHEEL_TEST_SUSPENDABLE"

// A process is stopped by a signal and continues half a second later. Overdue tasks run at once, in due
// order, and a repeating task runs once and rejoins its grid.
func TestAccuracy_suspendedProcess_catchesUp(t *testing.T) {
	if testkit.Race {
		t.Skip("takes real time, and is slow")
	}
	eachLayout(t, func(t *testing.T) {
		if os.Getenv(suspendable) != "" {
			catchUp(t)
		} else {
			suspend(t)
		}
	})
}

// suspend runs the same test in a separate process, and suspends it.
func suspend(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	child.Env = append(os.Environ(), suspendable+"=1")
	input, err := child.StdinPipe()
	must(t, err)
	output, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewReader(output)
	for line := ""; !strings.HasPrefix(line, "ready"); {
		line, err = lines.ReadString('\n')
		must(t, err)
	}
	must(t, child.Process.Signal(syscall.SIGSTOP))
	<-time.After(500 * ms)
	must(t, child.Process.Signal(syscall.SIGCONT))
	must(t, input.Close())
	rest, err := io.ReadAll(lines)
	must(t, err)
	if err := child.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, rest)
	}
}

// catchUp is the test in the process that is suspended. The suspension comes after it has reported that it is ready,
// and before its input ends.
func catchUp(t *testing.T) {
	const interval, n = 20 * ms, 100
	runs := make(chan timewheel.Run, 10*n)
	tw := newWheel(t, 5*ms, 16, timewheel.WithPoolSize(1),
		timewheel.WithObserver(func(r timewheel.Run) { runs <- r }))
	for _, i := range seeded().Perm(n) {
		must(t, tw.AddTask(once(name(i), 300*ms+time.Duration(i)*ms, nothing)))
	}
	must(t, tw.AddTask(every("repeats", interval, nothing)))
	tw.Start()
	fmt.Println("ready")
	_, err := io.ReadAll(os.Stdin)
	must(t, err)

	var overdue, due []time.Time
	for after := 0; after < 5 || len(overdue) < n; {
		r := <-runs
		switch {
		case r.Started.Before(r.Due):
			t.Errorf("%s began %v early", r.Key, r.Due.Sub(r.Started))
		case r.Key != "repeats":
			overdue = append(overdue, r.Due)
		default:
			due = append(due, r.Due)
			if tw.Stats().Missed > 0 {
				after++
			}
		}
	}
	// That is, in the order of the ticks: a task due a tick later never runs first.
	latest := overdue[0]
	for _, at := range overdue {
		if latest.Sub(at) >= 5*ms {
			t.Fatalf("not in the order of the ticks: %v", overdue)
		}
		if at.After(latest) {
			latest = at
		}
	}
	missed := 0
	for i := 1; i < len(due); i++ {
		if off := due[i].Sub(due[0]) % interval; off != 0 || !due[i].After(due[i-1]) {
			t.Errorf("run %d of the repeating task is %v off its grid", i, off)
		}
		missed += int(due[i].Sub(due[i-1])/interval) - 1
	}
	tw.Stop()
	if s := balanced(t, tw, n+1); missed < 10 || s.Missed < uint64(missed) {
		t.Errorf("the runs leave out %d periods, and Missed is %d", missed, s.Missed)
	}
}
