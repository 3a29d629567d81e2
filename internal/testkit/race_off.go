// SPDX-License-Identifier: MIT

//go:build !race

package testkit

// Race reports whether the tests run under the race detector.
const Race = false
