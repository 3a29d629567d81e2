// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// clockEnv is the variable that says how the clock of a process is wrong.
const clockEnv = "TIMEWHEEL_TEST_CLOCK"

// wrongClock builds this program with a package time that can be wrong. It takes a minute or two.
func (w *world) wrongClock(ctx context.Context) error {
	if w.skewed != "" {
		return nil
	}
	overlay, err := testkit.WrongClock(w.dir, clockEnv)
	if err != nil {
		return err
	}
	w.skewed, err = w.build(ctx, "skewed", "-overlay", overlay, "./checks/incidents")
	return err
}
