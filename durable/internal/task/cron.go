// SPDX-License-Identifier: MIT

package task

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseCalendar returns the calendar of a cron expression. The error names the field, its value and the mistake.
func ParseCalendar(spec string) (*Calendar, error) {
	c, err := parseCalendar(strings.Fields(spec))
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", spec, err)
	}
	return c, nil
}

func parseCalendar(texts []string) (*Calendar, error) {
	zone := "UTC"
	if len(texts) > 0 {
		if name, ok := strings.CutPrefix(texts[0], "CRON_TZ="); ok {
			zone, texts = name, texts[1:]
		}
	}
	in, err := loadZone(zone)
	switch {
	case err != nil:
		return nil, err
	case zone == "" || in == time.Local:
		return nil, fmt.Errorf("%q is not the name of a time zone", zone)
	case strings.Contains(strings.Join(texts, ""), "="):
		return nil, errors.New("a zone is written first and as CRON_TZ, as in CRON_TZ=Europe/Berlin 0 9 * * *")
	}
	if len(texts) > 0 && strings.HasPrefix(texts[0], "@") {
		if texts, err = expand(texts); err != nil {
			return nil, err
		}
	}
	c, err := parseFields(texts)
	if err != nil {
		return nil, err
	}
	c.zone = in
	return c, nil
}

// macros maps names to the five fields that they stand for.
var macros = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// expand returns the five fields that a name such as @daily stands for.
func expand(texts []string) ([]string, error) {
	name := texts[0]
	fields, ok := macros[name]
	switch {
	case ok && len(texts) == 1:
		return strings.Fields(fields), nil
	case ok:
		return nil, fmt.Errorf("%q after %s: nothing may follow it", strings.Join(texts[1:], " "), name)
	case name == "@every":
		return nil, fmt.Errorf("@every is not supported: set Interval%s in place of Cron", toDuration(texts[1:]))
	case name == "@reboot":
		return nil, errors.New("@reboot is not supported: add a task without Cron when the program starts")
	}
	return nil, fmt.Errorf("%s is none of @hourly, @daily, @weekly, @monthly and @yearly", name)
}

// toDuration returns words such as " to 5m0s" for the duration of an @every, or nothing if it has none.
func toDuration(texts []string) string {
	d, err := time.ParseDuration(strings.Join(texts, " "))
	if err != nil || d <= 0 {
		return ""
	}
	return " to " + d.String()
}

// A cronField describes a field of a cron expression.
type cronField struct {
	name        string
	least, most int
	last        int      // the end of a *, and of a step without a range
	names       []string // of the values from least on
	takes       string   // the allowed values, for errors
	week        bool     // the values are days of the week, of which 0 and 7 are the same

	// special parses forms that other fields do not have. It returns 0 for other forms. It may be nil.
	special func(f *cronField, entry string) (set uint64, _ error)
}

// The fields of a cron expression, in its order.
var (
	minuteField = &cronField{name: "minute", most: 59, last: 59, takes: "a number from 0 to 59"}
	hourField   = &cronField{name: "hour", most: 23, last: 23, takes: "a number from 0 to 23"}
	dayField    = &cronField{name: "day of the month", least: 1, most: 31, last: 31, takes: "a number from 1 to 31",
		special: specialDay}
	monthField = &cronField{name: "month", least: 1, most: 12, last: 12, takes: "a number from 1 to 12, or JAN to DEC",
		names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}}
	weekdayField = &cronField{name: "day of the week", most: 7, last: 6, takes: "a number from 0 to 7, or SUN to SAT",
		names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}, week: true, special: specialWeekday}
)

// parseFields parses the five fields of a calendar.
func parseFields(texts []string) (*Calendar, error) {
	c := new(Calendar)
	fields := [...]struct {
		*cronField
		set *uint64
	}{{minuteField, &c.minute}, {hourField, &c.hour}, {dayField, &c.day}, {monthField, &c.month}, {weekdayField, &c.weekday}}
	if len(texts) != len(fields) {
		return nil, wrongNumber(texts)
	}
	for i, f := range fields {
		set, err := f.parse(texts[i])
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", f.name, texts[i], err)
		}
		*f.set = set
	}
	day, month, weekday := texts[2], texts[3], texts[4]
	c.both = strings.ContainsAny(day[:1]+weekday[:1], "*?")
	c.byClock = c.hour == 1<<24-1 || bits.OnesCount64(c.minute) > 1
	if _, ok := c.match(time.Unix(0, 0).UTC()); !ok {
		return nil, fmt.Errorf("no day has day of the month %q, month %q and day of the week %q: "+
			"to run a task only by hand, choose any calendar and pause the task", day, month, weekday)
	}
	return c, nil
}

