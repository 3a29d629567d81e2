// SPDX-License-Identifier: MIT

package durable_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/sirupsen/logrus"
)

func unhandled(k *kit.Kit, want int) {
	k.T.Helper()
	if n := k.Stats().Unhandled; n != want {
		k.T.Errorf("%d tasks are unhandled, want %d", n, want)
	}
}

// A kind that a release forgot: its tasks wait unchanged for a process that handles it.
func TestUnhandled_untilTheNextProcess_waits(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit.Kit) {
		k.Add(durable.Task{Key: "overdue", Kind: "note", Delay: sec}, durable.Task{Key: "due", Kind: "note", Delay: 2 * hour},
			durable.Task{Key: "far", Kind: "note", Delay: 5 * hour}, durable.Task{Key: "handled", Kind: "fail", Delay: sec})
		k.Crash("note")
		k.After(hour)
		k.Start()
		k.After(2 * hour)
		for _, key := range []string{"overdue", "due"} {
			if i := k.Info(key); i.Parked || i.Attempts != 0 || i.Failure != "" || i.Next.After(time.Now()) {
				t.Errorf("the task is %+v", i)
			}
		}
		unhandled(k, 2)
		if s := k.Stats(); s.ParkedTotal != 1 || s.Pending != 4 || s.Waiting != 0 { // the task that failed ten times
			t.Errorf("the accounts are %+v", s)
		}
		k.Runs()
		k.Crash()
		k.Start()
		calls := k.RunsAfter(sec)
		if len(calls) != 2 || calls[0].Key != "overdue" || calls[1].Key != "due" || calls[0].Attempt != 1 {
			t.Errorf("these ran: %v", calls)
		}
		unhandled(k, 0)
		k.After(3 * hour)
		ranAt(k, "far", 5*hour)
	}, durable.WithPoolSize(1))
}

// Tasks that waited for a handler registered after Start run as overdue: oldest first, at the rate.
func TestUnhandled_untilHandle_runsAsOverdue(t *testing.T) {
	testkit.NotForRaces(t)
	const tasks, rate = 1500, 100
	inBubble(t, func(t *testing.T, k *kit.Kit) {
		overdue(k, tasks, "late")
		k.Start()
		k.Add(durable.Task{Key: "live", Kind: "note", Interval: sec, Times: durable.Forever})
		k.After(10 * sec)
		unhandled(k, tasks)
		k.Must(k.RemoveTask(ctx, "late7"))
		k.Must(k.Reschedule(ctx, "late8", hour))
		k.Must(k.SetTask(ctx, durable.Task{Key: "late9", Kind: "note", Delay: 2 * hour}))
		unhandled(k, tasks-3)
		k.Runs()
		k.Handle("late", sleeper(0))
		began := time.Since(k.Begin)
		k.After(5 * sec)
		if n := k.Stats().Unhandled; n != 0 {
			t.Errorf("with a handler %d are unhandled", n)
		}
		k.After(20 * sec)
		n, due := 0, time.Time{}
		for _, c := range k.Runs() {
			if c.Kind != "late" {
				continue
			}
			n++
			if most := rate*((c.At-began).Seconds()+0.11) + 1; float64(n) > most {
				t.Fatalf("%d overdue tasks ran in %v", n, c.At-began)
			}
			if c.Due.Before(due) || c.Key == "late7" || c.Key == "late8" || c.Key == "late9" {
				t.Errorf("%s, due at %v, ran after what was due at %v", c.Key, c.Due, due)
			}
			due = c.Due
		}
		if n != tasks-3 {
			t.Errorf("%d ran, want %d", n, tasks-3)
		}
		unhandled(k, 0)
		k.After(hour)
		k.Must(k.RemoveTask(ctx, "live"))
		k.Runs()
		k.After(2 * hour)
		if n := k.Len(); n != 0 {
			t.Errorf("%d are left", n)
		}
	}, durable.WithCatchUp(rate), durable.WithPoolSize(1))
}

func TestUnhandled_isLoggedOnceForEachKind(t *testing.T) {
	log := testkit.Quiet()
	var lines []string
	log.AddHook(callingHook(func(e *logrus.Entry) {
		if e.Level == logrus.WarnLevel {
			lines = append(lines, fmt.Sprint(e.Data["kind"], " ", e.Data["tasks"]))
		}
	}))
	kit.OnStore(t, func(t *testing.T, k *kit.Kit) {
		for i := range 300 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: []string{"note", "fail"}[i%2], Delay: sec})
			k.Add(durable.Task{Key: fmt.Sprint("later", i), Kind: "note", Delay: hour})
		}
		k.Crash("note", "fail")
		k.After(10 * sec)
		k.Start()
		k.After(2 * hour)
		slices.Sort(lines)
		if got := strings.Join(lines, ", "); got != "fail 150, note 150" {
			t.Errorf("these were logged: %s", got)
		}
		unhandled(k, 600)
	}, durable.WithLogger(log))
}
