// SPDX-License-Identifier: MIT

package durable

import (
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// At both ends of the time range.
func TestTask_jitter_atTheEndOfTime(t *testing.T) {
	for _, added := range []Task{
		{Interval: 1<<63 - 1}, {Delay: 1<<63 - 1}, {At: time.Unix(0, task.Latest)}, {Cron: "0 0 1 1 *"}, {Cron: "0 0 1 1 *", At: time.Unix(0, task.Latest)},
	} {
		added.Key, added.Kind, added.Jitter, added.Times = "k", "k", 1<<63-1, 2
		if added.Interval == 0 && added.Cron == "" {
			added.Times = 1
		}
		if err := added.spec().Validate(); err != nil {
			t.Fatal(err)
		}
		for _, now := range []int64{0, 1e18, task.Latest} {
			r := added.spec().Record(now)
			if r.Due < now || r.Due > task.Latest || r.Grid < 0 {
				t.Errorf("%+v at %d: %+v", added, now, r)
			}
			if next := r.After(task.Outcome{}, &task.Policy{}, r.Due, 0); next != nil && (next.Due < r.Due || next.Due > task.Latest) {
				t.Errorf("%+v at %d: after %+v comes %+v", added, now, r, next)
			}
		}
	}
}
