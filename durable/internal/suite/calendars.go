// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// everyMinute is a calendar with a time zone whose minutes coincide with those of UTC.
const everyMinute = "CRON_TZ=Europe/Berlin * * * * *"

// onTime fails the test unless there was exactly one call at each of the minutes, less than two ticks late. Minutes are
// counted from the Unix epoch.
func onTime(t *testing.T, calls []kit.Call, minutes ...int64) {
	t.Helper()
	ok := len(calls) == len(minutes)
	for i := 0; ok && i < len(calls); i++ {
		due := time.Unix(60*minutes[i], 0)
		ok = calls[i].Due.Equal(due) && calls[i].Late >= 0 && calls[i].Late < time.Second/2
	}
	if !ok {
		t.Errorf("want runs at the minutes %v, and these are the runs:", minutes)
		for _, c := range calls {
			t.Errorf("%s, due %v, %v late", c.Token, c.Due.UTC(), c.Late)
		}
	}
}

func byCalendar(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	k.After(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second))) // 30 seconds into a minute
	minute := time.Now().Unix()/60 + 1
	k.On().Add(durable.Task{Key: "a", Kind: "k", Cron: everyMinute, Times: 2})
	if i := k.Info("a"); i.Cron != everyMinute || !i.Next.Equal(time.Unix(60*minute, 0)) {
		t.Errorf("%+v", i)
	}
	onTime(t, k.RunsAfter(2*time.Minute), minute, minute+1)
	k.Gone("a")
}

// A crontab has the same meaning as for cron(8), and some forms depend on the month.
func asInCrontabs(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	first := func(from time.Time, matches func(time.Time) bool) time.Time { // the first matching midnight
		for at := from.UTC().Truncate(24 * time.Hour); ; at = at.Add(24 * time.Hour) {
			if at.After(from) && matches(at) {
				return at
			}
		}
	}
	last := func(at time.Time, days int) bool { return at.AddDate(0, 0, days).Day() <= days }
	for spec, matches := range map[string]func(at time.Time) bool{
		"0 0 * * 7":           func(at time.Time) bool { return at.Weekday() == time.Sunday },
		"0 0 * * FRI-SUN":     func(at time.Time) bool { return at.Weekday() == time.Sunday || at.Weekday() >= time.Friday },
		"0 0 */100,1-7 * MON": func(at time.Time) bool { return at.Day() <= 7 && at.Weekday() == time.Monday },
		"0 0 L * *":           func(at time.Time) bool { return last(at, 1) },
		"0 0 * * 5L":          func(at time.Time) bool { return last(at, 7) && at.Weekday() == time.Friday },
		"0 0 * * MON#1":       func(at time.Time) bool { return at.Day() <= 7 && at.Weekday() == time.Monday },
		"0 0 15W * *": func(at time.Time) bool {
			return at.Day() == 15 && at.Weekday() != time.Saturday && at.Weekday() != time.Sunday ||
				at.Day() == 14 && at.Weekday() == time.Friday || at.Day() == 16 && at.Weekday() == time.Monday
		},
		"0 0 LW * *": func(at time.Time) bool {
			return last(at, 1) && at.Weekday() != time.Saturday && at.Weekday() != time.Sunday || last(at, 3) && at.Weekday() == time.Friday
		},
	} {
		k.On().Add(durable.Task{Key: spec, Kind: "k", Cron: spec})
		if got, want := k.Info(spec).Next, first(time.Now(), matches); !got.Equal(want) {
			t.Errorf("%s: due at %v, want %v", spec, got, want)
		}
		k.Must(k.On().RemoveTask(ctx, spec))
	}
}

func movedOffCalendar(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	k.After(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
	minute := time.Now().Unix()/60 + 1
	k.On().Add(durable.Task{Key: "a", Kind: "k", Cron: everyMinute, Times: durable.Forever, Delay: 10 * time.Second})
	if calls := k.RunsAfter(15 * time.Second); len(calls) != 1 {
		t.Errorf("after the delay: %v", calls)
	}
	k.Must(k.On().Reschedule(ctx, "a", 5*time.Second))
	if calls := k.RunsAfter(10 * time.Second); len(calls) != 1 {
		t.Errorf("after Reschedule: %v", calls)
	}
	onTime(t, k.RunsAfter(30*time.Second), minute)
	k.Must(k.On().RemoveTask(ctx, "a"))
}

func wrongCalendar(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	for name, task := range map[string]durable.Task{
		"no calendar":    {Cron: "every day"},
		"no day":         {Cron: "0 0 30 2 *"},
		"no month":       {Cron: "0 0 31 2 *"},
		"seconds":        {Cron: "*/10 * * * * *"},
		"an @every":      {Cron: "@every 1h"},
		"no zone":        {Cron: "CRON_TZ=Europe/Atlantis @daily"},
		"an interval":    {Cron: "@daily", Interval: time.Hour},
		"Delay and At":   {Cron: "@daily", Delay: time.Hour, At: time.Now()},
		"negative Times": {Cron: "@daily", Times: -2},
	} {
		task.Key, task.Kind = "a", "k"
		if err := k.On().AddTask(ctx, task); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.Gone("a")
}

// A calendar without Times repeats forever.
func calendarWithoutTimes(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	k.After(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
	minute := time.Now().Unix()/60 + 1
	k.On().Add(durable.Task{Key: "a", Kind: "k", Cron: everyMinute})
	k.On().Add(durable.Task{Key: "once", Kind: "k", Cron: everyMinute, Times: 1, Delay: time.Hour})
	if i, once := k.Info("a"), k.Info("once"); i.Times != durable.Forever || once.Times != 1 {
		t.Errorf("%+v, %+v", i, once)
	}
	onTime(t, k.RunsAfter(3*time.Minute), minute, minute+1, minute+2)
	k.Must(k.On().RemoveTask(ctx, "a"))
}
