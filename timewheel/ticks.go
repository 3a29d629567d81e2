// SPDX-License-Identifier: MIT

package timewheel

import (
	"math"
	"math/bits"
	"time"

	"github.com/seed581295f1/timewheel/internal/clock"
)

// Instants are nanoseconds since the clock's origin, and ticks are numbered from it. Both are unsigned and cover 584
// years. Only this file converts between them: it rounds due times up and the present down, so that when a tick has
// come, everything at it is due.

// never is later than every instant and every tick.
const never = math.MaxUint64

// ticks is the length of a tick in nanoseconds.
type ticks uint64

// up returns the first tick that is not before the instant.
func (t ticks) up(instant uint64) uint64 {
	tick := instant / uint64(t)
	if tick*uint64(t) != instant {
		tick++
	}
	return tick
}

// down returns the last tick that is not after the instant.
func (t ticks) down(instant uint64) uint64 { return instant / uint64(t) }

// instant returns the instant at which the tick comes, or the constant never if that instant is beyond the reach of the
// clock.
func (t ticks) instant(tick uint64) uint64 {
	hi, lo := bits.Mul64(tick, uint64(t))
	if hi != 0 {
		return never
	}
	return lo
}

// now returns the current instant. It starts one tick after the clock's origin, so that there is a tick before the
// first.
func (t ticks) now(c clock.Clock) uint64 { return later(c.Now(), time.Duration(t)) }

// time returns the instant as a wall-clock time.
func (t ticks) time(c clock.Clock, instant uint64) time.Time { return c.Time(instant - uint64(t)) }

// later returns the instant d after the given one, but at most the last instant before never. d must not be negative.
func later(instant uint64, d time.Duration) uint64 {
	sum, carry := bits.Add64(instant, uint64(d), 0)
	if carry != 0 || sum == never {
		return never - 1
	}
	return sum
}

// until returns how long it is from now to the instant: 0 if the instant has come, and at most the longest Duration.
func until(instant, now uint64) time.Duration {
	if instant <= now {
		return 0
	}
	return time.Duration(min(instant-now, math.MaxInt64))
}

// grid returns how many periods have begun from the one due at the given instant up to now, and when the next period is
// due. now must not be before due, and interval must be positive.
func grid(due, now uint64, interval time.Duration) (begun, next uint64) {
	begun = (now-due)/uint64(interval) + 1
	hi, ahead := bits.Mul64(begun, uint64(interval))
	next, carry := bits.Add64(due, ahead, 0)
	if hi+carry != 0 || next == never {
		next = never - 1
	}
	return begun, next
}
