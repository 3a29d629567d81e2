// SPDX-License-Identifier: MIT

package durable_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

var (
	simSeeds = flag.Int("seeds", 0, "how many seeds each random walk has; 0: as many as it has by itself")
	simSeed  = flag.Uint64("seed", 1, "the first of them")
)

// walks does a random walk with one seed after the other until one fails, and returns how many there were. They are
// those of the flags, or all; in short mode at most short, and under the race detector race.
func walks(t *testing.T, all, short, race int, walk func(t *testing.T, seed uint64)) (n int) {
	t.Helper()
	if *simSeeds > 0 {
		all = *simSeeds
	}
	if testing.Short() {
		if all = min(all, short); testkit.Race {
			all = min(all, race)
		}
	}
	for ; n < all && !t.Failed(); n++ {
		seed := *simSeed + uint64(n)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { walk(t, seed) })
	}
	return n
}
