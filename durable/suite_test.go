// SPDX-License-Identifier: MIT

package durable_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"

	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestContract(t *testing.T) {
	shared := func(*testing.T) engine.Engine { return memory.New().Shared() }
	t.Run("own engine", func(t *testing.T) {
		testkit.NotForRaces(t) // its hours of virtual time take gigabytes there
		suite.Test(t, 1, func(*testing.T) engine.Engine { return memory.New().Engine() })
	})
	t.Run("one node", func(t *testing.T) {
		testkit.NotForRaces(t)
		suite.Test(t, 1, shared)
	})
	t.Run("three nodes", func(t *testing.T) { suite.Test(t, 3, shared) })
}
