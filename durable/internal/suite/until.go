// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// A repeating task ends with the last run that is due by Until, by interval and by calendar. One that is overdue then still runs
// once, and one that fails is parked.
func ends(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	k.Handle("bad", func(context.Context, durable.Run) error { return errNot }, durable.WithRetry(1, time.Second, time.Second))
	k.Handle("skip", ok, durable.WithMissed(durable.MissedSkip))
	k.After(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
	begin := time.Now()
	end := begin.Add(3*time.Minute + 30*time.Second)
	k.On().Add(
		durable.Task{Key: "interval", Kind: "k", Interval: time.Minute, Times: durable.Forever, Until: end},
		durable.Task{Key: "calendar", Kind: "k", Cron: "* * * * *", Until: end},
		durable.Task{Key: "few", Kind: "k", Interval: time.Minute, Times: 2, Until: end},
		durable.Task{Key: "first", Kind: "k", Delay: 5 * time.Minute, Interval: time.Minute, Times: durable.Forever, Until: end},
		durable.Task{Key: "bad", Kind: "bad", Interval: time.Minute, Times: durable.Forever, Until: end},
		durable.Task{Key: "skip", Kind: "skip", Interval: time.Minute, Times: durable.Forever, Until: end},
		durable.Task{Key: "paused", Kind: "k", Interval: time.Minute, Times: durable.Forever, Until: end})
	if i := k.Info("interval"); !i.Until.Equal(end) || i.Times != durable.Forever || !strings.Contains(i.String(), ", until ") {
		t.Errorf("it is %v", i)
	}
	k.Must(k.On().Pause(ctx, "paused"), k.On().PauseKind(ctx, "skip"))
	k.After(4 * time.Minute)
	k.Ran("interval", "interval", "interval", "calendar", "calendar", "calendar", "few", "few", "bad", "bad", "bad")
	for _, key := range []string{"interval", "calendar", "few"} {
		k.Gone(key)
	}
	if i := k.Info("bad"); i.State != durable.Parked || i.GivenUp != 2 || i.Attempts != 1 {
		t.Errorf("the task whose last run has failed is %v", i)
	}
	k.Must(k.On().Resume(ctx, "paused"), k.On().ResumeKind(ctx, "skip"))
	k.After(5 * time.Minute)
	k.Ran("first", "paused", "skip")
	for _, key := range []string{"first", "paused", "skip"} {
		k.Gone(key)
	}
	for name, wrong := range map[string]durable.Task{
		"does not repeat": {Key: "a", Kind: "k", Until: end},
		"in year 1":       {Key: "a", Kind: "k", Interval: time.Minute, Until: time.Time{}.Add(1)},
		"meta":            {Key: "a", Kind: "k", Meta: strings.Repeat("x", durable.MaxMeta+1)},
	} {
		if err := k.On().SetTask(ctx, wrong); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The meta of a task comes with its runs. A declared set replaces it, and the end of a task, without another start of its interval.
func keepsMeta(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok)
	meta := strings.Repeat("x", durable.MaxMeta)
	k.On().Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second, Meta: meta})
	if i := k.Info("a"); i.Meta != meta {
		t.Errorf("it is %v", i)
	}
	k.After(3 * time.Second)
	if calls := k.Ran("a"); calls[0].Meta != meta {
		t.Errorf("it has run with %q", calls[0].Meta)
	}
	set := durable.TaskSet{Prefix: "s/", Version: 1, Tasks: []durable.Task{{Key: "s/a", Kind: "k", Interval: time.Minute}}}
	_, err := k.On().Schedule(ctx, set)
	k.Must(err)
	next := k.Info("s/a").Next
	k.After(10 * time.Second)
	end := next.Add(90 * time.Second)
	set.Version, set.Tasks[0].Meta, set.Tasks[0].Until = 2, "m", end
	r, err := k.On().Schedule(ctx, set)
	k.Must(err)
	if i := k.Info("s/a"); r.Changed != 1 || i.Meta != "m" || !i.Until.Equal(end) || !i.Next.Equal(next) {
		t.Errorf("%+v, and it is %v", r, i)
	}
	k.After(4 * time.Minute)
	k.Ran("s/a", "s/a")
	k.Gone("s/a")
}
