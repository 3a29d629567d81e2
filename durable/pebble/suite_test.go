// SPDX-License-Identifier: MIT

package pebble_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/durable/pebble"
)

// TestContract_ofEveryScheduler runs in a bubble, where nothing may wait for the system, so the files are in memory.
// Pebble keeps many goroutines there, so under the race detector it takes minutes; memstore's takes seconds.
func TestContract_ofEveryScheduler(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	suite.Test(t, func(t *testing.T) engine.Store {
		store, err := pebble.OpenOn("store", vfs.NewMem())
		if err != nil {
			t.Fatal(err)
		}
		return store
	})
}

func TestContract_ofASchedulerOnTheEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	suite.TestNodes(t, 1, func(t *testing.T) engine.Engine {
		on, err := pebble.OpenKVOn("store", vfs.NewMem())
		if err != nil {
			t.Fatal(err)
		}
		e, err := kv.New(ctx, on)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}
