// SPDX-License-Identifier: MIT

package task

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// matches reports whether a local time matches five fields. Unlike a Calendar it has no bit sets and no search: it looks
// at each entry of each field, and finds days by walking from day to day.
func matches(fields []string, t time.Time) bool {
	weekday := int(t.Weekday())
	day := slices.ContainsFunc(strings.Split(fields[2], ","), func(entry string) bool { return dayMatches(entry, t) })
	days := slices.ContainsFunc(strings.Split(fields[4], ","), func(entry string) bool {
		return weekdayMatches(entry, t) || entryMatches(entry, weekday, 0, 6) || weekday == 0 && entryMatches(entry, 7, 0, 6)
	})
	anyDay := strings.HasPrefix(fields[2], "*") || strings.HasPrefix(fields[4], "*") ||
		strings.HasPrefix(fields[2], "?") || strings.HasPrefix(fields[4], "?")
	return fieldMatches(fields[0], t.Minute(), 0, 59) && fieldMatches(fields[1], t.Hour(), 0, 23) &&
		fieldMatches(fields[3], int(t.Month()), 1, 12) && (day && days || !anyDay && (day || days))
}

func fieldMatches(field string, value, least, last int) bool {
	return slices.ContainsFunc(strings.Split(field, ","), func(entry string) bool { return entryMatches(entry, value, least, last) })
}

// entryMatches reports whether a *, a number, a name or a range matches, each with or without a step.
func entryMatches(entry string, value, least, last int) bool {
	span, by, stepped := strings.Cut(entry, "/")
	low, high, ranged := strings.Cut(span, "-")
	from, to, ok := least, last, true
	if span != "*" && span != "?" {
		from, ok = valueOf(low)
		switch {
		case ranged:
			to, _ = valueOf(high)
			if to == 0 && from > 0 {
				to = 7 // only days of the week have such ranges
			}
			if from == 7 && to < 7 {
				from = 0
			}
		case !stepped:
			to = from
		}
	}
	if !ok || value < from || value > max(from, to) {
		return false
	}
	step, err := strconv.Atoi(by)
	return !stepped || err == nil && (value-from)%step == 0
}

