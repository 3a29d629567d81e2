// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// The history that a program has written is read from the store and from the database.
func TestHistory(t *testing.T) {
	anywhere(t, func(r *rig) {
		r.with(func(s *durable.Scheduler) {
			done := make(chan bool, 3)
			check(t, s.Handle("mail", func(_ context.Context, run durable.Run) error {
				defer func() { done <- true }()
				if run.Key == "mail:2" {
					return durable.Park(errors.New("no such host"))
				}
				run.Complete("sent")
				return nil
			}, durable.WithHistory(10, time.Hour)))
			check(t, s.Start())
			for _, key := range []string{"mail:1", "mail:2", "a\nb"} {
				check(t, s.AddTask(t.Context(), durable.Task{Key: key, Kind: "mail"}))
				<-done
			}
		}) // Shutdown writes it
		lines := strings.Split(r.must("history"), "\n")
		if len(lines) != 5 || !strings.HasPrefix(lines[0], "ENDED") || !strings.Contains(lines[1], `"a\nb"`) ||
			!strings.Contains(lines[2], "parked") || !strings.HasSuffix(lines[2], "no such host") || !strings.HasSuffix(lines[3], "sent") {
			r.Errorf("the history is\n%s", strings.Join(lines, "\n"))
		}
		if got := r.must("history", "-json", "-outcome", "parked"); !strings.Contains(got, `"key":"mail:2"`) ||
			!strings.Contains(got, `"outcome":"parked"`) || !strings.Contains(got, `"failure":"no such host"`) || strings.Count(got, "\n") != 1 {
			r.Errorf("in JSON it is %s", got)
		}
		if got := r.must("history", "mail:1"); strings.Count(got, "\n") != 2 {
			r.Errorf("the history of a task is\n%s", got)
		}
		first := r.do("history", "-limit", "2")
		_, after, _ := strings.Cut(first.err, "-after ")
		after, _, _ = strings.Cut(after, " ")
		if got := r.must("history", "-limit", "2", "-after", after); strings.Count(got, "\n") != 2 || !strings.Contains(got, "mail:1") {
			r.Errorf("after %q comes\n%s", first.err, got)
		}
		if got := r.do("history", "-before", "2026-01-02T15:04:05Z"); got.code != done || !strings.Contains(got.err, "No attempt") {
			r.Errorf("before all of them: %+v", got)
		}
		if got := r.must("history", "-from", "2026-01-02T15:04:05Z", "mail:1"); strings.Count(got, "mail:1") == 0 {
			r.Errorf("after that: %s", got)
		}
		if got := r.do("history", "-from", "2250-01-02T15:04:05Z"); got.code != done || !strings.Contains(got.err, "No attempt") {
			r.Errorf("after all of them: %+v", got)
		}
		if got := r.do("history", "-kind", "order"); got.code != done || !strings.Contains(got.err, "No attempt") {
			r.Errorf("of another kind: %+v", got)
		}
		for _, args := range [][]string{{"-outcome", "parkd"}, {"-before", "noon"}, {"-from", "noon"}, {"-limit", "0"}, {"a", "b"}} {
			if got := r.do("history", args...); got.code != usage {
				r.Errorf("%q: %+v", args, got)
			}
		}
		if got := r.do("history", "-outcome", "parkd"); !strings.Contains(got.err, "parked") {
			r.Errorf("a wrong outcome: %s", got.err)
		}
	})
}
