// SPDX-License-Identifier: MIT

package durable

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

// someZones have what is odd: clocks that are set at midnight, over midnight, by half an hour, by two hours,
// twice a year more than elsewhere, or for good.
var someZones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "America/Havana", "America/Nuuk", "Australia/Lord_Howe",
	"Africa/Cairo",
	"Antarctica/Troll", "Africa/Casablanca", "Asia/Pyongyang", "America/Caracas", "Asia/Kathmandu", "Pacific/Apia",
}

// zoneNames returns the names of the zones that Go has.
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

// calendars are expressions, and when their fields match a local time.
var calendars = []struct {
	spec    string
	hourly  bool // the hour is a *
	matches func(t time.Time) bool
}{
	{"@daily", false, func(t time.Time) bool { return t.Hour() == 0 && t.Minute() == 0 }},
	{"30 2 * * *", false, func(t time.Time) bool { return t.Hour() == 2 && t.Minute() == 30 }},
	{"45 23 * * *", false, func(t time.Time) bool { return t.Hour() == 23 && t.Minute() == 45 }},
	{"0 9 * * MON", false, func(t time.Time) bool { return t.Hour() == 9 && t.Minute() == 0 && t.Weekday() == 1 }},
	{"15 1,2,3 * * *", false, func(t time.Time) bool {
		return t.Hour() >= 1 && t.Hour() <= 3 && t.Minute() == 15
	}},
	{"*/20 0-3 * * *", false, func(t time.Time) bool { return t.Hour() <= 3 && t.Minute()%20 == 0 }},
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
}

// Ten years in each zone, against a reference that steps through the minutes. It notes the latest minute that
// the local clock has shown: every minute of the calendar is passed once.
func TestCalendar_asAWalkThroughTheMinutes(t *testing.T) {
	testkit.NotForRaces(t)
	from, until := time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if testing.Short() {
		from = until.AddDate(-1, 0, 0)
	}
	walk(t, from, until)
}

// Beyond 2037 a zone has no list of when its clock is set, but a rule. The year 2040 is a leap year.
func TestCalendar_byTheRuleOfAZone_asAWalkThroughTheMinutes(t *testing.T) {
	testkit.NotForRaces(t)
	walk(t, time.Date(2040, 9, 1, 0, 0, 0, 0, time.UTC), time.Date(2041, 5, 1, 0, 0, 0, 0, time.UTC))
}

