// SPDX-License-Identifier: MIT

package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

func TestNew_badArguments_areNamed(t *testing.T) {
	for _, c := range []struct {
		tick  time.Duration
		slots int
		opts  []timewheel.Option
		want  []string // the argument and its value
	}{
		{0, 60, nil, []string{"tick", "0s"}},
		{-5 * time.Second, 60, nil, []string{"tick", "-5s"}},
		{math.MinInt64, 60, nil, []string{"tick", "-2562047h47m16.854775808s"}},
		{ms, 0, nil, []string{"slots", "0"}},
		{ms, -7, nil, []string{"slots", "-7"}},
		{ms, 1<<24 + 1, nil, []string{"slots", "16777217"}},
		{ms, math.MaxInt, nil, []string{"slots", fmt.Sprint(math.MaxInt)}},
		{ms, 60, []timewheel.Option{timewheel.WithPoolSize(0)}, []string{"pool size", "0"}},
		{ms, 60, []timewheel.Option{timewheel.WithPoolSize(-1)}, []string{"pool size", "-1"}},
		{ms, 60, []timewheel.Option{timewheel.WithLayout(2)}, []string{"layout", "2"}},
		{ms, 60, []timewheel.Option{timewheel.WithLayout(-1)}, []string{"layout", "-1"}},
		{ms, 60, []timewheel.Option{timewheel.WithMaxPending(0)}, []string{"max pending", "0"}},
		{ms, 60, []timewheel.Option{timewheel.WithMaxPending(-3)}, []string{"max pending", "-3"}},
	} {
		t.Run(strings.Join(c.want, "_"), func(t *testing.T) {
			var tw *timewheel.TimeWheel
			var err error
			value := panicOf(func() { tw, err = timewheel.New(c.tick, c.slots, c.opts...) })
			if value != nil || tw != nil || err == nil {
				t.Fatalf("New returns %v and the error %v, and panics with %v", tw, err, value)
			}
			for _, text := range append(c.want, "timewheel: ") {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			if value := panicOf(func() { timewheel.NewTimeWheel(c.tick, c.slots, c.opts...) }); value == nil ||
				fmt.Sprint(value) != err.Error() {
				t.Errorf("NewTimeWheel panics with %v, New returns %v", value, err)
			}
		})
	}
}

// A mistake that only a programmer can make panics, as in package time.
func TestNil_whereAFunctionBelongs_panics(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := newWheel(t, ms, 60)
		must(t, tw.AddTask(once("k", time.Hour, nothing)))
		for want, f := range map[string]func(){
			"timewheel: nil executor":               func() { timewheel.WithExecutor(nil) },
			"timewheel: nil logger":                 func() { timewheel.WithLogger(nil) },
			"timewheel: nil slog logger":            func() { timewheel.WithSlog(nil) },
			"timewheel: nil panic handler":          func() { timewheel.WithPanicHandler(nil) },
			"timewheel: nil observer":               func() { timewheel.WithObserver(nil) },
			"timewheel: option 2 is nil":            func() { _, _ = timewheel.New(ms, 60, timewheel.WithPoolSize(1), nil) },
			"timewheel: nil function for Drain":     func() { _, _ = tw.Drain(nil) },
			"timewheel: nil function for AfterFunc": func() { tw.AfterFunc(ms, nil) },
			"timewheel: nil job for SkipIfRunning":  func() { timewheel.SkipIfRunning(nil) },
			"timewheel: nil function for JobFunc":   func() { timewheel.JobFunc(nil) },
			"timewheel: nil error handler":          func() { timewheel.WithErrorHandler(nil) },
		} {
			if value := panicOf(f); value != want {
				t.Errorf("it panics with %v, want %s", value, want)
			}
		}
		balanced(t, tw, 1)
	})
}

