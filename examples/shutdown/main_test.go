// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed581295f1/timewheel/internal/interrupts"
)

func TestMain(m *testing.M) { interrupts.Main(m, main) }

func TestMain_interrupted_endsWithItsReport(t *testing.T) {
	interrupts.Test(t, "short: done", "2 tasks kept")
}

func TestRun(t *testing.T) {
	const want = `short: done
timewheel: shutdown: still running: 1: context deadline exceeded
long: gave up
kept for the next start: at noon, due in 2h0m0s
kept for the next start: tonight, due in 8h0m0s
2 tasks kept, 0 in the wheel
`
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
		}
	})
}
