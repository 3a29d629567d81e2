// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
)

// window is how long the names of tasks are remembered in these tests.
const window = time.Minute

// A verb is one that adds a task.
type verb struct {
	name string
	call func(k *kit.Kit, t durable.Task) error
}

var addingVerbs = []verb{
	{"AddTask", func(k *kit.Kit, t durable.Task) error { return k.On().AddTask(ctx, t) }},
	{"SetTask", func(k *kit.Kit, t durable.Task) error { return k.On().SetTask(ctx, t) }},
}

// isRepeated checks that the verb has returned a RepeatedError with the keys.
func isRepeated(t *testing.T, when string, err error, keys ...string) {
	t.Helper()
	var repeated *durable.RepeatedError
	if !errors.As(err, &repeated) || !errors.Is(err, durable.ErrRepeated) || errors.Is(err, durable.ErrDuplicateTaskKey) ||
		!slices.Equal(repeated.Keys, keys) || !strings.Contains(err.Error(), fmt.Sprintf("%q", keys[0])) {
		t.Errorf("%s: %v, want that %v were added before", when, err, keys)
	}
}

// While the name of a task is remembered, it is not added again: neither before it has run nor afterwards.
func addsOnce(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok, durable.WithOnce(window))
	for n, first := range addingVerbs {
		key := fmt.Sprint("a", n)
		task := durable.Task{Key: key, Kind: "k", Once: "message " + key, Delay: 10 * time.Second}
		k.Must(first.call(k, task))
		again := func(when string) {
			for _, verb := range addingVerbs {
				isRepeated(t, first.name+", "+verb.name+" "+when, verb.call(k, task), key)
				other := task
				other.Key = "other"
				isRepeated(t, first.name+", "+verb.name+" of another key "+when, verb.call(k, other), "other")
			}
		}
		again("before the run")
		if i := k.Info(key); time.Until(i.Next) < 9*time.Second {
			t.Errorf("%s: a call without effect has changed %v", first.name, i)
		}
		k.After(11 * time.Second)
		k.Ran(key)
		again("after the run")
		k.After(window - 2*time.Second)
		again("at the end of the window")
		k.Gone("other")
		k.RanNothing()
		k.After(3 * time.Second)
		k.Must(first.call(k, task)) // the name is forgotten
		k.After(11 * time.Second)
		k.Ran(key)
		k.After(2 * window)
		if n := k.Len(); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
	}
}

// A search, and what acts on all tasks that it finds, leaves out the tasks that remember names, unless it is for their kind.
func findsNoNames(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok, durable.WithOnce(window))
	k.On().Add(durable.Task{Key: "a", Kind: "k", Once: "1", Delay: time.Hour})
	for kind, want := range map[string]string{"": "a", "k": "a", durable.OnceKind: durable.OncePrefix + "1"} {
		found, err := k.On().Find(ctx, durable.Query{Kind: kind})
		k.Must(err)
		if keys := namesOf(found.Tasks); !slices.Equal(keys, []string{want}) {
			t.Errorf("of kind %q there are %q", kind, keys)
		}
	}
	if n, err := k.On().Bulk(ctx, durable.Query{}, durable.DoRemove); n != 1 || err != nil {
		t.Errorf("%d tasks are removed: %v", n, err)
	}
	k.On().Add(durable.Task{Key: "a", Kind: "k", Once: "2", Delay: time.Hour})
	if n, err := k.On().ReschedulePrefix(ctx, "", time.Minute); n != 1 || err != nil {
		t.Errorf("%d tasks are moved: %v", n, err)
	}
	for _, prefix := range []string{"", durable.OncePrefix} {
		if n, err := k.On().RemovePrefix(ctx, prefix); n > 1 || err != nil {
			t.Errorf("%d tasks with the prefix %q are removed: %v", n, prefix, err)
		}
	}
	for _, prefix := range []string{durable.OnceKind, durable.OncePrefix, durable.OncePrefix + "1", durable.OnceKind[:1]} {
		task := durable.Task{Key: prefix, Kind: "k", Interval: time.Hour}
		if strings.HasPrefix(prefix, durable.OncePrefix) {
			declares(t, k, durable.TaskSet{Prefix: prefix}, durable.SetResult{})
			continue
		}
		declares(t, k, durable.TaskSet{Prefix: prefix, Version: 1, Tasks: []durable.Task{task}}, durable.SetResult{Added: 1})
		declares(t, k, durable.TaskSet{Prefix: prefix, Version: 2}, durable.SetResult{Removed: 1})
	}
	for _, name := range []string{"1", "2"} {
		isRepeated(t, "after the removal of all tasks", k.On().AddTask(ctx, durable.Task{Key: "a", Kind: "k", Once: name}), "a")
	}
}

