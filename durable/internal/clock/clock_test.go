// SPDX-License-Identifier: MIT

package clock

import (
	"math/rand/v2"
	"testing"
)

func TestClock_heard(t *testing.T) {
	type answer struct{ asked, answered, engine int64 }
	for name, c := range map[string]struct {
		answers     []answer
		own         int64
		least, most int64
	}{
		"one":                            {[]answer{{10, 14, 1012}}, 20, 1018, 1022},
		"one at once":                    {[]answer{{10, 10, 1010}}, 20, 1020, 1020},
		"a narrower one":                 {[]answer{{10, 20, 1015}, {30, 32, 1031}}, 40, 1039, 1041},
		"a wider one changes nothing":    {[]answer{{30, 32, 1031}, {40, 60, 1050}}, 70, 1069, 1071},
		"two overlap":                    {[]answer{{0, 10, 1002}, {20, 30, 1028}}, 40, 1038, 1042},
		"two touch":                      {[]answer{{0, 10, 1000}, {20, 30, 1030}}, 40, 1040, 1040},
		"the engine's clock is set":      {[]answer{{10, 14, 1012}, {20, 24, 5022}}, 30, 5028, 5032},
		"the engine's clock is set back": {[]answer{{10, 14, 1012}, {20, 24, 22}}, 30, 28, 32},
		"the engine's clock runs fast, by 1 in 10,000": {
			[]answer{{0, 0, 0}, {1_000_000, 1_000_000, 1_000_100}}, 1_000_000, 1_000_100, 1_000_100},
		"what has drifted is not kept as exact": {
			[]answer{{0, 0, 0}, {1_000_000, 1_001_000, 1_000_500}}, 1_001_000, 1_000_800, 1_001_200},
		"answers in another order": {[]answer{{30, 32, 1031}, {10, 20, 1015}}, 40, 1039, 1041},
	} {
		var clock Clock
		for _, a := range c.answers {
			clock.Heard(a.asked, a.answered, a.engine)
		}
		if least, most := clock.Earliest(c.own), clock.Latest(c.own); least != c.least || most != c.most {
			t.Errorf("%s: the clock shows %d to %d, want %d to %d", name, least, most, c.least, c.most)
		}
	}
}

// Whatever the answers, the bounds contain the engine's time, as long as no clock is set and the clocks drift apart
// slowly.
func TestClock_boundsHold(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var clock Clock
		offset := rnd.Int64N(1e15) - 5e14
		drift := float64(rnd.Int64N(2*1e9/DriftOf)-1e9/DriftOf) / 1e9
		engine := func(own int64) int64 { return own + offset + int64(drift*float64(own)) }
		own := int64(0)
		for range 100 {
			own += rnd.Int64N(3e9)
			asked := own
			read := asked + rnd.Int64N(1+rnd.Int64N(1e8))
			own = read + rnd.Int64N(1+rnd.Int64N(1e8))
			clock.Heard(asked, own, engine(read))
			const rounding = 4
			if is := engine(own); clock.Earliest(own) > is+rounding || clock.Latest(own) < is-rounding {
				t.Fatalf("seed %d: the clock shows %d, and the bounds are %d and %d later",
					seed, is, clock.Earliest(own)-is, clock.Latest(own)-is)
			}
		}
	}
}
