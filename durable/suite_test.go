// SPDX-License-Identifier: MIT

package durable_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/durable/memengine"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestContract_ofEveryScheduler(t *testing.T) {
	open := func(*testing.T) engine.Store { return newStore() }
	t.Run("fingerprints", func(t *testing.T) { suite.Test(t, open) })
	t.Run("none", func(t *testing.T) {
		testkit.NotForRaces(t)
		suite.Test(t, open, durable.WithoutKeyFilter())
	})
}

func TestContract_ofNodes(t *testing.T) {
	open := func(*testing.T) engine.Engine { return memengine.New() }
	t.Run("one", func(t *testing.T) {
		testkit.NotForRaces(t)
		suite.TestNodes(t, 1, open)
	})
	t.Run("three", func(t *testing.T) { suite.TestNodes(t, 3, open) })
}
