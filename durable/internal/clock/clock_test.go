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
		var at int64
		clock := New(func() (mono, wall int64) { return at, at })
		for _, a := range c.answers {
			at = a.answered
			clock.Heard(a.asked, a.engine)
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
		own := int64(0)
		clock := New(func() (mono, wall int64) { return own, own })
		offset := rnd.Int64N(1e15) - 5e14
		drift := float64(rnd.Int64N(2*1e9/DriftOf)-1e9/DriftOf) / 1e9
		engine := func(own int64) int64 { return own + offset + int64(drift*float64(own)) }
		for range 100 {
			own += rnd.Int64N(3e9)
			asked := own
			read := asked + rnd.Int64N(1+rnd.Int64N(1e8))
			own = read + rnd.Int64N(1+rnd.Int64N(1e8))
			clock.Heard(asked, engine(read))
			const rounding = 4
			if is := engine(own); clock.Earliest(own) > is+rounding || clock.Latest(own) < is-rounding {
				t.Fatalf("seed %d: the clock shows %d, and the bounds are %d and %d later",
					seed, is, clock.Earliest(own)-is, clock.Latest(own)-is)
			}
		}
	}
}

// A machine is a machine with a monotonic clock, a wall clock and an engine elsewhere, in seconds.
type machine struct{ mono, wall, engine int64 }

const second = int64(1e9)

func newMachine() (*machine, *Clock) {
	m := &machine{wall: 1_000_000, engine: 2_000_000}
	return m, New(func() (mono, wall int64) { return m.mono * second, m.wall * second })
}

// pass lets the machine run.
func (m *machine) pass(seconds int64) {
	m.mono, m.wall, m.engine = m.mono+seconds, m.wall+seconds, m.engine+seconds
}

// isNear compares times, but for the drift that the Clock allows for.
func isNear(a, b int64) bool { return a <= b && b-a < 10*second }

// The process's own time contains every suspension, as soon as one of the other two clocks shows it, once.
func TestClock_suspended(t *testing.T) {
	for name, wall := range map[string]bool{"the wall clock shows it": true, "only the engine shows it": false} {
		m, c := newMachine()
		c.Heard(c.Own(), m.engine*second)
		for i := range int64(3) {
			m.pass(10)
			asked := c.Latest(c.Own())
			if c.IsOld(asked) {
				t.Errorf("%s: before the suspension, the time is old", name)
			}
			const slept = 3600
			if m.engine += slept; wall {
				m.wall += slept
			}
			own := c.Own()
			if is := 10*second*(i+1) + slept*second*i; wall && !isNear(own, is+slept*second) || !wall && !isNear(own, is) {
				t.Errorf("%s: own time %d s, after %d s", name, own/second, is/second)
			}
			if c.Earliest(own) > m.engine*second || wall && c.Latest(own) < m.engine*second {
				t.Errorf("%s: the engine's time is %d s, and counts as %d to %d s", name, m.engine, c.Earliest(own)/second, c.Latest(own)/second)
			}
			if c.IsUnsure() != wall || c.IsOld(asked) != wall {
				t.Errorf("%s: before a response, unsure %v, old %v", name, c.IsUnsure(), c.IsOld(asked))
			}
			answered := c.Heard(own, m.engine*second)
			if is := 10*second*(i+1) + slept*second*(i+1); !isNear(answered, is) || c.Own() != answered {
				t.Errorf("%s: own time %d s after the response, want %d s", name, answered/second, is/second)
			}
			if now := c.Latest(c.Own()); now != m.engine*second || c.Earliest(c.Own()) != now || c.IsUnsure() || !c.IsOld(asked) || c.IsOld(now) {
				t.Errorf("%s: after the response, %d s, unsure %v, old %v and %v", name, now/second, c.IsUnsure(), c.IsOld(asked), c.IsOld(now))
			}
		}
	}
}