// Another name is another task, and so is none. SetTask with a name replaces a task.
func addsOnceByName(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok, durable.WithOnce(window))
	task := func(once string) durable.Task {
		return durable.Task{Key: "a", Kind: "k", Once: once, Delay: 10 * time.Second}
	}
	k.Must(k.On().AddTask(ctx, task("1")), k.On().SetTask(ctx, task("2")), k.On().SetTask(ctx, task("")))
	if err := k.On().AddTask(ctx, task("3")); !errors.Is(err, durable.ErrDuplicateTaskKey) || errors.Is(err, durable.ErrRepeated) {
		t.Errorf("a new name of a used key: %v", err)
	}
	k.Must(k.On().SetTask(ctx, task("3"))) // the call before has not remembered it
	isRepeated(t, "a name of a task that was replaced", k.On().SetTask(ctx, task("1")), "a")
	burst := task("4")
	burst.MaxDelay = time.Minute
	k.Must(k.On().SetTask(ctx, burst))
	isRepeated(t, "a name of a burst", k.On().SetTask(ctx, burst), "a")
	k.After(11 * time.Second)
	k.Ran("a")
	k.Must(k.On().SetTask(ctx, task("5")), k.On().RemoveTask(ctx, "a"))
	isRepeated(t, "a name of a task that was removed", k.On().AddTask(ctx, task("5")), "a")
	k.Must(k.On().RemoveTask(ctx, durable.OncePrefix+"5"), k.On().AddTask(ctx, task("5")))
	k.After(time.Millisecond) // two nodes may use the same generation in the same microsecond
	k.Must(k.On().SetTask(ctx, durable.Task{Key: "a", Kind: "k", Delay: 10 * window}))
	k.After(window + 11*time.Second)
	k.Must(k.On().SetTask(ctx, task("5"))) // its task was replaced
}

// A call adds all of its tasks or none, also if names are remembered or given twice.
func addsOnceTogether(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok, durable.WithOnce(window))
	task := func(key, once string) durable.Task {
		return durable.Task{Key: key, Kind: "k", Once: once, Delay: 10 * time.Second}
	}
	k.Must(k.On().AddTask(ctx, task("a", "1"), task("b", ""), task("c", "2")))
	isRepeated(t, "two of four", k.On().AddTask(ctx, task("d", "2"), task("e", "3"), task("f", "1"), task("g", "")), "d", "f")
	isRepeated(t, "a name twice", k.On().AddTask(ctx, task("d", "4"), task("e", "5"), task("f", "4")), "d", "f")
	for _, key := range []string{"d", "e", "f", "g"} {
		k.Gone(key)
	}
	k.Must(k.On().AddTask(ctx, task("d", "4"), task("e", "3")))
	k.After(11 * time.Second)
	k.Ran("a", "b", "c", "d", "e")
}

// A name is remembered as long as its task exists, however long that is, and then for a window at most.
func addsOnceLong(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok, durable.WithOnce(window))
	task := durable.Task{Key: "a", Kind: "k", Once: "1", Delay: time.Second}
	k.Must(k.On().AddTask(ctx, task), k.On().Reschedule(ctx, "a", 10*window+window/2))
	k.After(10 * window)
	isRepeated(t, "long after the first due time", k.On().SetTask(ctx, task), "a")
	k.After(window)
	k.Ran("a")
	k.After(window + time.Second)
	k.Must(k.On().AddTask(ctx, task))
	k.After(2 * time.Second)
	k.Ran("a")
}

