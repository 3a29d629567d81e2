// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Next returns the first n instants after the given time at which a task with that [Task].Cron is due, or fewer if it
// is due less often until the year 2262. A task with Jitter is due later by its Info.Shift. The error says what is
// wrong with the expression.
func Next(spec string, after time.Time, n int) ([]time.Time, error) {
	c, err := parseCron(spec)
	if err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	var all []time.Time
	for len(all) < n {
		after = c.Next(after)
		if after.IsZero() || after.After(task.LastTime) {
			break
		}
		all = append(all, after)
	}
	return all, nil
}

// parseCron returns the calendar of a [Task].Cron.
func parseCron(spec string) (*task.Calendar, error) {
	if len(spec) > MaxCron {
		return nil, fmt.Errorf("cron %q: %d bytes; %d are allowed", spec, len(spec), MaxCron)
	}
	return task.ParseCalendar(spec)
}