// wrongNumber returns the error for an expression that does not have five fields.
func wrongNumber(texts []string) error {
	// A ? stands for days. If it is the third or fifth of six fields, the first is the minute and the last a year.
	n := len(texts)
	if n == 6 && texts[2] != "?" && texts[4] != "?" || n == 7 {
		if _, err := parseFields(texts[1:6]); err == nil {
			return fmt.Errorf("%d fields: seconds and years are not supported: %s", n, adviceFor(texts[0], texts[1:6]))
		}
	}
	const needed = "5 are needed: minute, hour, day of the month, month and day of the week"
	switch {
	case n == 1:
		return errors.New("1 field; " + needed)
	case n > 5:
		return fmt.Errorf("%d fields; %s; %q is left over", n, needed, strings.Join(texts[5:], " "))
	}
	return fmt.Errorf("%d fields; %s", n, needed)
}

// adviceFor says what to write in place of fields with seconds.
func adviceFor(seconds string, texts []string) string {
	if step, ok := strings.CutPrefix(seconds, "*/"); ok && strings.Trim(strings.Join(texts, ""), "*?") == "" {
		return fmt.Sprintf("set Interval%s in place of Cron", toDuration([]string{step + "s"}))
	}
	advice := fmt.Sprintf("write %q", strings.Join(texts, " "))
	if strings.ContainsAny(texts[4], "0123456789") {
		advice += ", where 0 and 7 are Sunday" // in other notations 1 is Sunday
	}
	if seconds != "0" {
		advice += ", or set Interval in place of Cron"
	}
	return advice
}

// parse returns the bit set of a field, which is a list of entries.
func (f *cronField) parse(text string) (set uint64, _ error) {
	for entry := range strings.SplitSeq(text, ",") {
		of, err := f.parseEntry(entry)
		if err != nil {
			return 0, err
		}
		set |= of
	}
	return set, nil
}

// parseEntry returns the bit set of a *, a number or a range, each with or without a step, or of a special form.
func (f *cronField) parseEntry(entry string) (set uint64, err error) {
	if entry == "" {
		return 0, errors.New("an entry of the list is empty")
	}
	if f.special != nil {
		if set, err = f.special(f, strings.ToUpper(entry)); set != 0 || err != nil {
			return set, err
		}
	}
	span, by, stepped := strings.Cut(entry, "/")
	first, last := f.least, f.last
	if span != "*" && span != "?" {
		low, high, ranged := strings.Cut(span, "-")
		if first, err = f.value(low); err != nil {
			return 0, err
		}
		switch {
		case ranged:
			if last, err = f.value(high); err != nil {
				return 0, err
			}
		case stepped:
			last = max(first, f.last)
		default:
			last = first
		}
	}
	switch {
	case f.week && first == 7 && last < 7:
		first = 0
	case f.week && first > 0 && last == 0:
		last = 7
	}
	step := uint64(1)
	if stepped {
		if step, err = strconv.ParseUint(by, 10, 16); err != nil || step == 0 {
			return 0, fmt.Errorf("step %q is not a number from 1 to %d", by, 1<<16-1)
		}
	}
	switch {
	case first > last && stepped:
		return 0, fmt.Errorf("%s ends before it begins", span)
	case first > last:
		return 0, fmt.Errorf("%s ends before it begins: write %d-%d,%d-%d", span, first, f.last, f.least, last)
	}
	for value := first; value <= last; value += int(step) {
		set |= f.bit(value)
	}
	return set, nil
}

// value returns the value of a number or name.
func (f *cronField) value(text string) (int, error) {
	if text == "" {
		return 0, fmt.Errorf("a value is missing, which is %s", f.takes)
	}
	if i := slices.Index(f.names, strings.ToUpper(text)); i >= 0 {
		return f.least + i, nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || int(n) < f.least || int(n) > f.most {
		return 0, fmt.Errorf("%q is not %s", text, f.takes)
	}
	return int(n), nil
}

// bit returns the bit set of a value.
func (f *cronField) bit(value int) uint64 {
	if f.week {
		value %= 7
	}
	return 1 << value
}

// specialDay parses L, LW, and forms such as 15W.
func specialDay(f *cronField, entry string) (uint64, error) {
	switch entry {
	case "L":
		return lastDay, nil
	case "LW":
		return lastWorkday, nil
	}
	number, ok := strings.CutSuffix(entry, "W")
	if !ok {
		return 0, nil
	}
	day, err := f.value(number)
	return 1 << (nearWorkday + day), err
}

// specialWeekday parses forms such as 5L and MON#1.
func specialWeekday(f *cronField, entry string) (uint64, error) {
	if day, ok := strings.CutSuffix(entry, "L"); ok && day != "" {
		weekday, err := f.value(day)
		return f.bit(weekday) << (7 * lastWeek), err
	}
	day, number, ok := strings.Cut(entry, "#")
	if !ok {
		return 0, nil
	}
	weekday, err := f.value(day)
	if err != nil {
		return 0, err
	}
	week, err := strconv.ParseUint(number, 10, 8)
	if err != nil || week < 1 || week > 5 {
		return 0, fmt.Errorf("week %q is not a number from 1 to 5", number)
	}
	return f.bit(weekday) << (7 * week), nil
}