func TestNew_goodArguments_areTaken(t *testing.T) {
	for _, c := range []struct {
		tick  time.Duration
		slots int
		opts  []timewheel.Option
	}{
		{1, 1, nil},
		{math.MaxInt64, 1, nil},
		{ms, 1 << 20, nil},
		{ms, 60, []timewheel.Option{
			timewheel.WithPoolSize(1), timewheel.WithMaxPending(1), timewheel.WithLogger(logrus.New()),
			timewheel.WithPanicHandler(func(*timewheel.Task, any, []byte) {}),
			timewheel.WithObserver(func(timewheel.Run) {}),
			timewheel.WithExecutor(executor(func(f func()) error { go f(); return nil })),
		}},
		{ms, 60, []timewheel.Option{timewheel.WithPoolSize(math.MaxInt), timewheel.WithMaxPending(math.MaxInt)}},
	} {
		tw, err := timewheel.New(c.tick, c.slots, c.opts...)
		must(t, err)
		must(t, tw.AddTask(once("k", time.Hour, nothing)))
		tw.Stop()
	}
}

func TestBadInput_isNamedAndChangesNothing(t *testing.T) {
	task := func(change func(*timewheel.Task)) *timewheel.Task {
		task := &timewheel.Task{Key: "new", Interval: time.Second, Delay: time.Second, Times: 2, Job: nothing}
		if change != nil {
			change(task)
		}
		return task
	}
	type call = func(tw *timewheel.TimeWheel) error
	type testCase struct {
		name string
		call call
		is   error
		want []string // the argument and its value
	}
	reschedule := func(key string, d time.Duration) call {
		return func(tw *timewheel.TimeWheel) error { return tw.Reschedule(key, d) }
	}
	remove := func(key string) call {
		return func(tw *timewheel.TimeWheel) error { return tw.RemoveTask(key) }
	}
	invalid, missing := timewheel.ErrInvalidTask, timewheel.ErrTaskKeyNotFound
	cases := []testCase{
		{"Reschedule", reschedule("live", -5*time.Second), invalid, []string{"delay", "-5s"}},
		{"Reschedule", reschedule("live", math.MinInt64), invalid, []string{"delay", "-2562047h"}},
		{"Reschedule", reschedule("no such", time.Second), missing, []string{"no such"}},
		{"Reschedule", reschedule("", time.Second), missing, []string{`""`}},
		{"RemoveTask", remove("no such"), missing, []string{"no such"}},
		{"RemoveTask", remove(""), missing, []string{`""`}},
		{"Pause", func(tw *timewheel.TimeWheel) error { return tw.Pause("none") }, missing, []string{"none"}},
		{"Resume", func(tw *timewheel.TimeWheel) error { return tw.Resume("") }, missing, []string{`""`}},
		{"RemoveWait", func(tw *timewheel.TimeWheel) error {
			_, err := tw.RemoveWait(context.Background(), "no such")
			return err
		}, missing, []string{"no such"}},
		{"AddTask", func(tw *timewheel.TimeWheel) error {
			return tw.AddTask(task(func(task *timewheel.Task) { task.Key = "live" }))
		}, timewheel.ErrDuplicateTaskKey, []string{"live"}},
	}
	for _, bad := range []struct {
		task *timewheel.Task
		want []string
	}{
		{nil, []string{"task", "nil"}},
		{task(func(task *timewheel.Task) { task.Key = "" }), []string{"key", "empty"}},
		{task(func(task *timewheel.Task) { task.Interval = 0; task.Delay = 0 }), []string{"interval 0s", "delay 0s", "positive"}},
		{task(func(task *timewheel.Task) { task.Interval = 0 }), []string{"interval", "0s", "positive"}},
		{task(func(task *timewheel.Task) { task.Interval = -time.Minute }), []string{"interval", "-1m0s"}},
		{task(func(task *timewheel.Task) { task.Delay = -ms }), []string{"delay", "-1ms", "negative"}},
		{task(func(task *timewheel.Task) { task.Times = -2 }), []string{"times", "-2"}},
		{task(func(task *timewheel.Task) { task.Times = math.MinInt }), []string{"times", fmt.Sprint(math.MinInt)}},
		{task(func(task *timewheel.Task) { task.Job = nil }), []string{"job", "nil"}},
		{task(func(task *timewheel.Task) { task.Key, task.Interval = "live", -1 }), []string{"interval", "-1ns"}},
	} {
		add := func(tw *timewheel.TimeWheel) error { return tw.AddTask(bad.task) }
		set := func(tw *timewheel.TimeWheel) error { return tw.SetTask(bad.task) }
		if bad.task != nil && bad.task.Key != "" {
			bad.want = append(bad.want, fmt.Sprintf("%q", bad.task.Key))
		}
		cases = append(cases,
			testCase{"AddTask", add, invalid, bad.want}, testCase{"SetTask", set, invalid, bad.want})
	}
	for _, bad := range []struct {
		at   time.Time
		task *timewheel.Task
		want []string
	}{
		{time.Now(), nil, []string{"task", "nil"}},
		{time.Now(), task(nil), []string{"delay", "1s", "0", `"new"`}},
		{time.Time{}, &timewheel.Task{Key: "new", Job: nothing}, []string{"at 0001-", "1970", `"new"`}},
		{time.Now().AddDate(300, 0, 0), &timewheel.Task{Key: "new", Job: nothing}, []string{"at 2", "2261"}},
		{time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC), &timewheel.Task{Key: "new", Job: nothing}, []string{"at 1969-", "1970"}},
		{time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC), &timewheel.Task{Key: "new", Job: nothing}, []string{"at 2262-", "2261"}},
		{time.Now(), &timewheel.Task{Key: "new", Times: 2, Job: nothing}, []string{"interval", "0s"}},
	} {
		add := func(tw *timewheel.TimeWheel) error { return tw.AddAt(bad.at, bad.task) }
		set := func(tw *timewheel.TimeWheel) error { return tw.SetAt(bad.at, bad.task) }
		cases = append(cases,
			testCase{"AddAt", add, invalid, bad.want}, testCase{"SetAt", set, invalid, bad.want})
	}
	for _, c := range cases {
		for _, started := range []bool{false, true} {
			t.Run(c.name+"_"+strings.Join(c.want, "_"), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					tw := newWheel(t, 10*ms, 16)
					must(t, tw.AddTask(times("live", time.Second, 3, nothing)))
					if started {
						tw.Start()
					}
					testkit.Settle(100 * ms)
					stats, all := tw.Stats(), infosOf(tw)
					err := c.call(tw)
					if !errors.Is(err, c.is) {
						t.Errorf("the error is %v, want one that is %v", err, c.is)
					}
					for _, text := range append(c.want, "timewheel: ") {
						if !strings.Contains(fmt.Sprint(err), text) {
							t.Errorf("%v does not say %q", err, text)
						}
					}
					synctest.Wait()
					wantEqual(t, "Stats", tw.Stats(), stats)
					wantEqual(t, "tasks", infosOf(tw), all)
				})
			})
		}
	}
}

