// SPDX-License-Identifier: MIT

//go:build race

package test

// raceDetector reports whether the tests run under the race detector, which takes many times the memory.
const raceDetector = true
