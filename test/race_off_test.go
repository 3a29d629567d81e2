// SPDX-License-Identifier: MIT

//go:build !race

package test

// raceDetector tells that the tests run under the race detector, which takes many times the memory.
const raceDetector = false