func TestQueries_ofNoSuchTask_findNothing(t *testing.T) {
	eachLayout(t, func(t *testing.T) {
		tw := newWheel(t, ms, 8)
		for _, key := range []string{"", "no such"} {
			info, ok := tw.Get(key)
			if ok || info != (timewheel.Info{}) || tw.Exist(key) || tw.GetTaskTimes(key) != 0 {
				t.Errorf("%q: %+v, %v, Exist %v, %d runs left", key, info, ok, tw.Exist(key), tw.GetTaskTimes(key))
			}
		}
		n, err := tw.Drain(func(task *timewheel.Task) { t.Errorf("drained %+v", task) })
		must(t, err)
		wantEqual(t, "drained", n, 0)
		wantEqual(t, "Stats of an empty wheel", tw.Stats(), timewheel.Stats{Workers: 1024})
	})
}

// panicOf returns what f panics with.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// infosOf returns the Infos of the live tasks, by key.
func infosOf(tw *timewheel.TimeWheel) map[string]timewheel.Info {
	infos := map[string]timewheel.Info{}
	for info := range tw.All() {
		infos[info.Key] = info
	}
	return infos
}

// A task with a key, a delay and a job runs once.
func TestAddTask_delayAlone_runsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw, j := startWheel(t, 10*ms, 16), newJournal()
		must(t, tw.AddTask(&timewheel.Task{Key: "k", Delay: 50 * ms, Job: j.job}))
		must(t, tw.SetTask(&timewheel.Task{Key: "one", Delay: 30 * ms, Times: 1, Job: j.job}))
		testkit.Settle(time.Hour)
		j.want(t, "k", 50*ms)
		j.want(t, "one", 30*ms)
		for _, n := range []int{2, timewheel.Forever} {
			err := tw.AddTask(&timewheel.Task{Key: "k", Delay: ms, Times: n, Job: j.job})
			if !errors.Is(err, timewheel.ErrInvalidTask) || !strings.Contains(err.Error(), "interval 0s") {
				t.Errorf("with %d runs and no interval: %v", n, err)
			}
		}
		balanced(t, tw, 2)
	})
}