// valueOf returns the value of a number or the name of a month or day of the week.
func valueOf(text string) (int, bool) {
	if at := strings.Index("SUN MON TUE WED THU FRI SAT", strings.ToUpper(text)); at >= 0 && len(text) == 3 {
		return at / 4, true
	}
	if at := strings.Index("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", strings.ToUpper(text)); at >= 0 && len(text) == 3 {
		return at/4 + 1, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

func dayMatches(entry string, t time.Time) bool {
	isLast := func(t time.Time) bool { return t.AddDate(0, 0, 1).Month() != t.Month() }
	works := func(t time.Time) bool { return t.Weekday() != time.Saturday && t.Weekday() != time.Sunday }
	entry = strings.ToUpper(entry)
	switch {
	case entry == "L":
		return isLast(t)
	case entry == "LW":
		for later := t.AddDate(0, 0, 1); later.Month() == t.Month(); later = later.AddDate(0, 0, 1) {
			if works(later) {
				return false
			}
		}
		return works(t)
	case strings.HasSuffix(entry, "W"):
		n, _ := strconv.Atoi(strings.TrimSuffix(entry, "W"))
		target := time.Date(t.Year(), t.Month(), n, t.Hour(), t.Minute(), 0, 0, time.UTC)
		for _, nearest := range []int{0, -1, 1, -2, 2} { // a Saturday's Friday is nearer than its Monday
			if at := target.AddDate(0, 0, nearest); target.Month() == t.Month() && at.Month() == t.Month() && works(at) {
				return at.Equal(t)
			}
		}
		return false
	}
	return entryMatches(entry, t.Day(), 1, 31)
}

func weekdayMatches(entry string, t time.Time) bool {
	if day, ok := strings.CutSuffix(strings.ToUpper(entry), "L"); ok {
		n, _ := valueOf(day)
		return n%7 == int(t.Weekday()) && t.AddDate(0, 0, 7).Month() != t.Month()
	}
	day, week, ok := strings.Cut(entry, "#")
	n, _ := valueOf(day)
	count := 0
	for at := t; at.Month() == t.Month(); at = at.AddDate(0, 0, -7) {
		count++
	}
	return ok && n%7 == int(t.Weekday()) && strconv.Itoa(count) == week
}

// naive returns the first matching minute after t, in UTC, or the zero time if there is none within ten years. It tries
// the days one by one, then the hours of a day, and then the minutes.
func naive(fields []string, t time.Time) time.Time {
	for date := t.Truncate(day); date.Before(t.AddDate(10, 0, 0)); date = date.Add(day) {
		if !matches([]string{"*", "*", fields[2], fields[3], fields[4]}, date) {
			continue
		}
		for hour := range 24 {
			if !fieldMatches(fields[1], hour, 0, 23) {
				continue
			}
			for minute := range 60 {
				at := date.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
				if at.After(t) && fieldMatches(fields[0], minute, 0, 59) {
					return at
				}
			}
		}
	}
	return time.Time{}
}

// A crontab is a row of testdata/crontabs.txt.
type crontab struct{ spec, problem, robfig, cron8 string }

func crontabs(t *testing.T) (all []crontab) {
	text, err := os.ReadFile("testdata/crontabs.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := append(strings.Split(line, " | "), "", "", "")
		all = append(all, crontab{cells[0], cells[1], cells[2], cells[3]})
	}
	return all
}

// Expressions of crontabs, charts and workflows, each with its times, or with the error that it gives. See the head of
// the file.
func TestParseCalendar_expressionsThatPeopleHave(t *testing.T) {
	rows := crontabs(t)
	for _, row := range rows {
		c, err := ParseCalendar(row.spec)
		problem := ""
		if err != nil {
			problem = strings.TrimPrefix(err.Error(), fmt.Sprintf("cron %q: ", row.spec))
		}
		if problem != row.problem {
			t.Errorf("%q: %s, want %s", row.spec, problem, row.problem)
			continue
		}
		fields := strings.Fields(row.spec)
		if strings.HasPrefix(row.spec, "CRON_TZ=") {
			fields = fields[1:]
		} else if got := differs(err == nil, crontabAllows(fields)); got != row.cron8 {
			t.Errorf("%q: cron(8) %q, want %q", row.spec, got, row.cron8)
		}
		if err != nil {
			continue
		}
		if expanded, err := expand(fields); err == nil {
			fields = expanded
		}
		c.zone = time.UTC
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 30 {
			want := naive(fields, at)
			if got := c.Next(at); !got.Equal(want) {
				t.Errorf("%q: after %s comes %s, want %s", row.spec, at, got, want)
				break
			}
			at = want
		}
	}
	if len(rows) < 600 {
		t.Errorf("only %d expressions", len(rows))
	}
}

// Crontabs separate fields by any blanks, and write names in any case.
func TestParseCalendar_blanksAndCase_doNotMatter(t *testing.T) {
	want, err := ParseCalendar("CRON_TZ=Europe/Berlin 0 9 LW,15W JAN-MAR SUN#1,MONL")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseCalendar("\t CRON_TZ=Europe/Berlin\t00\t09  lw,15w jan-Mar\tsun#1,Monl \n")
	if err != nil || *got != *want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// differs says how another scheduler differs that accepts an expression or does not.
func differs(here, there bool) string {
	switch {
	case here && !there:
		return "refuses"
	case there && !here:
		return "accepts"
	}
	return ""
}

// crontabAllows reports whether crontab(5) allows the fields of a line. What follows the fields is the command.
func crontabAllows(fields []string) bool {
	if len(fields) > 0 && strings.HasPrefix(fields[0], "@") {
		return slices.Contains([]string{"@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}, fields[0])
	}
	if len(fields) < 5 {
		return false
	}
	for i, most := range []int{59, 23, 31, 12, 7} {
		for _, entry := range strings.Split(fields[i], ",") {
			if !crontabAllowsEntry(entry, i, most) {
				return false
			}
		}
	}
	return true
}

var (
	crontabRange  = regexp.MustCompile(`^(\*|(\d+|[A-Za-z]{3})(-(\d+|[A-Za-z]{3}))?)(/([1-9]\d*))?$`)
	firstOfFields = []int{0, 0, 1, 1, 0}
)

func crontabAllowsEntry(entry string, field, most int) bool {
	m := crontabRange.FindStringSubmatch(entry)
	switch {
	case m == nil, m[1] != "*" && m[3] == "" && m[5] != "": // a step needs a * or a range
		return false
	case m[1] == "*":
		return true
	}
	value := func(text string) (int, bool) {
		n, err := strconv.Atoi(text)
		if err != nil {
			names := map[int]string{3: "jan feb mar apr may jun jul aug sep oct nov dec", 4: "sun mon tue wed thu fri sat"}[field]
			n = slices.Index(strings.Fields(names), strings.ToLower(text))
			return n + firstOfFields[field], n >= 0
		}
		return n, n >= firstOfFields[field] && n <= most
	}
	from, ok := value(m[2])
	if m[4] == "" || !ok {
		return ok
	}
	to, ok := value(m[4])
	return ok && from <= to
}

// The special days of months against a walk through their days. In 28 years there is every kind of month. The year 2100 is
// not a leap year.
func TestParseCalendar_specialDays_asAWalkThroughTheDays(t *testing.T) {
	var specs []string
	for n := 1; n <= 31; n++ {
		specs = append(specs, fmt.Sprintf("0 0 %dW * *", n))
	}
	for n := range 8 {
		specs = append(specs, fmt.Sprintf("0 0 * * %dL", n), fmt.Sprintf("0 0 1W * %d#%d", n, 1+n%5))
	}
	for n := 1; n <= 5; n++ {
		specs = append(specs, fmt.Sprintf("0 0 * 2,4 MON#%d", n), fmt.Sprintf("0 0 13,L * FRI#%d,SUN#%d", n, n))
	}
	specs = append(specs, "0 0 L * *", "0 0 LW * *", "0 0 L,15,LW,1W * *", "0 0 */100,L * 5L", "0 0 L 2 */7",
		"0 0 l * mon#1", "0 0 lw,3w * sunl", "0 0 1,8W 2-12/2 ?", "0 0 */100,1-7 * 1", "0 0 1-7,*/100 * 1", "0 0 ?/3 * 1-5")
	step := 1
	if testing.Short() {
		step = 5
	}
	for _, spec := range specs {
		c, err := ParseCalendar(spec)
		if err != nil {
			t.Error(err)
			continue
		}
		fields := strings.Fields(spec)
		walk := func(year int) {
			for at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() == year; at = at.Add(day) {
				inMonth := c.month>>at.Month()&1 != 0
				if got := inMonth && c.days(year, at.Month())>>at.Day()&1 != 0; got != matches(fields, at) {
					t.Errorf("%q on %s: %t", spec, at.Format("Mon 2006-01-02"), got)
					return
				}
			}
		}
		walk(2100)
		for year := 2000; year < 2028; year += step {
			walk(year)
		}
	}
}

// The rarest day is a 29th of February that is a certain day of the week: every 28 years, or 12 or 40 years around the
// years 2100 and 2200.
func TestCalendar_rarestDays_areFound(t *testing.T) {
	c, err := ParseCalendar("*/30 12 29 2 */7")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)
	for year := 1972; year < 2262; year += 4 {
		want := time.Date(year, 2, 29, 12, 0, 0, 0, time.UTC)
		if want.Day() != 29 || want.Weekday() != time.Sunday {
			continue
		}
		if at = c.Next(at); !at.Equal(want) {
			t.Errorf("%s, want %s", at, want)
		}
		at = c.Next(at)
	}
}

// The days of any valid expression against the naive reference.
func FuzzParseCalendar(f *testing.F) {
	for _, spec := range []string{"47 6 * * 7", "5 12 */100,1-7 * 1", "0 0 L,LW,31W 2,4 ?", "0 0 ?/3 * SAT-SUN,5L,MON#5", "@weekly"} {
		f.Add(spec, 2028, 2)
	}
	f.Fuzz(func(t *testing.T, spec string, year, month int) {
		c, err := ParseCalendar(spec)
		if err != nil {
			return
		}
		fields := strings.Fields(spec)
		if strings.HasPrefix(fields[0], "CRON_TZ=") {
			fields = fields[1:]
		}
		if expanded, err := expand(fields); err == nil {
			fields = expanded
		}
		at := time.Date(1970+int(uint(year)%300), time.Month(1+uint(month)%12), 1, 0, 0, 0, 0, time.UTC)
		fields = []string{"*", "*", fields[2], fields[3], fields[4]}
		for last := at.AddDate(0, 1, -1); !at.After(last); at = at.AddDate(0, 0, 1) {
			got := c.month>>at.Month()&1 != 0 && c.days(at.Year(), at.Month())>>at.Day()&1 != 0
			if got != matches(fields, at) {
				t.Fatalf("%q on %s: %t", spec, at.Format("Mon 2006-01-02"), got)
			}
		}
	})
}
