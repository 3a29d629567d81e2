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
		{"CRON_TZ=Europe/Berlin */30 0-23 * * *", "2026-10-25T00:15:00Z", // more than once an hour, so by the clock
			"[10-25 02:30:00 CEST 10-25 02:00:00 CET 10-25 02:30:00 CET]"},
		{"CRON_TZ=Europe/Berlin */30 0-23 * * *", "2026-03-29T00:15:00Z",
			"[03-29 01:30:00 CET 03-29 03:00:00 CEST 03-29 03:30:00 CEST]"},
		{"CRON_TZ=Europe/Berlin 10,40 1-3 * * *", "2026-10-25T00:15:00Z",
			"[10-25 02:40:00 CEST 10-25 02:10:00 CET 10-25 02:40:00 CET]"},
		{"CRON_TZ=Europe/Berlin 10,40 1-3 * * *", "2026-03-29T00:15:00Z",
			"[03-29 01:40:00 CET 03-29 03:10:00 CEST 03-29 03:40:00 CEST]"},
		{"CRON_TZ=Europe/Berlin 30 0-23 * * *", "2026-10-25T00:15:00Z", // every hour, so by the clock
			"[10-25 02:30:00 CEST 10-25 02:30:00 CET 10-25 03:30:00 CET]"},
		{"CRON_TZ=Europe/Berlin 30 1-3 * * *", "2026-10-25T00:15:00Z", // at three times of a day
			"[10-25 02:30:00 CEST 10-25 03:30:00 CET 10-26 01:30:00 CET]"},
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
		{"47 6 * * 7", "2026-11-22T09:00:00Z", "[11-29 06:47:00 UTC 12-06 06:47:00 UTC 12-13 06:47:00 UTC]"},
		{"30 2 * * SAT-SUN", "2026-11-22T09:00:00Z", "[11-28 02:30:00 UTC 11-29 02:30:00 UTC 12-05 02:30:00 UTC]"},
		{"0 9 */100,1-7 * MON", "2026-11-22T09:00:00Z", "[12-07 09:00:00 UTC 01-04 09:00:00 UTC 02-01 09:00:00 UTC]"},
		{"0 9 1-7,*/100 * MON", "2026-11-22T09:00:00Z", "[11-23 09:00:00 UTC 11-30 09:00:00 UTC 12-01 09:00:00 UTC]"},
		{"0 9 * * MON#1", "2026-11-22T09:00:00Z", "[12-07 09:00:00 UTC 01-04 09:00:00 UTC 02-01 09:00:00 UTC]"},
		{"0 9 * * 5L", "2026-11-22T09:00:00Z", "[11-27 09:00:00 UTC 12-25 09:00:00 UTC 01-29 09:00:00 UTC]"},
		{"0 9 L * *", "2027-12-31T09:00:00Z", "[01-31 09:00:00 UTC 02-29 09:00:00 UTC 03-31 09:00:00 UTC]"},
		{"0 9 LW * *", "2026-11-22T09:00:00Z", "[11-30 09:00:00 UTC 12-31 09:00:00 UTC 01-29 09:00:00 UTC]"},
		{"0 9 15W * *", "2026-10-22T09:00:00Z", "[11-16 09:00:00 UTC 12-15 09:00:00 UTC 01-15 09:00:00 UTC]"},
		{"0 9 1W * *", "2026-07-22T09:00:00Z", "[08-03 09:00:00 UTC 09-01 09:00:00 UTC 10-01 09:00:00 UTC]"},
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
		"* * * 13 *", "* * * * 8", "*/0 * * * *", "a * * * *", ", * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *",
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
	for _, spec := range []string{"@daily", "30 2 * * *", "*/20 0-3 * * *", "59 23 28-31 3,10 SUN", "0 12 29 2 *", "@hourly", "50 * * * 0", "*/5 4 LW,15W,*/9 2 SAT-SUN,5L,MON#1"} {
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

// The error of a wrong expression names the field, its value and the mistake, or says what to write.
func TestCalendar_errors_nameTheFieldAndWhatIsWrong(t *testing.T) {
	for spec, want := range map[string]string{
		"0 9 L-3 * *":    `day of the month "L-3": "L" is not a number from 1 to 31`,
		"5,61 9 * * *":   `minute "5,61": "61" is not a number from 0 to 59`,
		"0 24 * * *":     `hour "24": "24" is not a number from 0 to 23`,
		"0 22-6 * * *":   `hour "22-6": 22-6 ends before it begins: write 22-23,0-6`,
		"0 0 * 13 *":     `month "13": "13" is not a number from 1 to 12, or JAN to DEC`,
		"0 0 * * FRIDAY": `day of the week "FRIDAY": "FRIDAY" is not a number from 0 to 7, or SUN to SAT`,
		"0 0 * * MON#6":  `day of the week "MON#6": week "6" is not a number from 1 to 5`,
		"*/0 * * * *":    `minute "*/0": step "0" is not a number from 1 to 65535`,
		"0 0 31 2 *": `no day has day of the month "31", month "2" and day of the week "*": ` +
			`to run a task only by hand, choose any calendar and pause the task`,
		"0 9 * *":        "4 fields; 5 are needed: minute, hour, day of the month, month and day of the week",
		"":               "0 fields; 5 are needed: minute, hour, day of the month, month and day of the week",
		"0 30 2 * * ?":   `6 fields: seconds and years are not supported: write "30 2 * * ?"`,
		"*/10 * * * * *": "6 fields: seconds and years are not supported: set Interval to 10s in place of Cron",
		"@noon":          "@noon is none of @hourly, @daily, @weekly, @monthly and @yearly",
		"@every 90m":     "@every is not supported: set Interval to 1h30m0s in place of Cron",
	} {
		_, err := Next(spec, time.Now(), 1)
		if text := fmt.Sprintf("durable: cron %q: %s", spec, want); err == nil || err.Error() != text {
			t.Errorf("%v, want %s", err, text)
		}
	}
}
