// SPDX-License-Identifier: MIT

package task

import (
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
)

// A Calendar is a parsed cron expression, as documented in package durable. Its fields are bit sets: bit n is set if n
// matches.
//
// The cron library only parses the fields. Its own search for the next instant is not used, because it omits minutes
// that the local clock skips and repeats minutes that the clock repeats.
type Calendar struct {
	minute, hour, day, month, weekday uint64
	zone                              *time.Location
}

// starBit is set in a field that the cron library parsed from a *.
const starBit = 1 << 63

// ParseCalendar returns the calendar of a cron expression. The error says what is wrong with the expression.
func ParseCalendar(spec string) (*Calendar, error) {
	wrong := func(format string, args ...any) (*Calendar, error) {
		return nil, fmt.Errorf("cron %q: %s", spec, fmt.Sprintf(format, args...))
	}
	zone, fields := "UTC", spec
	if rest, ok := strings.CutPrefix(spec, "CRON_TZ="); ok {
		zone, fields, _ = strings.Cut(rest, " ")
	}
	fields = strings.TrimSpace(fields)
	in, err := loadZone(zone)
	switch {
	case err != nil:
		return wrong("%v", err)
	case zone == "" || in == time.Local:
		return wrong("%q is not the name of a time zone", zone)
	case strings.Contains(fields, "="): // the library would parse a zone
		return wrong("the zone goes first, as in CRON_TZ=Europe/Berlin 0 9 * * *")
	case strings.HasPrefix(fields, "@every"):
		return wrong("Interval is for a fixed time between runs")
	}
	parsed, err := cron.ParseStandard(fields)
	if err != nil {
		return wrong("%s", misfit(fields))
	}
	s := parsed.(*cron.SpecSchedule) // ParseStandard returns another type only for @every
	c := &Calendar{s.Minute, s.Hour, s.Dom, s.Month, s.Dow, in}
	if _, ok := c.match(time.Unix(0, 0).UTC()); !ok {
		return wrong("no day fits")
	}
	return c, nil
}

// calendarFields lists the fields of a calendar and the values that each accepts.
var calendarFields = [...]struct{ name, takes string }{
	{"minute", "0 to 59"},
	{"hour", "0 to 23"},
	{"day of the month", "1 to 31"},
	{"month", "1 to 12, or JAN to DEC"},
	{"day of the week", "0 to 6 from Sunday on, or SUN to SAT"},
}

// misfit describes what is wrong with fields that the cron library rejects.
func misfit(fields string) string {
	if strings.HasPrefix(fields, "@") {
		return fmt.Sprintf("%s is none of @hourly, @daily, @weekly, @monthly and @yearly", fields)
	}
	all := strings.Fields(fields)
	if len(all) != len(calendarFields) {
		return fmt.Sprintf("%d fields; %d are needed: minute, hour, day of the month, month and day of the week",
			len(all), len(calendarFields))
	}
	for i, field := range all {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field
		if _, err := cron.ParseStandard(strings.Join(alone, " ")); err != nil {
			return fmt.Sprintf("%s %q: * is allowed, and numbers, ranges such as 1-5 and steps such as */15 of %s",
				calendarFields[i].name, field, calendarFields[i].takes)
		}
	}
	return "the fields do not fit" // each field is valid by itself
}

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
// If the hour field is *, there is a run whenever the local clock shows a matching minute: a minute that the clock
// shows twice has two runs, and a minute that it skips has none. Otherwise, each matching minute has exactly one run,
// when the local clock first shows that minute or a later one. The run of a skipped minute is due when the clock is set
// forward, and the run of a minute that is shown twice is due the first time.
func (c *Calendar) Next(t time.Time) time.Time {
	t = t.In(c.zone)
	if c.hour&starBit != 0 {
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
	minutes, hours := c.minute&^starBit, c.hour&^starBit
	daily := uint64(bits.OnesCount64(minutes) * bits.OnesCount64(hours))
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
				if c.month>>date.Month()&1 != 0 && c.matchesDay(date.Day(), date.Weekday()) {
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
	for local := shown(t); ; {
		match, ok := c.match(local)
		if !ok {
			return time.Time{}
		}
		at := t.Add(match.Sub(shown(t)))
		end := sameUntil(t)
		if end.IsZero() || at.Before(end) {
			return at
		}
		t, local = end, shown(end).Add(-1)
	}
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

// leapYears is the longest possible interval between two 29ths of February, in years.
const leapYears = 8

// match returns the first matching minute after the minute of a local time, and reports whether there is one. Both
// local times are represented in UTC.
func (c *Calendar) match(local time.Time) (time.Time, bool) {
	t := local.Truncate(time.Minute).Add(time.Minute)
	for last := t.Year() + leapYears; t.Year() <= last; {
		year, month, day := t.Date()
		switch {
		case c.month>>month&1 == 0:
			t = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !c.matchesDay(day, t.Weekday()):
			t = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case c.hour>>t.Hour()&1 == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		case c.minute>>t.Minute()&1 == 0:
			t = t.Add(time.Minute)
		default:
			return t, true
		}
	}
	return t, false
}

// matchesDay reports whether a day matches. If either day field is *, both fields must match. Otherwise, one match is
// enough.
func (c *Calendar) matchesDay(day int, weekday time.Weekday) bool {
	byDay, byWeekday := c.day>>day&1 != 0, c.weekday>>weekday&1 != 0
	if (c.day|c.weekday)&starBit != 0 {
		return byDay && byWeekday
	}
	return byDay || byWeekday
}
