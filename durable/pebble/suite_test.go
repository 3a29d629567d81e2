// SPDX-License-Identifier: MIT

package pebble_test

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
)

// TestContract_ofEveryScheduler runs in a bubble, where nothing may wait for the system, so the files are in memory.
// Pebble keeps many goroutines there, so under the race detector it takes minutes. Package memory takes seconds.
func TestContract_ofEveryScheduler(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	suite.Test(t, 1, func(t *testing.T) engine.Engine {
		s, err := openOn(vfs.NewMem())
		must(t, err)
		return s.Owned
	})
}

func TestOperate(t *testing.T) {
	suite.TestOperate(t, func(t *testing.T, opts ...durable.Option) []*durable.Scheduler {
		s, err := newScheduler(filepath.Join(t.TempDir(), "store"), opts...)
		must(t, err)
		return []*durable.Scheduler{s}
	})
}
