// SPDX-License-Identifier: MIT

package test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

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
