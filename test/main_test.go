// SPDX-License-Identifier: MIT

package test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// layout is the layout of the wheels under test. Outside of eachLayout it is an invalid one, with which no wheel can be
// created.
var layout = noLayout

const noLayout timewheel.Layout = -1

// eachLayout runs the test once for each layout of its wheels.
func eachLayout(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, l := range []timewheel.Layout{timewheel.Hashed, timewheel.Hierarchical} {
		t.Run(l.String(), func(t *testing.T) {
			layout = l
			defer func() { layout = noLayout }()
			test(t)
		})
	}
}

// inBubble is eachLayout, each time in a bubble of virtual time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	eachLayout(t, func(t *testing.T) { synctest.Test(t, test) })
}

// TestMain lets no goroutine of a wheel outlive the tests.
func TestMain(m *testing.M) {
	before := goroutines()
	code := m.Run()
	if left := leaked(before); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines were left behind:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// goroutines returns the stacks of the goroutines started by this module or by ants, by their number. ants starts two
// for its default pool when the program begins, so only the difference from an earlier call matters.
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

// startedSince returns the stacks of goroutines that did not exist before.
func startedSince(before map[string]string) (stacks []string) {
	for number, stack := range goroutines() {
		if before[number] == "" {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// leaked is startedSince after giving the goroutines time to end. It does not work in a bubble, where no time would
// pass.
func leaked(before map[string]string) (stacks []string) {
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		stacks = startedSince(before)
		if len(stacks) == 0 || time.Now().After(deadline) {
			return stacks
		}
	}
}
