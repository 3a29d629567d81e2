// SPDX-License-Identifier: MIT

// Package interrupts tests how the examples handle interrupts. A test program runs itself again as the example and
// interrupts it.
package interrupts

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// AsMain is the environment variable that makes a test program run as the example.
const AsMain = "EXAMPLE_AS_MAIN"

// bound is the time limit for an example. It is generous because the machine may be busy.
const bound = time.Minute

// Main is the body of an example's TestMain. The argument main is the example's main function.
func Main(m *testing.M, main func()) {
	if os.Getenv(AsMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Test starts the example and interrupts it once it has written a line that contains first. The example must then write
// a line that contains report, and exit with status 0.
func Test(t *testing.T, first, report string, args ...string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no signal can be sent")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), AsMain+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(bound, func() { _ = cmd.Process.Kill() }).Stop()
	var text strings.Builder
	sent, reported := false, false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&text, lines.Text())
		reported = reported || sent && strings.Contains(lines.Text(), report)
		if !sent && strings.Contains(lines.Text(), first) {
			sent = true
			time.Sleep(50 * time.Millisecond) // so that work is in progress
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !reported {
		t.Errorf("it ended with %v and wrote, after %q there should be %q\n%s", err, first, report, &text)
	}
}
