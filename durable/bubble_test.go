// SPDX-License-Identifier: MIT

package durable_test

import "testing"

// The examples of tests run as tests.
func TestExamples_ofTests(t *testing.T) {
	t.Run("own engine", testOwnEngineInBubble)
	t.Run("cluster", testClusterInBubble)
}