// A name outlives the removal of its task for at most as long as the task existed, or two windows, whenever the task is due and whatever
// its state is. Meanwhile it is not checked often. If the task is not removed, the name is remembered for a window after it was due.
func forgets(t *testing.T, k *kit.Kit) {
	const window = time.Second
	k.Handle("k", ok, durable.WithOnce(window))
	k.Handle("parks", func(context.Context, durable.Run) error { return durable.Park(errNot) }, durable.WithOnce(window))
	remembers := func(when, name string, want bool) {
		t.Helper()
		if is, err := k.On().Exist(ctx, durable.OncePrefix+name); is != want || err != nil {
			t.Errorf("%s, the name %s is remembered: %t, %v", when, name, is, err)
		}
	}
	const far = 10 * 365 * 24 * time.Hour
	states := []string{"scheduled", "paused", "parked", "moved"}
	const age = 200 * window
	k.On().Add(durable.Task{Key: "scheduled", Kind: "k", Once: "scheduled", Delay: far}, durable.Task{Key: "paused", Kind: "k", Once: "paused", Delay: far},
		durable.Task{Key: "parked", Kind: "parks", Once: "parked"}, durable.Task{Key: "moved", Kind: "k", Once: "moved", Delay: far})
	k.Must(k.On().Pause(ctx, "paused"))
	begin := time.Now()
	at := func(d time.Duration) { k.After(time.Until(begin.Add(d))) }
	var delays []time.Duration
	for d := window / 4; d < 8*window; d += window / 4 {
		delays = append(delays, d)
		name := fmt.Sprint(d)
		k.On().Add(durable.Task{Key: name, Kind: "k", Once: name, Delay: d})
		k.On().Add(durable.Task{Key: "removed", Kind: "k", Once: "removed " + name, Delay: d})
		k.Must(k.On().RemoveTask(ctx, "removed"))
	}
	removed := func(when string, want bool) {
		for _, d := range delays {
			remembers(when, "removed "+fmt.Sprint(d), want)
		}
	}
	at(window - window/8)
	removed("less than a window after it was added", true)
	for _, d := range delays { // between the times of two others
		at(d + window - window/8)
		remembers("before the end of its window", fmt.Sprint(d), true)
		at(d + window + window/8)
		remembers("after the end of its window", fmt.Sprint(d), false)
		if d == window {
			removed("two windows after it was removed", false)
		}
	}
	at(age)
	k.Must(k.On().Reschedule(ctx, "moved", window/2))
	for _, name := range states {
		if i := k.Info(durable.OncePrefix + name); i.Snoozes < 5 || i.Snoozes > 10 {
			t.Errorf("in %d windows, the name of the %s task is checked %d times", age/window, name, i.Snoozes)
		}
	}
	for _, name := range states[:3] {
		k.Must(k.On().RemoveTask(ctx, name))
	}
	if at(2*age + window); k.Len() != 0 {
		t.Errorf("%d tasks are left", k.Len())
	}
}

