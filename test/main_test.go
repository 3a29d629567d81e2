// SPDX-License-Identifier: MIT

package test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// layout is that of the wheels under test.
var layout timewheel.Layout

// onlyLayout names the environment variable that has the tests run for one layout, of that name, alone.
const onlyLayout = "TIMEWHEEL_TEST_LAYOUT"

// TestMain runs all tests for each layout, and lets no goroutine of a wheel outlive them.
func TestMain(m *testing.M) {
	before := goroutines()
	code := 0
	for _, layout = range []timewheel.Layout{timewheel.Hashed, timewheel.Hierarchical} {
		if only := os.Getenv(onlyLayout); only != "" && only != layout.String() {
			continue
		}
		if code = m.Run(); code != 0 {
			fmt.Fprintf(os.Stderr, "with the %v layout\n", layout)
			break
		}
	}
	if left := leaked(before); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines were left behind:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// goroutines returns the stacks of the goroutines that come from this module or from ants, by their number.
// ants starts two for its default pool when the program begins, so what counts is the difference to an
// earlier call.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	found := make(map[string]string)
	for i, stack := range strings.Split(string(buf), "\n\n") {
		ours := strings.Contains(stack, "seed581295f1/timewheel/") || strings.Contains(stack, "panjf2000/ants")
		if number, _, ok := strings.Cut(stack, " ["); ok && ours && i > 0 { // the first is the caller
			found[number] = stack
		}
	}
	return found
}

// startedSince returns the stacks of the goroutines that were not there before.
func startedSince(before map[string]string) (stacks []string) {
	for number, stack := range goroutines() {
		if before[number] == "" {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// leaked is startedSince, after giving them time to end. It is not for bubbles, where no time passes in it.
func leaked(before map[string]string) (stacks []string) {
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		stacks = startedSince(before)
		if len(stacks) == 0 || time.Now().After(deadline) {
			return stacks
		}
	}
}
