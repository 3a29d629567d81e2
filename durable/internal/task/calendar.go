// SPDX-License-Identifier: MIT

package task

import (
	"math/bits"
	"sync"
	"time"
)

// A Calendar is a parsed cron expression, as documented in package durable. Its fields are bit sets: bit n is set if n
// matches.
type Calendar struct {
	minute, hour, month uint64

	day     uint64 // days of the month, and the bits lastDay, lastWorkday and nearWorkday + n
	weekday uint64 // bit 7w + d is day d of the week, counted from Sunday: each if w is 0, the w-th of the month, or the last
	both    bool   // both day fields must match, because one of them begins with a *
	byClock bool   // runs follow the local clock, see Next

	zone *time.Location
}

// Bits of Calendar.day: day n of the month is bit n.
const (
	lastWorkday uint64 = 1 << 0  // the last day of the month from Monday to Friday
	lastDay     uint64 = 1 << 32 // the last day of the month
	nearWorkday        = 32      // bit 32 + n is the day from Monday to Friday of the month that is nearest to day n
)

// lastWeek is the number of a weekday's last week in Calendar.weekday. The first week is 1.
const lastWeek = 6

// zones caches the time zones loaded so far: it maps names to *time.Location. Loading a zone takes 0.1 ms. There are
// only about 600 zones, so none is ever evicted.
var zones sync.Map

func loadZone(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err == nil {
		zones.Store(name, zone)
	}
	return zone, err
}

// after returns the first instant after t that is an instant of the calendar plus shift. Instants are in nanoseconds
// since 1970. It returns Latest if there is no such instant.
func (c *Calendar) after(t int64, shift time.Duration) int64 {
	next := c.Next(time.Unix(0, t-int64(shift)))
	if next.IsZero() || next.After(LastTime) {
		return Latest
	}
	return Later(next.UnixNano(), shift)
}

// Next returns the first instant after t at which the calendar has a run, or zero if there is none.
//
// If the calendar matches every hour, or more than one minute of an hour, there is a run whenever the local clock shows a
// matching minute: a minute that the clock shows twice has two runs, and a minute that it skips has none. Otherwise, each
// matching minute has exactly one run, when the local clock first shows that minute or a later one. The run of a skipped
// minute is due when the clock is set forward, and the run of a minute that is shown twice is due the first time.
func (c *Calendar) Next(t time.Time) time.Time {
	t = t.In(c.zone)
	if c.byClock {
		return c.nextShown(t)
	}
	local, ok := c.match(latestShown(t))
	if !ok {
		return time.Time{}
	}
	return c.firstShown(local)
}

const day = 24 * time.Hour

// between returns the number of runs between after and before, exclusive of both. It counts the runs of whole days at
// once, except for days on which the local clock is set, and days shortly after the clock was set.
func (c *Calendar) between(after, before time.Time) (n uint64) {
	daily := uint64(bits.OnesCount64(c.minute) * bits.OnesCount64(c.hour))
	for {
		at := c.Next(after)
		if at.IsZero() || !at.Before(before) {
			return n
		}
		date := shown(at).Truncate(day)
		begins := at.Add(date.Sub(shown(at)))
		start, end := at.ZoneBounds()
		if start.IsZero() || begins.Sub(start) >= farthest {
			for begins.After(after) && !begins.Add(day).After(before) && (end.IsZero() || !begins.Add(day).After(end)) {
				if c.month>>date.Month()&1 != 0 && c.days(date.Year(), date.Month())>>date.Day()&1 != 0 {
					n += daily
				}
				date, begins = date.Add(day), begins.Add(day)
				after = begins.Add(-1)
			}
		}
		if after.Before(at) {
			n++
			after = at
		}
	}
}

// nextShown returns the time at which the local clock shows the next matching minute after t.
func (c *Calendar) nextShown(t time.Time) time.Time {
	local := shown(t)
	match, ok := c.match(local)
	for ok {
		at := t.Add(match.Sub(shown(t)))
		end := sameUntil(t)
		if end.IsZero() || at.Before(end) {
			return at
		}
		t = end
		if from := shown(end).Add(-1); from.Before(local) || !from.Before(match) { // minutes are repeated, or match is skipped
			local = from
			match, ok = c.match(local)
		}
	}
	return time.Time{}
}

