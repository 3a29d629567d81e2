// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// clockEnv is the variable that says how the clock of a process is wrong, if it runs a program of wrongClock.
const clockEnv = "TIMEWHEEL_TEST_CLOCK"

// clocks are the ways in which a clock can be wrong. The last one is right.
var clocks = []string{"ahead", "behind", "stepped", ""}

// wrongClock builds the test program with a package time whose time of day is wrong by an hour, as on a machine with a
// wrong clock, and whose clocks stand still when its machine is suspended. The build takes a minute or two.
func wrongClock(t *testing.T) (programs []program) {
	t.Helper()
	dir := t.TempDir()
	overlay, err := testkit.WrongClock(dir, clockEnv)
	check(t, err)
	path := filepath.Join(dir, "wrong")
	out, err := osexec.Command("go", "test", "-c", "-overlay", overlay, "-o", path, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, clock := range clocks {
		programs = append(programs, program{clock: clock, path: path, suspends: true})
	}
	return programs
}
