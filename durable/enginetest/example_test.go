// SPDX-License-Identifier: MIT

package enginetest_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/durable/memengine"
)

// The body of the test for an engine.
func ExampleTest() {
	var t *testing.T // of TestEngine(t *testing.T)

	enginetest.Test(t, func(t *testing.T) enginetest.Subject {
		engine := memengine.New() // or an unused schema in a database
		return enginetest.Subject{
			Engine:  engine,
			Begin:   func(*testing.T) enginetest.Tx { return engine.Begin() },
			Restart: func(*testing.T) { engine.Restart() },
		}
	})
}
