// SPDX-License-Identifier: MIT

package task

import (
	"archive/zip"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // so that every machine has the same zones

	"github.com/seed581295f1/timewheel/internal/testkit"
)

var allZones = flag.Bool("zones", false, "test calendars in every time zone: two minutes")

// someZones have unusual changes of the clock: at midnight, across midnight, by half an hour, by two hours, two more
// per year than elsewhere, or permanent ones.
var someZones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "America/Havana", "America/Nuuk", "Australia/Lord_Howe",
	"Africa/Cairo",
	"Antarctica/Troll", "Africa/Casablanca", "Asia/Pyongyang", "America/Caracas", "Asia/Kathmandu", "Pacific/Apia",
}

// zoneNames returns the names of the zones known to Go.
func zoneNames(t *testing.T) (names []string) {
	if !*allZones {
		return someZones
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib/time/zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	for _, f := range files.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" {
			names = append(names, f.Name)
		}
	}
	return names
}

// calendars are expressions, each with a function that reports whether its fields match a local time.
var calendars = []struct {
	spec    string
	byClock bool // every hour, or more than one minute of an hour
	matches func(t time.Time) bool
}{
	{"@daily", false, func(t time.Time) bool { return t.Hour() == 0 && t.Minute() == 0 }},
	{"30 2 * * *", false, func(t time.Time) bool { return t.Hour() == 2 && t.Minute() == 30 }},
	{"45 23 * * *", false, func(t time.Time) bool { return t.Hour() == 23 && t.Minute() == 45 }},
	{"0 9 * * MON", false, func(t time.Time) bool { return t.Hour() == 9 && t.Minute() == 0 && t.Weekday() == 1 }},
	{"15 1,2,3 * * *", false, func(t time.Time) bool {
		return t.Hour() >= 1 && t.Hour() <= 3 && t.Minute() == 15
	}},
	{"*/20 0-3 * * *", true, func(t time.Time) bool { return t.Hour() <= 3 && t.Minute()%20 == 0 }},
	{"7 */5 * * *", false, func(t time.Time) bool { return t.Hour()%5 == 0 && t.Minute() == 7 }},
	{"59 23 28-31 3,10 SUN", false, func(t time.Time) bool {
		return t.Hour() == 23 && t.Minute() == 59 && (t.Month() == 3 || t.Month() == 10) &&
			(t.Day() >= 28 || t.Weekday() == 0)
	}},
	{"0 12 29 2 *", false, func(t time.Time) bool {
		return t.Hour() == 12 && t.Minute() == 0 && t.Month() == 2 && t.Day() == 29
	}},
	{"@hourly", true, func(t time.Time) bool { return t.Minute() == 0 }},
	{"*/15 * * * *", true, func(t time.Time) bool { return t.Minute()%15 == 0 }},
	{"50 * * * 0", true, func(t time.Time) bool { return t.Minute() == 50 && t.Weekday() == 0 }},
	{"30 0-23 * * SAT-SUN", true, func(t time.Time) bool {
		return t.Minute() == 30 && (t.Weekday() == 0 || t.Weekday() == 6)
	}},
	{"5,35 0-4 */100,L * 7", true, func(t time.Time) bool {
		return t.Minute()%30 == 5 && t.Hour() <= 4 && t.Weekday() == 0 && (t.Day() == 1 || t.AddDate(0, 0, 1).Day() == 1)
	}},
	{"30 2 15W * 5L,MON#1", false, func(t time.Time) bool {
		w := t.Weekday()
		return t.Hour() == 2 && t.Minute() == 30 && (t.Day() == 15 && w != 0 && w != 6 || t.Day() == 14 && w == 5 ||
			t.Day() == 16 && w == 1 || t.Day() <= 7 && w == 1 || w == 5 && t.AddDate(0, 0, 7).Day() <= 7)
	}},
}

// Ten years in each zone, against a reference that steps through the minutes. The reference keeps the latest minute
// that the local clock has shown, so that it passes every minute of the calendar once.
func TestCalendar_asAWalkThroughTheMinutes(t *testing.T) {
	testkit.NotForRaces(t)
	from, until := time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if testing.Short() {
		from = until.AddDate(-1, 0, 0)
	}
	walk(t, from, until)
}

// Beyond 2037 the clock changes of a zone follow a rule, not a list. The year 2040 is a leap year.
func TestCalendar_byTheRuleOfAZone_asAWalkThroughTheMinutes(t *testing.T) {
	testkit.NotForRaces(t)
	walk(t, time.Date(2040, 9, 1, 0, 0, 0, 0, time.UTC), time.Date(2041, 5, 1, 0, 0, 0, 0, time.UTC))
}

