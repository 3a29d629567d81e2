// SPDX-License-Identifier: MIT

package kvtest_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kvtest"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// The test of a KV.
func ExampleTest() {
	_ = func(t *testing.T) {
		kvtest.Test(t, func(*testing.T) engine.KV { return memory.New() }) // open the KV here, without entries
	}
}
