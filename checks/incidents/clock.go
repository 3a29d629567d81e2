// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"path/filepath"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// clockEnv says how the clock of a process is wrong.
const clockEnv = "TIMEWHEEL_TEST_CLOCK"

// wrongClock builds this program with a package time that can be wrong. It takes a minute or two.
func (w *world) wrongClock(ctx context.Context) error {
	if w.skewed != "" {
		return nil
	}
	root, err := root(ctx)
	if err != nil {
		return err
	}
	overlay, err := testkit.WrongClock(w.dir, clockEnv)
	if err != nil {
		return err
	}
	path := filepath.Join(w.dir, "skewed")
	if err := build(ctx, root, path, "-overlay", overlay, "./checks/incidents"); err != nil {
		return err
	}
	w.skewed = path
	return nil
}