// sameUntil returns a time until which the local clock's offset from UTC is the same as at t, or zero if it never
// changes. On the last day of a leap year, ZoneBounds wrongly returns the beginning of that day as the end.
func sameUntil(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		return t.Truncate(time.Hour).Add(time.Hour)
	}
	return end
}

// shown returns the local time at t, as a time in UTC.
func shown(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// farthest is greater than any local clock's offset from UTC, and than any step by which a local clock is set back.
const farthest = 26 * time.Hour

// latestShown returns the latest local time that the clock has shown up to t. It is later than the local time at t if
// the clock was set back.
func latestShown(t time.Time) time.Time {
	latest := shown(t)
	for start, _ := t.ZoneBounds(); !start.IsZero() && t.Sub(start) < farthest; {
		before := start.Add(-1)
		if was := shown(before); was.After(latest) {
			latest = was
		}
		start, _ = before.ZoneBounds()
	}
	return latest
}

// firstShown returns the time at which the local clock first shows that minute or a later one.
func (c *Calendar) firstShown(local time.Time) time.Time {
	for t := local.Add(-farthest).In(c.zone); ; {
		at := t.Add(local.Sub(shown(t)))
		if at.Before(t) {
			at = t // the clock was set forward at t and skipped the minute
		}
		end := sameUntil(t)
		if end.IsZero() || at.Before(end) {
			return at
		}
		t = end
	}
}

// longestGap is greater than the number of years between two days of any calendar. A 29th of February that is a certain
// day of the week is at most 40 years after the previous one, because 2100 and 2200 are not leap years.
const longestGap = 41

// match returns the first matching minute after the minute of a local time, and reports whether there is one. Both
// local times are represented in UTC.
func (c *Calendar) match(local time.Time) (time.Time, bool) {
	t := local.Truncate(time.Minute).Add(time.Minute)
	year, month, day := t.Date()
	hour, minute := t.Hour(), t.Minute()
	for last := year + longestGap; year <= last; {
		if c.month>>month&1 != 0 {
			days := c.days(year, month)
			if days>>day&1 != 0 {
				at := next(c.minute, minute)
				if c.hour>>hour&1 == 0 || at == none {
					hour, at = next(c.hour, hour+1), next(c.minute, 0)
				}
				if hour != none {
					return time.Date(year, month, day, hour, at, 0, 0, time.UTC), true
				}
			}
			if day = next(days, day+1); day != none {
				return time.Date(year, month, day, next(c.hour, 0), next(c.minute, 0), 0, 0, time.UTC), true
			}
		}
		if month++; month > time.December {
			year, month = year+1, time.January
		}
		day, hour, minute = 0, 0, 0
	}
	return time.Time{}, false
}

// none is the result of next if there is no such bit.
const none = 64

// next returns the first bit of a set from that one on, or none.
func next(set uint64, from int) int { return bits.TrailingZeros64(set >> from << from) }

// days returns the matching days of a month as a bit set. If either day field begins with a *, both fields must match.
// Otherwise, one match is enough.
func (c *Calendar) days(year int, month time.Month) uint64 {
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC)
	length := last.Day()
	byDay, byWeekday := c.day&(1<<(length+1)-2), uint64(0)
	if c.day&lastDay != 0 {
		byDay |= 1 << length
	}
	if c.day&lastWorkday != 0 {
		byDay |= 1 << workday(last, length)
	}
	for day, weekday := length, int(last.Weekday()); day > 0; day, weekday = day-1, (weekday+6)%7 {
		if c.day>>(nearWorkday+day)&1 != 0 {
			byDay |= 1 << workday(time.Date(year, month, day, 0, 0, 0, 0, time.UTC), length)
		}
		weeks := c.weekday >> weekday
		if weeks&1 != 0 || weeks>>(7*((day+6)/7))&1 != 0 || day+7 > length && weeks>>(7*lastWeek)&1 != 0 {
			byWeekday |= 1 << day
		}
	}
	if c.both {
		return byDay & byWeekday
	}
	return byDay | byWeekday
}

// workday returns the day from Monday to Friday that is nearest to a day, within its month of that length.
func workday(date time.Time, length int) int {
	day := date.Day()
	switch {
	case date.Weekday() == time.Saturday && day > 1:
		return day - 1
	case date.Weekday() == time.Saturday:
		return day + 2
	case date.Weekday() == time.Sunday && day < length:
		return day + 1
	case date.Weekday() == time.Sunday:
		return day - 2
	}
	return day
}