// A wall clock that is set, and an engine's clock that is set back, change no time for longer than until the next
// response.
func TestClock_set(t *testing.T) {
	for name, set := range map[string]func(m *machine){
		"ahead":             func(m *machine) { m.wall += 3600 },
		"back":              func(m *machine) { m.wall -= 3600 },
		"the engine's back": func(m *machine) { m.engine -= 3600 },
	} {
		m, c := newMachine()
		for range 3 {
			c.Heard(c.Own(), m.engine*second)
			m.pass(10)
			before := c.Own()
			set(m)
			if own := c.Own(); own < before || c.Earliest(own) > m.engine*second && name != "the engine's back" {
				t.Errorf("%s: own time %d s after %d s, the engine's %d s after %d s", name, own/second, before/second, c.Earliest(own)/second, m.engine)
			}
			c.Heard(c.Own(), m.engine*second)
			if now := c.Latest(c.Own()); now != m.engine*second || c.Earliest(c.Own()) != now || c.IsUnsure() || c.IsOld(now) {
				t.Errorf("%s: the engine's time %d s counts as %d s, unsure %v, old %v", name, m.engine, now/second, c.IsUnsure(), c.IsOld(now))
			}
		}
	}
}

// A response to a request from before a suspension leaves the time unsure, because the engine may have read its clock
// before the suspension too.
func TestClock_suspendedDuringARequest(t *testing.T) {
	m, c := newMachine()
	c.Heard(c.Own(), m.engine*second)
	asked, read := c.Own(), m.engine
	m.wall, m.engine = m.wall+3600, m.engine+3600
	c.Heard(asked, read*second)
	if own := c.Own(); c.Earliest(own) > m.engine*second || c.Latest(own) < m.engine*second || !c.IsUnsure() {
		t.Errorf("the engine's time %d s counts as %d to %d s, unsure %v", m.engine, c.Earliest(own)/second, c.Latest(own)/second, c.IsUnsure())
	}
}

// Responses that took long and show a suspension leave the time unsure, however many there are, until a quick one.
func TestClock_slowRequestsDuringASuspension(t *testing.T) {
	m, c := newMachine()
	c.Heard(c.Own(), m.engine*second)
	asked := c.Own()
	m.pass(2)
	m.engine++ // a suspension of a second, while the requests are on their way
	for range 3 {
		c.Heard(asked, m.engine*second)
		if now := c.Latest(c.Own()); now-m.engine*second < second || !c.IsUnsure() {
			t.Errorf("the engine's time %d s counts as %d s, unsure %v", m.engine, now/second, c.IsUnsure())
		}
	}
	c.Heard(c.Own(), m.engine*second)
	if now := c.Latest(c.Own()); now != m.engine*second || c.IsUnsure() {
		t.Errorf("after a quick response, the engine's time %d s counts as %d s, unsure %v", m.engine, now/second, c.IsUnsure())
	}
}

// The request may also have left the machine after the suspension. If its answer contradicts the bounds too, by what no
// clock has shown before, the time does not count as later than it is.
func TestClock_suspendedBeforeARequestLeaves(t *testing.T) {
	const ms, slept = second / 1000, 10 * second
	for name, paused := range map[string]bool{"the wall clock shows it": false, "only the engine shows it": true} {
		var mono, wall, engine int64
		c := New(func() (int64, int64) { return mono, wall })
		c.Heard(c.Own(), engine)
		asked := c.Own()
		if engine += slept; paused {
			c.Heard(asked, engine)
		} else {
			wall += slept
		}
		engine += 50 * ms // another one, too short to count
		c.Heard(asked, engine)
		if now := c.Latest(c.Own()); now < engine || now > engine+int64(Slack) {
			t.Errorf("%s: the engine's time %d ms counts as at most %d ms", name, engine/ms, now/ms)
		}
	}
}

// Clocks that differ by less than Slack, as they do while one of them is slewed, are the same clock.
func TestClock_slewed(t *testing.T) {
	var mono, wall int64
	c := New(func() (int64, int64) { return mono, wall })
	for range 100_000 {
		mono, wall = mono+1_000_000, wall+1_000_500 // 500 parts in a million
		if own := c.Own(); own-mono < 0 || own-mono > wall-mono {
			t.Fatalf("own time %d, the clocks show %d and %d", own, mono, wall)
		}
	}
	if own := c.Own(); own != mono {
		t.Errorf("a clock that was slewed by %d ns counts as a suspension of %d ns", wall-mono, own-mono)
	}
}
