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

// walks runs a random walk for one seed after another until one fails, and returns their number. The seeds come from
// the flags, or are all of them; at most short in short mode, and race under the race detector.
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
