// SPDX-License-Identifier: MIT

package durable

import (
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Next returns the first n times after the given time at which a task with spec as its [Task].Cron would be due. It
// returns fewer than n times if the supported range, which ends in the year 2262, does not contain that many. With
// Jitter, a task is due Info.Shift after each of these times. If spec is invalid, the error describes the problem.
func Next(spec string, after time.Time, n int) ([]time.Time, error) {
	c, err := task.ParseCron(spec)
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
