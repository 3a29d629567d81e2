// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"time"
)

// Next returns the first n instants after a time at which a task with that [Task].Cron is due, or fewer if there
// are no more until the year 2262. A task with Jitter is due later than that, by its Info.Shift. The error says
// what is wrong with the expression.
func Next(spec string, after time.Time, n int) ([]time.Time, error) {
	c, err := parseCron(spec)
	if err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	var all []time.Time
	for len(all) < n {
		after = c.next(after)
		if after.IsZero() || after.After(lastTime) {
			break
		}
		all = append(all, after)
	}
	return all, nil
}

// parseCron returns the calendar of a [Task].Cron.
func parseCron(spec string) (*calendar, error) {
	if len(spec) > MaxCron {
		return nil, fmt.Errorf("cron %q: %d bytes; %d are allowed", spec, len(spec), MaxCron)
	}
	return parseCalendar(spec)
}