func TestOptions_observersAndPanicHandlers_addUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var called []string
		handler := func(name string) timewheel.Option {
			return timewheel.WithPanicHandler(func(*timewheel.Task, any, []byte) {
				called = append(called, name)
				panic("and this one panics, too")
			})
		}
		observer := func(name string) timewheel.Option {
			return timewheel.WithObserver(func(timewheel.Run) {
				called = append(called, name)
				runtime.Goexit()
			})
		}
		tw := startWheel(t, 10*ms, 16, handler("h1"), observer("o1"), handler("h2"), observer("o2"), quiet())
		must(t, tw.AddTask(once("k", 20*ms, func(*timewheel.Task) { panic("on purpose") })))
		testkit.Settle(time.Second)
		wantEqual(t, "calls", called, []string{"h1", "h2", "o1", "o2"})
		balanced(t, tw, 1)
	})
}

func TestWithSlog_logsWhatLogrusWouldBeGiven(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var book logBook
		tw := startWheel(t, 10*ms, 16,
			timewheel.WithSlog(slog.New(slog.NewTextHandler(&book, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		must(t, tw.AddTask(once("k", 20*ms, func(*timewheel.Task) { panic("on purpose") })))
		testkit.Settle(time.Second)
		tw.Stop()
		for _, texts := range [][]string{
			{"level=DEBUG", "timewheel: started"}, {"level=DEBUG", "timewheel: stopped"},
			{"level=ERROR", "timewheel: job panicked", "key=k", `panic="on purpose"`, "input_test.go"},
		} {
			if found := book.with(texts...); len(found) != 1 {
				t.Errorf("%d entries have %q; the log:\n%s", len(found), texts, book.entries)
			}
		}
	})
}

// The errors of a stopped wheel name the verb and the key.
func TestStopped_errorsNameTheVerbAndTheKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tw := newWheel(t, 10*ms, 16)
		must(t, tw.AddTask(times("live", time.Second, 3, nothing)))
		tw.Stop()
		task := &timewheel.Task{Key: "new", Delay: ms, Job: nothing}
		dated := &timewheel.Task{Key: "new", Job: nothing}
		for want, err := range map[string]error{
			`AddTask of "new"`:     tw.AddTask(task),
			`SetTask of "new"`:     tw.SetTask(task),
			`AddAt of "new"`:       tw.AddAt(time.Now(), dated),
			`SetAt of "new"`:       tw.SetAt(time.Now(), dated),
			`Reschedule of "live"`: tw.Reschedule("live", ms),
			`Pause of "live"`:      tw.Pause("live"),
			`Resume of "live"`:     tw.Resume("live"),
		} {
			if !errors.Is(err, timewheel.ErrStopped) || fmt.Sprint(err) != "timewheel: stopped: "+want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}
