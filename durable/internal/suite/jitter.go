// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// soonAfter fails the test unless there is one call for each of the given times, in order, at that time or less than
// half a second after it.
func soonAfter(t *testing.T, calls []kit.Call, times ...time.Time) {
	t.Helper()
	ok := len(calls) == len(times)
	for i := 0; ok && i < len(calls); i++ {
		ok = calls[i].Due.Equal(times[i]) && calls[i].Late >= 0 && calls[i].Late < time.Second/2
	}
	if !ok {
		t.Errorf("want runs at %v, and these are the runs:", times)
		for _, c := range calls {
			t.Errorf("%s, due %v, %v late", c.Token, c.Due, c.Late)
		}
	}
}

func jitterOfInterval(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	const interval, jitter = 20 * time.Second, 15 * time.Second
	differ := make(map[time.Duration]bool)
	for i := range 20 {
		key := fmt.Sprint("key", i)
		task := durable.Task{Key: key, Kind: "k", Interval: interval, Jitter: jitter, Times: durable.Forever}
		began := time.Now()
		k.On().Add(task)
		shift := k.Info(key).Next.Sub(began) - interval
		if shift < 0 || shift > jitter {
			t.Errorf("%s is shifted by %v", key, shift)
		}
		differ[shift] = true
		time.Sleep(time.Second / 10)
		for _, change := range []func(task *durable.Task){
			func(*durable.Task) {},
			func(task *durable.Task) { task.Delay = 3 * time.Second },
			func(task *durable.Task) { task.At = time.Now().Add(5 * time.Second) },
		} {
			again := task
			change(&again)
			want := time.Now().Add(interval + shift)
			switch {
			case again.Delay > 0:
				want = time.Now().Add(again.Delay + shift)
			case !again.At.IsZero():
				want = again.At.Add(shift)
			}
			k.Must(k.On().SetTask(ctx, again))
			if next := k.Info(key).Next; next.Sub(want).Abs() > time.Second/2 {
				t.Errorf("set again, %s is due at %v, want %v", key, next, want)
			}
		}
		k.Must(k.On().RemoveTask(ctx, key))
	}
	if len(differ) < 15 {
		t.Errorf("of 20 keys these are the shifts: %v", differ)
	}
	k.RunsAfter(0)
	k.On().Add(durable.Task{Key: "key0", Kind: "k", Interval: interval, Jitter: jitter, Times: durable.Forever})
	first := k.Info("key0").Next
	soonAfter(t, k.RunsAfter(time.Until(first)+2*interval+time.Second), first, first.Add(interval), first.Add(2*interval))
	k.Must(k.On().RemoveTask(ctx, "key0"))
	k.On().Add(durable.Task{Key: "longer", Kind: "k", Interval: time.Second, Jitter: 30 * time.Second, Times: 2})
	first = k.Info("longer").Next
	soonAfter(t, k.RunsAfter(35*time.Second), first, first.Add(time.Second))
	err := k.On().AddTask(ctx, durable.Task{Key: "a", Kind: "k", Delay: time.Second, Jitter: -1})
	if !errors.Is(err, durable.ErrInvalidTask) {
		t.Errorf("a negative jitter: %v", err)
	}
}

func jitterOfCalendar(t *testing.T, k *kit.Kit) {
	k.Handle("k", func(context.Context, durable.Run) error { return nil })
	task := durable.Task{Key: "a", Kind: "k", Cron: everyMinute, Jitter: 50 * time.Second, Times: durable.Forever}
	k.On().Add(task)
	first := k.Info("a").Next
	shift := first.Sub(first.Truncate(time.Minute))
	if shift == 0 || shift > task.Jitter || time.Until(first) > time.Minute {
		t.Errorf("the first run is due at %v", first)
	}
	k.After(time.Until(first) - time.Second)
	k.Must(k.On().SetTask(ctx, task)) // an instant of the calendar has passed, but its run is not yet due
	if next := k.Info("a").Next; !next.Equal(first) {
		t.Errorf("set again, it is due at %v, want %v", next, first)
	}
	soonAfter(t, k.RunsAfter(2*time.Minute), first, first.Add(time.Minute))
	k.Must(k.On().Reschedule(ctx, "a", 10*time.Second))
	moved := k.Info("a").Next
	next := moved.Add(-shift).Truncate(time.Minute).Add(time.Minute + shift)
	soonAfter(t, k.RunsAfter(75*time.Second), moved, next)
	k.Must(k.On().RemoveTask(ctx, "a"))
}
