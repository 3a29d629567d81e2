// SPDX-License-Identifier: MIT

package durable

import (
	"testing"
	"time"
)

// At both ends of time.
func TestTask_jitter_atTheEndOfTime(t *testing.T) {
	for _, task := range []Task{
		{Interval: 1<<63 - 1}, {Delay: 1<<63 - 1}, {At: time.Unix(0, latest)}, {Cron: "0 0 1 1 *"}, {Cron: "0 0 1 1 *", At: time.Unix(0, latest)},
	} {
		task.Key, task.Kind, task.Jitter, task.Times = "k", "k", 1<<63-1, 2
		if task.Interval == 0 && task.Cron == "" {
			task.Times = 1
		}
		if err := task.validate(); err != nil {
			t.Fatal(err)
		}
		for _, now := range []int64{0, 1e18, latest} {
			r := task.record(now)
			if r.due < now || r.due > latest || r.grid < 0 {
				t.Errorf("%+v at %d: %+v", task, now, r)
			}
			if next := r.after(outcome{}, &policy{}, r.due, 0); next != nil && (next.due < r.due || next.due > latest) {
				t.Errorf("%+v at %d: after %+v comes %+v", task, now, r, next)
			}
		}
	}
}