// Wrong names, and tasks that would be taken for names, are refused.
func wrongOnce(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok, durable.WithOnce(window))
	k.Handle("plain", ok)
	k.Must(k.On().Declare("declared", durable.WithOnce(window)))
	for name, task := range map[string]durable.Task{
		"a kind without names":      {Key: "a", Kind: "plain", Once: "1"},
		"a long name":               {Key: "a", Kind: "k", Once: strings.Repeat("n", durable.MaxOnce+1)},
		"the key of a name":         {Key: durable.OncePrefix + "1", Kind: "k"},
		"the kind of names":         {Key: "a", Kind: durable.OnceKind},
		"a key of a kind that says": {Key: durable.OncePrefix, Kind: "declared"},
	} {
		for _, verb := range addingVerbs {
			if err := verb.call(k, task); !errors.Is(err, durable.ErrInvalidTask) {
				t.Errorf("%s: %s returns %v", name, verb.name, err)
			}
		}
	}
	set := durable.TaskSet{Prefix: "a", Tasks: []durable.Task{{Key: "a", Kind: "k", Interval: time.Hour, Once: "1"}}}
	if _, err := k.On().Schedule(ctx, set); !errors.Is(err, durable.ErrInvalidTask) {
		t.Errorf("a set: %v", err)
	}
	s := k.Nodes[0]
	for _, err := range []error{s.Scheduler.Handle(durable.OnceKind, ok), s.Scheduler.Handle("none", ok, durable.WithOnce(0))} {
		if err == nil {
			t.Error("a wrong handler is allowed")
		}
	}
	k.Must(k.On().AddTask(ctx, durable.Task{Key: "a", Kind: "k", Once: strings.Repeat("n", durable.MaxOnce)}))
	k.After(time.Second)
	k.Ran("a")
}

// Put and AddNew return the task that the engine has.
func puts(t *testing.T, k *kit.Kit) {
	k.Handle("k", ok, durable.WithOnce(window))
	task := durable.Task{Key: "a", Kind: "k", Delay: 10 * time.Second, Payload: []byte("1"), Once: "1"}
	same := func(when string, got durable.Info, err error) {
		t.Helper()
		if want := k.Info("a"); err != nil || fmt.Sprint(got) != fmt.Sprint(want) || got.Generation != want.Generation || !got.Next.Equal(want.Next) {
			t.Errorf("%s: %v, %v, want %v", when, got, err, want)
		}
	}
	got, replaced, err := k.On().Put(ctx, task)
	same("a new task", got, err)
	if replaced {
		t.Error("a new task replaces one")
	}
	if _, _, err := k.On().Put(ctx, task); !errors.Is(err, durable.ErrRepeated) {
		t.Errorf("a repeated call: %v", err)
	}
	task.Payload, task.Once = []byte("2"), ""
	got, replaced, err = k.On().Put(ctx, task)
	same("a task that replaces one", got, err)
	if !replaced {
		t.Error("it replaces none")
	}
	k.After(time.Second)
	task.MaxDelay = 15 * time.Second
	got, _, err = k.On().Put(ctx, task)
	same("a burst", got, err)
	k.After(9 * time.Second)
	got, _, err = k.On().Put(ctx, task)
	same("the end of a burst", got, err)
	if _, err := k.On().AddNew(ctx, task); !errors.Is(err, durable.ErrDuplicateTaskKey) {
		t.Errorf("AddNew of a used key: %v", err)
	}
	k.After(11 * time.Second)
	k.Ran("a")
	got, err = k.On().AddNew(ctx, durable.Task{Key: "a", Kind: "k", Cron: "0 0 1 1 *", Group: "g"})
	same("a calendar", got, err)
	ran := make(chan string, 1)
	k.Handle("payload", func(_ context.Context, run durable.Run) error { ran <- string(run.Payload); return nil })
	got, err = k.On().AddNew(ctx, durable.Task{Key: "b", Kind: "payload", Delay: time.Second, Payload: []byte("payload")})
	k.Must(err)
	got.Payload[0] = 'x' // it belongs to the caller
	k.After(2 * time.Second)
	if text := <-ran; text != "payload" {
		t.Errorf("the run has the payload %q", text)
	}
	for _, err := range []error{k.On().RemoveTask(ctx, "a"), k.On().RemoveTask(ctx, durable.OncePrefix+"1")} {
		k.Must(err)
	}
	if _, _, err := k.On().Put(ctx, durable.Task{Kind: "k"}); !errors.Is(err, durable.ErrInvalidTask) {
		t.Errorf("Put without a key: %v", err)
	}
	if _, err := k.On().AddNew(ctx, durable.Task{Kind: "k"}); !errors.Is(err, durable.ErrInvalidTask) {
		t.Errorf("AddNew without a key: %v", err)
	}
}
