// SPDX-License-Identifier: MIT

package timewheel

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const maxInt64 = uint64(math.MaxInt64)

// near draws a number next to a boundary of the arithmetic.
func near(r *rand.Rand) uint64 {
	edges := []uint64{0, 1e9, 1 << 31, 1 << 32, 1 << 53, maxInt64, never - 4}
	return max(edges[r.IntN(len(edges))], 4) + uint64(r.IntN(9)) - 4
}

// nearDuration draws a positive duration next to such a boundary.
func nearDuration(r *rand.Rand) time.Duration {
	return time.Duration(min(max(near(r), 1), maxInt64))
}

func TestTicks_roundDueTimesUpAndThePresentDown(t *testing.T) {
	for _, c := range []struct {
		tick              ticks
		instant, up, down uint64
	}{
		{10, 0, 0, 0},
		{10, 1, 1, 0},
		{10, 9, 1, 0},
		{10, 10, 1, 1},
		{10, 11, 2, 1},
		{10, never - 1, never/10 + 1, never / 10},
		{1, 0, 0, 0},
		{1, 1, 1, 1},
		{1, maxInt64, maxInt64, maxInt64},
		{1, never - 1, never - 1, never - 1},
		{math.MaxInt64, 0, 0, 0},
		{math.MaxInt64, 1, 1, 0},
		{math.MaxInt64, maxInt64 - 1, 1, 0},
		{math.MaxInt64, maxInt64, 1, 1},
		{math.MaxInt64, maxInt64 + 1, 2, 1},
		{math.MaxInt64, never - 1, 2, 2},
		{math.MaxInt64, never, 3, 2},
	} {
		if up := c.tick.up(c.instant); up != c.up {
			t.Errorf("tick %d: %d is up to tick %d, want %d", c.tick, c.instant, up, c.up)
		}
		if down := c.tick.down(c.instant); down != c.down {
			t.Errorf("tick %d: %d is down to tick %d, want %d", c.tick, c.instant, down, c.down)
		}
	}
}

func TestTicks_instant_isNeverBeyondTheClock(t *testing.T) {
	for _, c := range []struct {
		tick       ticks
		n, instant uint64
	}{
		{10, 0, 0},
		{10, 1, 10},
		{10, never / 10, never / 10 * 10},
		{10, never/10 + 1, never},
		{10, never, never},
		{1, never - 1, never - 1},
		{1, never, never},
		{math.MaxInt64, 1, maxInt64},
		{math.MaxInt64, 2, never - 1},
		{math.MaxInt64, 3, never},
		{math.MaxInt64, never, never},
	} {
		if got := c.tick.instant(c.n); got != c.instant {
			t.Errorf("tick %d: number %d comes at %d, want %d", c.tick, c.n, got, c.instant)
		}
	}
}

func TestLater_endsBeforeNever(t *testing.T) {
	for _, c := range []struct {
		from uint64
		d    time.Duration
		want uint64
	}{
		{0, 0, 0},
		{5, 7, 12},
		{0, math.MaxInt64, maxInt64},
		{maxInt64, math.MaxInt64, never - 1},
		{maxInt64 + 1, math.MaxInt64, never - 1},
		{never - 2, 1, never - 1},
		{never - 1, 0, never - 1},
		{never - 1, 1, never - 1},
		{never - 1, 2, never - 1},
		{never - 1, math.MaxInt64, never - 1},
	} {
		if got := later(c.from, c.d); got != c.want {
			t.Errorf("%d after %d is %d, want %d", c.d, c.from, got, c.want)
		}
	}
}

func TestUntil_isADurationOrNothing(t *testing.T) {
	for _, c := range []struct {
		instant, now uint64
		want         time.Duration
	}{
		{5, 5, 0},
		{4, 5, 0},
		{0, never, 0},
		{6, 5, 1},
		{maxInt64, 0, math.MaxInt64},
		{maxInt64 + 1, 0, math.MaxInt64},
		{never, 0, math.MaxInt64},
		{never, never - 1, 1},
	} {
		if got := until(c.instant, c.now); got != c.want {
			t.Errorf("from %d to %d it is %d, want %d", c.now, c.instant, got, c.want)
		}
	}
}

func TestGrid_countsPeriodsAndRejoins(t *testing.T) {
	for _, c := range []struct {
		due, now    uint64
		interval    time.Duration
		begun, next uint64
	}{
		{100, 100, 10, 1, 110},
		{100, 101, 10, 1, 110},
		{100, 109, 10, 1, 110},
		{100, 110, 10, 2, 120},
		{100, 111, 10, 2, 120},
		{0, 1e15, 25e6, 4e7 + 1, 1e15 + 25e6},
		{0, 0, math.MaxInt64, 1, maxInt64},
		{0, maxInt64, math.MaxInt64, 2, never - 1},
		{2, maxInt64 + 2, math.MaxInt64, 2, never - 1}, // the next period would be past the end
		{0, never - 1, 1, never, never - 1},
		{0, never - 1, math.MaxInt64, 3, never - 1}, // the periods reach beyond the end of the clock
		{never - 1, never - 1, math.MaxInt64, 1, never - 1},
	} {
		begun, next := grid(c.due, c.now, c.interval)
		if begun != c.begun || next != c.next {
			t.Errorf("due %d, now %d, every %d: %d begun and next %d, want %d and %d",
				c.due, c.now, c.interval, begun, next, c.begun, c.next)
		}
	}
}