// walk compares the calendars with a walk through the minutes.
func walk(t *testing.T, from, until time.Time) {
	const around = 2 * 24 * 60 // minutes of the calendar before and after, for what a local clock shows
	minutes := int(until.Sub(from) / time.Minute)
	matches := make([][]bool, len(calendars)) // of each, what matches, from around minutes before from
	for i, c := range calendars {
		matches[i] = make([]bool, minutes+2*around)
		for m := range matches[i] {
			matches[i][m] = c.matches(from.Add(time.Duration(m-around) * time.Minute))
		}
	}
	local := make([]int, minutes) // what the clock shows, as an index of matches
	seen := make(map[string]bool) // how the clocks of the zones before were set
	rnd := rand.New(rand.NewPCG(1, 2))
	inZone := func(t *testing.T, zone string) {
		in, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		var set []int // when the clock has been set
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
			return // another name, or another past, of a zone that was tested
		}
		seen[offsets] = true
		for i, c := range calendars {
			var want []int
			for m, latest := 1, local[0]; m < minutes; m++ {
				runs := c.hourly && matches[i][local[m]]
				for ; latest < local[m]; latest++ {
					runs = runs || !c.hourly && matches[i][latest+1]
				}
				if runs {
					want = append(want, m)
				}
			}
			calendar, err := parseCalendar("CRON_TZ=" + zone + " " + c.spec)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for last, at := from, calendar.next(from); at.Before(until); last, at = at, calendar.next(at) {
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
				at := calendar.next(after)
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

// What the documentation says about days on which the clocks are set.
func TestNext_whenTheClocksAreSet(t *testing.T) {
	for _, c := range []struct{ spec, from, want string }{
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T00:00:00Z",
			"[03-28 02:30:00 CET 03-29 03:00:00 CEST 03-30 02:30:00 CEST]"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T00:00:00Z",
			"[10-24 02:30:00 CEST 10-25 02:30:00 CEST 10-26 02:30:00 CET]"},
		{"CRON_TZ=Europe/Berlin 30 * * * *", "2026-03-29T00:00:00Z",
			"[03-29 01:30:00 CET 03-29 03:30:00 CEST 03-29 04:30:00 CEST]"},
		{"CRON_TZ=Europe/Berlin 30 * * * *", "2026-10-25T00:00:00Z",
			"[10-25 02:30:00 CEST 10-25 02:30:00 CET 10-25 03:30:00 CET]"},
		{"CRON_TZ=Europe/Berlin 0,30 2,3 * * *", "2026-03-29T00:00:00Z",
			"[03-29 03:00:00 CEST 03-29 03:30:00 CEST 03-30 02:00:00 CEST]"},
		{"CRON_TZ=America/Havana @daily", "2026-03-07T12:00:00Z",
			"[03-08 01:00:00 CDT 03-09 00:00:00 CDT 03-10 00:00:00 CDT]"},
		{"CRON_TZ=America/Havana @daily", "2026-10-31T12:00:00Z",
			"[11-01 00:00:00 CDT 11-02 00:00:00 CST 11-03 00:00:00 CST]"},
		{"CRON_TZ=Pacific/Apia 0 9 * * *", "2011-12-28T20:00:00Z", // which had no 30th of December
			"[12-29 09:00:00 -10 12-31 00:00:00 +14 12-31 09:00:00 +14]"},
		{"CRON_TZ=Europe/Berlin 0 9 * * *", "2040-12-30T00:00:00Z",
			"[12-30 09:00:00 CET 12-31 09:00:00 CET 01-01 09:00:00 CET]"},
		{"CRON_TZ=Europe/Berlin 30 * * * *", "2040-12-31T21:45:00Z",
			"[12-31 23:30:00 CET 01-01 00:30:00 CET 01-01 01:30:00 CET]"},
		{"0 9 * * MON", "2026-11-22T09:00:00Z", "[11-23 09:00:00 UTC 11-30 09:00:00 UTC 12-07 09:00:00 UTC]"},
		{"0 0 29 2 *", "2096-02-29T00:00:00Z", "[02-29 00:00:00 UTC 02-29 00:00:00 UTC 02-29 00:00:00 UTC]"},
		{"0 0 1 1 *", "2260-06-01T00:00:00Z", "[01-01 00:00:00 UTC 01-01 00:00:00 UTC]"}, // the last year is 2262
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		next, err := Next(c.spec, from, 3)
		var got []string
		for _, at := range next {
			got = append(got, at.Format("01-02 15:04:05 MST"))
		}
		if fmt.Sprint(got) != c.want || err != nil {
			t.Errorf("%s from %s: %v, %v, want %s", c.spec, c.from, got, err, c.want)
		}
	}
}

func TestNext_wrong(t *testing.T) {
	testkit.NotForRaces(t)
	for _, spec := range []string{
		"", " ", "@", "@every 1h", " @every 1h", "CRON_TZ=UTC  @every 1h", "@reboot",
		"* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *",
		"* * * 13 *", "* * * * 7", "*/0 * * * *", "a * * * *", ", * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *",
		"CRON_TZ=",
		"CRON_TZ=UTC",
		"CRON_TZ= * * * * *", "CRON_TZ=Europe/Atlantis * * * * *", "CRON_TZ=Local * * * * *",
		"CRON_TZ=../x * * * * *",
		"TZ=UTC", "TZ=UTC * * * * *", "CRON_TZ=UTC TZ=UTC", "CRON_TZ=UTC CRON_TZ=UTC * * * * *",
		"* * * * *" + strings.Repeat(" ", MaxCron),
	} {
		if next, err := Next(spec, time.Unix(0, 0), 1); err == nil {
			t.Errorf("%q is next at %v", spec, next)
		} else if !strings.Contains(err.Error(), "cron ") {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// A year of missed runs.
func BenchmarkRecord_periods(b *testing.B) {
	for _, cron := range []string{"* * * * *", "CRON_TZ=Europe/Berlin * * * * *", "CRON_TZ=Europe/Berlin 0 9 * * *"} {
		b.Run(cron, func(b *testing.B) {
			from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			r := &record{cron: cron, grid: from.UnixNano()}
			until := nextOf(cron, from.AddDate(1, 0, 0).UnixNano(), 0)
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
		if _, err := parseCalendar("CRON_TZ=Europe/Berlin 0 9 * * *"); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzNext(f *testing.F) {
	for _, c := range calendars {
		f.Add(c.spec, "Europe/Berlin", int64(1e18))
	}
	f.Add("0 0 1 1 *", "America/Nuuk", int64(latest))
	f.Fuzz(func(t *testing.T, spec, zone string, from int64) {
		if zone != "" {
			spec = "CRON_TZ=" + zone + " " + spec
		}
		last := time.Unix(0, max(from, 0))
		next, _ := Next(spec, last, 20)
		for _, at := range next {
			if !at.After(last) || at.After(lastTime) || at.Second() != 0 && at.Year() > 1980 {
				t.Fatalf("%q: after %v comes %v", spec, last, at)
			}
			last = at
		}
	})
}

// The error of a wrong expression names the field, what it is, and what it may be.
func TestCalendar_errors_nameTheFieldAndWhatIsAllowed(t *testing.T) {
	for spec, want := range map[string]string{
		"0 9 L * *":      `day of the month "L": * is allowed, and numbers, ranges such as 1-5 and steps such as */15 of 1 to 31`,
		"61 9 * * *":     `minute "61": * is allowed, and numbers, ranges such as 1-5 and steps such as */15 of 0 to 59`,
		"0 24 * * *":     `hour "24": * is allowed, and numbers, ranges such as 1-5 and steps such as */15 of 0 to 23`,
		"0 0 * 13 *":     `month "13": * is allowed, and numbers, ranges such as 1-5 and steps such as */15 of 1 to 12, or JAN to DEC`,
		"0 0 * * FRIDAY": `day of the week "FRIDAY": * is allowed, and numbers, ranges such as 1-5 and steps such as */15 of 0 to 6 from Sunday on, or SUN to SAT`,
		"0 9 * *":        "4 fields; 5 are needed: minute, hour, day of the month, month and day of the week",
		"":               "0 fields; 5 are needed: minute, hour, day of the month, month and day of the week",
		"@noon":          "@noon is none of @hourly, @daily, @weekly, @monthly and @yearly",
	} {
		_, err := Next(spec, time.Now(), 1)
		if text := fmt.Sprintf("durable: cron %q: %s", spec, want); err == nil || err.Error() != text {
			t.Errorf("%v, want %s", err, text)
		}
	}
}
