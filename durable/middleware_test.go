// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// onBoth runs the test on a scheduler on a store, and on a node.
func onBoth(t *testing.T, test func(t *testing.T, k *kit.Kit), opts ...durable.Option) {
	t.Run("store", func(t *testing.T) { kit.OnOwn(t, test, opts...) })
	t.Run("node", func(t *testing.T) { kit.OnNodes(t, 1, test, opts...) })
}

// The middleware of all kinds encloses that of one kind, each in its order, and that encloses the upgrade of payloads.
// Each attempt passes all of them.
func TestMiddleware_order(t *testing.T) {
	var mu sync.Mutex
	var passed []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		passed = append(passed, fmt.Sprintf(format, args...))
	}
	named := func(name string) durable.Middleware {
		return func(next durable.Handler) durable.Handler {
			return func(ctx context.Context, run durable.Run) error {
				note("%s %s", name, run.Payload)
				run.Payload = append(slices.Clip(run.Payload), name...)
				err := next(ctx, run)
				note("%s: %v", name, err)
				return err
			}
		}
	}
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		passed = nil
		k.Handle("k", func(_ context.Context, run durable.Run) error {
			note("handler %s", run.Payload)
			if run.Attempt == 1 {
				return errors.New("no")
			}
			return nil
		}, durable.WithRetry(2, time.Second, time.Second), version2, durable.WithKindMiddleware(named("c")))
		k.Nodes[0].Add(durable.Task{Key: "a", Kind: "k", Payload: []byte("-"), PayloadVersion: 1, Delay: time.Second})
		k.After(5 * time.Second)
		once := "a -|b -a|c -ab|handler 2:-abc|c: %[1]v|b: %[1]v|a: %[1]v"
		want := fmt.Sprintf(once, "no") + "|" + fmt.Sprintf(once, error(nil))
		if got := strings.Join(passed, "|"); got != want {
			t.Errorf("the calls are\n%s, want\n%s", got, want)
		}
	}, durable.WithMiddleware(named("a")), durable.WithMiddleware(named("b")))
}

// A middleware decides the outcome, and its panic is a failed attempt.
func TestMiddleware_decides(t *testing.T) {
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		for kind, m := range map[string]durable.Middleware{
			"parks": func(durable.Handler) durable.Handler {
				return func(context.Context, durable.Run) error { return durable.Park(errors.New("not here")) }
			},
			"panics": func(durable.Handler) durable.Handler {
				return func(context.Context, durable.Run) error { panic("at once") }
			},
			"forgives": func(next durable.Handler) durable.Handler {
				return func(ctx context.Context, run durable.Run) error { _ = next(ctx, run); return nil }
			},
		} {
			k.Handle(kind, func(context.Context, durable.Run) error { return errors.New("no") }, durable.WithKindMiddleware(m),
				durable.WithRetry(1, time.Second, time.Second))
			k.Nodes[0].Add(durable.Task{Key: kind, Kind: kind, Delay: time.Second})
		}
		k.After(3 * time.Second)
		if i := k.Info("parks"); i.State != durable.Parked || i.Failure != "not here" {
			t.Errorf("%v", i)
		}
		if i := k.Info("panics"); i.State != durable.Parked || i.Failure != "handler panicked: at once" {
			t.Errorf("%v", i)
		}
		k.Gone("forgives")
	})
}

func TestMiddleware_wrong_isRefused(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		none := func(durable.Handler) durable.Handler { return nil }
		for name, o := range map[string]durable.KindOption{
			"nil": durable.WithKindMiddleware(nil), "one without a handler": durable.WithKindMiddleware(none),
		} {
			if err := k.Scheduler.Handle("k", ok, o); err == nil {
				t.Errorf("middleware that is %s is accepted", name)
			}
		}
		if _, err := durable.New(ctx, memory.New().Engine(), durable.WithMiddleware(nil)); err == nil {
			t.Error("nil is a middleware")
		}
	})
}

// A declared kind is added with its version, and runs on a node that handles it.
func TestDeclare(t *testing.T) {
	kit.OnNodes(t, 1, func(t *testing.T, k *kit.Kit) {
		client, err := durable.Connect(ctx, k.Engine, durable.WithLogger(testkit.Quiet()))
		k.Must(err)
		names, err := durable.KindOf[string](client, "k", nil, durable.WithPayloadVersion(2, nil))
		k.Must(err)
		k.Must(names.Add(ctx, "a", "ada", durable.In(time.Second)), names.Set(ctx, "a", "bob", durable.In(time.Second)))
		task, err := names.Task("b", "cid", durable.Every(time.Minute))
		k.Must(err)
		if want := (durable.Task{Key: "b", Kind: "k", Payload: []byte(`"cid"`), Interval: time.Minute, Times: durable.Forever,
			PayloadVersion: 2}); fmt.Sprint(task) != fmt.Sprint(want) {
			t.Errorf("the task is %+v, want %+v", task, want)
		}
		if i, _, err := client.Get(ctx, "a"); i.PayloadVersion != 2 || string(i.Payload) != `"bob"` || err != nil {
			t.Errorf("the task is %v, %v", i, err)
		}
		k.After(5 * time.Second)
		k.Handle("k", ok, version2)
		if got := k.RunsAfter(5 * time.Second); len(got) != 1 {
			t.Errorf("the runs are %v", got)
		}
		k.Must(client.Shutdown(ctx))
	})
}

// A declaration is no handler: tasks wait, are counted, and run once the kind is handled, with the handler's version.
func TestDeclare_withoutAHandler_waits(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		k.Must(k.Declare("k"))
		k.Nodes[0].Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		k.After(12 * time.Second)
		if s := k.Stats(); s.Unhandled != 1 || s.Started != 0 {
			t.Errorf("the accounts are %v", s)
		}
		k.Must(k.Declare("k", version2))
		k.Nodes[0].Add(durable.Task{Key: "b", Kind: "k", Delay: time.Hour})
		if i := k.Info("b"); i.PayloadVersion != 2 {
			t.Errorf("declared again: %v", i)
		}
		k.Handle("k", ok)
		k.Nodes[0].Add(durable.Task{Key: "c", Kind: "k", Delay: time.Hour})
		if i := k.Info("c"); i.PayloadVersion != 1 {
			t.Errorf("with the version of the handler: %v", i)
		}
		k.After(5 * time.Second)
		k.Gone("a")
		for _, err := range []error{k.Declare(""), k.Declare("x\x1f2"), k.Declare("x", nil)} {
			if err == nil {
				t.Error("a wrong declaration is accepted")
			}
		}
	})
	if _, err := durable.Connect(ctx, memory.New().Shared(), durable.WithMiddleware(nil)); err == nil {
		t.Error("nil is a middleware")
	}
}

// An observer sees that an attempt postponed its run, which is no failure.
func TestSnooze_isObserved(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	observe := durable.WithObserver(func(a durable.Attempt) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%v %q %v", a.Snoozed, a.Failure, a.Due.Sub(a.Started) <= 0))
	})
	onBoth(t, func(t *testing.T, k *kit.Kit) {
		seen = nil
		calls := 0
		k.Handle("k", func(context.Context, durable.Run) error {
			if calls++; calls == 1 {
				return durable.Snooze(time.Second)
			}
			return nil
		})
		k.Nodes[0].Add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		k.After(5 * time.Second)
		if got := strings.Join(seen, ", "); got != `true "" true, false "" true` {
			t.Errorf("the attempts are %s", got)
		}
	}, observe)
}
