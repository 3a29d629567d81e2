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
	interrupts.Test(t, "alarm is there", "too late")
}

func TestRun(t *testing.T) {
	const want = `alarm is there: false, tea is there: true
bell runs, 2 to come
bell runs, 1 to come
tea runs, 0 to come
bell runs, 0 to come
too late: timewheel: task key not found: "tea"
`
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(&out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
		}
	})
}