func TestTicks_anyInstant_lowersNoDueTimeAndRaisesNoPresent(t *testing.T) {
	r := random(1)
	for range 100_000 {
		tick, x := ticks(nearDuration(r)), min(near(r), never-1)
		up, down := tick.up(x), tick.down(x)
		if at := tick.instant(up); at < x {
			t.Fatalf("tick %d: %d is rounded up to %d", tick, x, at)
		}
		if up > 0 && tick.instant(up-1) >= x {
			t.Fatalf("tick %d: %d is rounded up to tick %d, which is not the first", tick, x, up)
		}
		if at := tick.instant(down); at > x {
			t.Fatalf("tick %d: %d is rounded down to %d", tick, x, at)
		}
		if at := tick.instant(down + 1); at <= x {
			t.Fatalf("tick %d: %d is rounded down to tick %d, which is not the last", tick, x, down)
		}
	}
}

func TestGrid_anyPeriod_nextIsTheFirstAfterNowAndOnTheGrid(t *testing.T) {
	r := random(2)
	for range 100_000 {
		due, interval := min(near(r), never-1), nearDuration(r)
		now := later(due, time.Duration(near(r)%uint64(math.MaxInt64)))
		begun, next := grid(due, now, interval)
		if begun < 1 {
			t.Fatalf("due %d, now %d, every %d: %d begun", due, now, interval, begun)
		}
		if next == never-1 {
			continue // the end of the clock, where the grid ends
		}
		if next <= now || next-uint64(interval) > now {
			t.Fatalf("due %d, now %d, every %d: next at %d", due, now, interval, next)
		}
		if next-due != begun*uint64(interval) {
			t.Fatalf("due %d, now %d, every %d: next at %d after %d periods", due, now, interval, next, begun)
		}
	}
}

// FuzzPlacement places one task with arbitrary parameters, and lets the layout make visits until it returns the task.
func FuzzPlacement(f *testing.F) {
	const revolution = 60 * int64(time.Second)
	delays := []int64{0, 1, revolution - 1, revolution, revolution + 1, math.MaxInt64, math.MinInt64}
	for _, now := range []uint64{0, 1 << 31, 1 << 32, 1 << 53, maxInt64, never - 1} {
		for _, delay := range delays {
			f.Add(int64(time.Second), uint16(60), now, delay)
			f.Add(int64(1), uint16(1), now, delay)
			f.Add(int64(math.MaxInt64), uint16(7), now, delay)
		}
	}
	f.Fuzz(func(t *testing.T, tick int64, slots uint16, now uint64, delay int64) {
		length := ticks(max(tick&math.MaxInt64, 1))
		n := uint64(max(slots%1024, 1))
		now = later(now, time.Duration(length)) // as the loop reads the time
		due := later(now, time.Duration(delay&math.MaxInt64))
		passed, at := length.down(now), length.up(due)
		if length.instant(at) < due || length.instant(at-1) >= due {
			t.Fatalf("due at %d, in ticks of %d at tick %d", due, length, at)
		}
		if at <= passed {
			if due > now {
				t.Fatalf("due at %d, after %d, and not after tick %d", due, now, passed)
			}
			return // the entry is due and goes into no slot
		}
		slot, circle := position(at, passed, n)
		if uint64(slot) != at%n || uint64(circle) != min((at-passed-1)/n, math.MaxInt) {
			t.Fatalf("%d slots, now %d: tick %d is in slot %d, circle %d", n, passed, at, slot, circle)
		}
		for _, kind := range []Layout{Hashed, Hierarchical} {
			m := newModelled(t, kind, int(n), passed)
			m.add(at)
			for visits := 1; len(m.model) > 0; visits++ {
				next := m.next()
				if next <= m.now || next > at {
					t.Fatalf("%v, %d slots, now %d: next visit at %d for %d", kind, n, m.now, next, at)
				}
				if visits > 65 { // one for each level at worst
					t.Fatalf("%v, %d slots: at visit %d the task is not out", kind, n, visits)
				}
				if due := m.pass(next); (len(due) > 0) != (next == at) {
					t.Fatalf("%v, %d slots: the visit of tick %d for %d handed out %v", kind, n, next, at, due)
				}
			}
			if m.next() != never {
				t.Fatalf("an empty layout wants a visit at %d", m.next())
			}
		}
	})
}
