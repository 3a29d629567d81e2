// SPDX-License-Identifier: MIT

package clock

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// A turned is a clock with a function that lets time pass on it.
type turned struct {
	Clock
	pass func(d time.Duration)
}

// both runs f on the fake clock and, in a bubble, on the real clock. The two must behave the same.
func both(t *testing.T, f func(t *testing.T, c turned)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) {
		fake := NewFake(0)
		f(t, turned{fake, fake.Advance})
	})
	t.Run("real", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f(t, turned{Real(), time.Sleep})
		})
	})
}

// wantFired fails the test unless the timer has sent, once or not at all.
func wantFired(t *testing.T, timer Timer, want bool) {
	t.Helper()
	fired := false
	select {
	case <-timer.C():
		fired = true
	default:
	}
	if fired != want {
		t.Errorf("the timer fired: %v, want %v", fired, want)
	}
	select {
	case <-timer.C():
		t.Error("the timer fired twice")
	default:
	}
}

func TestClock_now_countsFromItsOrigin(t *testing.T) {
	both(t, func(t *testing.T, c turned) {
		want := uint64(0)
		for _, d := range []time.Duration{0, 1, time.Second, 100 * 365 * 24 * time.Hour} {
			c.pass(d)
			want += uint64(d)
			if now := c.Now(); now != want {
				t.Errorf("it is %d, want %d", now, want)
			}
		}
	})
}

func TestClock_time_isWhatTheClockShowsThen(t *testing.T) {
	both(t, func(t *testing.T, c turned) {
		origin := c.Time(0)
		c.pass(time.Hour)
		for _, at := range []time.Duration{0, 1, time.Hour - 1, time.Hour, time.Hour + 1, math.MaxInt64} {
			if got := c.Time(uint64(at)); !got.Equal(origin.Add(at)) {
				t.Errorf("%v after the origin, %v, it is %v", at, origin, got)
			}
		}
	})
}

func TestClock_timer_sendsOnceWhenItsTimeHasCome(t *testing.T) {
	both(t, func(t *testing.T, c turned) {
		timer := c.NewTimer()
		c.pass(24 * time.Hour)
		wantFired(t, timer, false) // it was not set
		timer.Reset(time.Second)
		wantFired(t, timer, false)
		c.pass(time.Second - 1)
		wantFired(t, timer, false)
		c.pass(1)
		wantFired(t, timer, true)
		c.pass(time.Hour)
		wantFired(t, timer, false)
		timer.Reset(time.Second)
		c.pass(time.Hour) // far past the due time in one step
		wantFired(t, timer, true)
	})
}

func TestClock_timerSetToNothing_sendsAtOnce(t *testing.T) {
	both(t, func(t *testing.T, c turned) {
		timer := c.NewTimer()
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			timer.Reset(d)
			wantFired(t, timer, true)
		}
	})
}

func TestClock_timerReset_takesThePlaceOfTheSetting(t *testing.T) {
	both(t, func(t *testing.T, c turned) {
		timer := c.NewTimer()
		timer.Reset(time.Second)
		timer.Reset(2 * time.Second) // later
		c.pass(time.Second)
		wantFired(t, timer, false)
		timer.Reset(500 * time.Millisecond) // sooner
		c.pass(500 * time.Millisecond)
		wantFired(t, timer, true)
		c.pass(time.Hour)
		wantFired(t, timer, false)

		timer.Reset(time.Second)
		c.pass(time.Second) // it sends, and nothing receives
		timer.Reset(time.Second)
		wantFired(t, timer, false)
		c.pass(time.Second)
		wantFired(t, timer, true)
	})
}

func TestClock_timerStop_takesTheSettingBack(t *testing.T) {
	both(t, func(t *testing.T, c turned) {
		timer := c.NewTimer()
		timer.Stop() // it was not set
		timer.Reset(time.Second)
		timer.Stop()
		timer.Stop()
		c.pass(time.Hour)
		wantFired(t, timer, false)

		timer.Reset(time.Second)
		c.pass(time.Hour) // it sends, and nothing receives
		timer.Stop()
		wantFired(t, timer, false)
		timer.Reset(time.Second)
		c.pass(time.Second)
		wantFired(t, timer, true)
	})
}

func TestClock_timers_doNotHinderEachOther(t *testing.T) {
	both(t, func(t *testing.T, c turned) {
		timers := make([]Timer, 10)
		for i := range timers {
			timers[i] = c.NewTimer()
			timers[i].Reset(time.Duration(len(timers)-i) * time.Second)
		}
		for i := range timers {
			if i%3 == 0 {
				timers[i].Stop()
			}
		}
		c.pass(5 * time.Second)
		for i := range timers {
			wantFired(t, timers[i], i >= 5 && i%3 != 0)
		}
		c.pass(5 * time.Second)
		for i := range timers {
			wantFired(t, timers[i], i < 5 && i%3 != 0)
		}
	})
}

func TestFake_startsWhereItIsTold(t *testing.T) {
	c := NewFake(math.MaxUint64 - 10)
	if now := c.Now(); now != math.MaxUint64-10 {
		t.Errorf("it is %d", now)
	}
	timer := c.NewTimer()
	timer.Reset(10)
	c.Advance(9)
	wantFired(t, timer, false)
	c.Advance(1)
	wantFired(t, timer, true)
}

func TestFake_time_reachesCenturies(t *testing.T) {
	c := NewFake(0)
	for at, want := range map[uint64]string{
		0:              "2000-01-01T00:00:00Z",
		1:              "2000-01-01T00:00:00.000000001Z",
		math.MaxInt64:  "2292-04-10T23:47:16.854775807Z",
		math.MaxUint64: "2584-07-20T23:34:33.709551615Z",
	} {
		if got := c.Time(at).Format(time.RFC3339Nano); got != want {
			t.Errorf("at %d it is %s, want %s", at, got, want)
		}
	}
}

// Time returns a wall time for people to read, at most the longest Duration from now.
func TestReal_time_endsALongestDurationFromNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Real()
		time.Sleep(time.Hour)
		const reach = math.MaxInt64 + uint64(time.Hour)
		for _, at := range []uint64{reach, reach + 1, math.MaxUint64} {
			if got, want := c.Time(at), time.Now().Add(math.MaxInt64); !got.Equal(want) {
				t.Errorf("at %d it is %v, want %v", at, got, want)
			}
		}
	})
}

func TestReal_now_neverGoesBack(t *testing.T) {
	c := Real()
	last := uint64(0)
	for range 1000 {
		now := c.Now()
		if now < last {
			t.Fatalf("after %d it is %d", last, now)
		}
		last = now
	}
}