// walk compares the calendars with a walk through the minutes.
func walk(t *testing.T, from, until time.Time) {
	const around = 2 * 24 * 60 // extra minutes of the calendar before and after, because a local clock may show them
	minutes := int(until.Sub(from) / time.Minute)
	matches := make([][]bool, len(calendars)) // for each, the matching minutes, from around minutes before from
	for i, c := range calendars {
		matches[i] = make([]bool, minutes+2*around)
		for m := range matches[i] {
			matches[i][m] = c.matches(from.Add(time.Duration(m-around) * time.Minute))
		}
	}
	local := make([]int, minutes) // the local time, as an index of matches
	seen := make(map[string]bool) // the clock changes of earlier zones
	rnd := rand.New(rand.NewPCG(1, 2))
	inZone := func(t *testing.T, zone string) {
		in, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		var set []int // the times of the clock changes
		for m := range local {
			_, offset := from.Add(time.Duration(m) * time.Minute).In(in).Zone()
			if local[m] = m + around + offset/60; m > 0 && local[m] != local[m-1]+1 {
				set = append(set, m)
			}
		}
		offsets := fmt.Sprint(local[0])
		for _, m := range set {
			offsets += fmt.Sprint(" ", m, local[m])
		}
		if seen[offsets] {
			return // a zone with the same changes was tested already
		}
		seen[offsets] = true
		for i, c := range calendars {
			var want []int
			for m, latest := 1, local[0]; m < minutes; m++ {
				runs := c.byClock && matches[i][local[m]]
				for ; latest < local[m]; latest++ {
					runs = runs || !c.byClock && matches[i][latest+1]
				}
				if runs {
					want = append(want, m)
				}
			}
			calendar, err := ParseCalendar("CRON_TZ=" + zone + " " + c.spec)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for last, at := from, calendar.Next(from); at.Before(until); last, at = at, calendar.Next(at) {
				if !at.After(last) {
					t.Fatalf("%s, %s: after %v comes %v", zone, c.spec, last, at)
				}
				got = append(got, int(at.Sub(from)/time.Minute))
			}
			if !slices.Equal(got, want) {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				when := func(all []int) string {
					if at == len(all) {
						return "nothing"
					}
					return from.Add(time.Duration(all[at]) * time.Minute).In(in).String()
				}
				t.Errorf("%s, %s: run %d is at %s, want %s", zone, c.spec, at, when(got), when(want))
			}
			for _, m := range set { // from any time around that, at which there need not be a run
				m = min(max(m-180+rnd.IntN(360), 0), minutes-1)
				after := from.Add(time.Duration(m)*time.Minute + time.Duration(rnd.IntN(int(time.Minute))))
				i, _ := slices.BinarySearch(want, m+1)
				at := calendar.Next(after)
				last := i == len(want)
				if last && at.Before(until) || !last && !at.Equal(from.Add(time.Duration(want[i])*time.Minute)) {
					t.Errorf("%s, %s: after %v comes %v", zone, c.spec, after.In(in), at)
				}
			}
			for range min(len(got), 3) {
				i := rnd.IntN(len(got))
				j := min(i+rnd.IntN(len(got)/8+2), len(got)-1)
				after := from.Add(time.Duration(got[i])*time.Minute + time.Duration(rnd.IntN(2)))
				before := from.Add(time.Duration(got[j])*time.Minute - time.Duration(rnd.IntN(2)))
				if n := calendar.between(after, before); n != uint64(max(j-i-1, 0)) {
					t.Errorf("%s, %s: between %v and %v are %d runs, want %d", zone, c.spec, after, before, n, j-i-1)
				}
			}
		}
	}
	for _, zone := range zoneNames(t) {
		t.Run(zone, func(t *testing.T) { inZone(t, zone) })
	}
}

// A year of missed runs.
func BenchmarkRecord_periods(b *testing.B) {
	for _, cron := range []string{"* * * * *", "CRON_TZ=Europe/Berlin * * * * *", "CRON_TZ=Europe/Berlin 0 9 * * *"} {
		b.Run(cron, func(b *testing.B) {
			from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			r := &Record{Cron: cron, Grid: from.UnixNano()}
			until := NextOf(cron, from.AddDate(1, 0, 0).UnixNano(), 0)
			n := uint64(0)
			for b.Loop() {
				n = r.periods(until)
			}
			b.ReportMetric(float64(n), "runs")
		})
	}
}

func BenchmarkParseCalendar(b *testing.B) {
	for b.Loop() {
		if _, err := ParseCalendar("CRON_TZ=Europe/Berlin 0 9 * * *"); err != nil {
			b.Fatal(err)
		}
	}
}

// The longest searches: for a day that comes every 40 years, and for one that no month has, which fails.
func BenchmarkCalendar_rareDays(b *testing.B) {
	b.Run("found", func(b *testing.B) {
		c, err := ParseCalendar("CRON_TZ=Europe/Berlin */30 12 29 2 */7")
		if err != nil {
			b.Fatal(err)
		}
		after := time.Date(2088, 3, 1, 0, 0, 0, 0, time.UTC)
		for b.Loop() {
			if at := c.Next(after); at.Year() != 2128 {
				b.Fatal(at)
			}
		}
	})
	b.Run("refused", func(b *testing.B) {
		for b.Loop() {
			if _, err := ParseCalendar("0 0 31 2,4,6,9,11 *"); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}
