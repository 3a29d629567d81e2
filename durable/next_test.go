// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // so that every machine has the same zones

	"github.com/seed581295f1/timewheel/internal/testkit"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// The promises of the documentation about days on which the clocks are changed.
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

func FuzzNext(f *testing.F) {
	for _, spec := range []string{"@daily", "30 2 * * *", "*/20 0-3 * * *", "59 23 28-31 3,10 SUN", "0 12 29 2 *", "@hourly", "50 * * * 0"} {
		f.Add(spec, "Europe/Berlin", int64(1e18))
	}
	f.Add("0 0 1 1 *", "America/Nuuk", int64(task.Latest))
	f.Fuzz(func(t *testing.T, spec, zone string, from int64) {
		if zone != "" {
			spec = "CRON_TZ=" + zone + " " + spec
		}
		last := time.Unix(0, max(from, 0))
		next, _ := Next(spec, last, 20)
		for _, at := range next {
			if !at.After(last) || at.After(time.Unix(0, task.Latest)) || at.Second() != 0 && at.Year() > 1980 {
				t.Fatalf("%q: after %v comes %v", spec, last, at)
			}
			last = at
		}
	})
}

// The error of a wrong expression names the field, its value and the allowed values.
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
