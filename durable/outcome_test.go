// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/sirupsen/logrus"
)

func TestPark_ofNil_isNil(t *testing.T) {
	if err := errors.Join(durable.Park(nil), durable.RetryAfter(time.Second, nil)); err != nil {
		t.Error(err)
	}
	for _, err := range []error{durable.Park(errFail), durable.RetryAfter(-1, errFail)} {
		if !errors.Is(err, errFail) || err.Error() != errFail.Error() {
			t.Errorf("%v", err)
		}
	}
}

// The outer of two says what becomes of the task, and an error that panics is one that says nothing.
func TestPark_withinAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(_ context.Context, run durable.Run) error {
			return map[string]error{
				"park":  durable.Park(durable.RetryAfter(time.Second, errFail)),
				"retry": durable.RetryAfter(time.Hour, durable.Park(errFail)),
				"joint": errors.Join(errFail, fmt.Errorf("and %w", durable.Park(errFail))),
				"panic": panicking{},
			}[run.Key]
		}, durable.WithRetry(2, time.Minute, time.Minute))
		for key, parked := range map[string]bool{"park": true, "retry": false, "joint": true, "panic": false} {
			r.add(durable.Task{Key: key, Kind: "k", Delay: time.Second})
			time.Sleep(2 * time.Second)
			if calls := r.runs(); len(calls) != 1 {
				t.Errorf("%s: %v", key, brief(calls))
			}
			if i := r.info(key); i.Parked != parked {
				t.Errorf("%+v", i)
			}
		}
	})
}

// RetryAfter of no time, or less, has the run tried again at once.
func TestRetryAfter_ofNoTime_isAtOnce(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(_ context.Context, run durable.Run) error {
			if run.Attempt < 3 {
				return durable.RetryAfter(time.Duration(run.Attempt-2), errFail)
			}
			return nil
		}, durable.WithRetry(3, time.Minute, time.Minute))
		r.add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		time.Sleep(2 * time.Second)
		if calls := r.runs(); len(calls) != 3 {
			t.Errorf("%v", brief(calls))
		}
	})
}

// completing returns a handler that completes its runs with the note.
func completing(note string) durable.Handler {
	return func(_ context.Context, run durable.Run) error {
		run.Complete(note)
		return nil
	}
}

// A handler that closes something at its end joins the errors of both.
func TestComplete_beforeErrorsAreJoined(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(_ context.Context, run durable.Run) (err error) {
			defer func() { err = errors.Join(err, nil) }()
			run.Complete("a note")
			return nil
		}, durable.WithRetry(1, time.Second, time.Second))
		r.add(durable.Task{Key: "a", Kind: "k", Interval: time.Second, Times: 2})
		time.Sleep(1500 * time.Millisecond)
		if i := r.info("a"); i.Parked || i.Note != "a note" || i.Times != 1 {
			t.Errorf("%+v", i)
		}
	})
}

// A handler that has returned has had its say, and a Run that no scheduler has made has no end.
func TestComplete_tooLateOrInNoScheduler(t *testing.T) {
	durable.Run{}.Complete("nothing")
	inOneBubble(t, func(t *testing.T, r *rig) {
		kept := make(chan durable.Run, 3)
		r.handle("k", func(_ context.Context, run durable.Run) error { kept <- run; return nil })
		r.add(durable.Task{Key: "a", Kind: "k", Interval: time.Second, Times: 3})
		time.Sleep(1500 * time.Millisecond)
		(<-kept).Complete("too late")
		time.Sleep(time.Second)
		if i := r.info("a"); i.Note != "" || i.Times != 1 {
			t.Errorf("%+v", i)
		}
	})
}

// The observers and the log have the note, of the last run, too.
func TestComplete_isObservedAndLogged(t *testing.T) {
	var mu sync.Mutex // protects below
	var observed, logged []string
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.AddHook(callingHook(func(e *logrus.Entry) {
		mu.Lock()
		defer mu.Unlock()
		if note, ok := e.Data["note"]; ok {
			logged = append(logged, fmt.Sprint(e.Data["task"], " ", note))
		}
	}))
	observe := durable.WithObserver(func(a durable.Attempt) {
		mu.Lock()
		defer mu.Unlock()
		observed = append(observed, fmt.Sprint(a.Key, " ", a.Note, a.Failure))
	})
	inOneBubble(t, func(t *testing.T, r *rig) {
		r.handle("k", completing("paid already"))
		r.add(durable.Task{Key: "a", Kind: "k", Delay: time.Second})
		time.Sleep(2 * time.Second)
		r.exists("a", false)
		stats := r.Stats()
		mu.Lock()
		defer mu.Unlock()
		want := []string{"a paid already"}
		if !slices.Equal(observed, want) || !slices.Equal(logged, want) || stats.Failed != 0 || stats.Succeeded != 1 {
			t.Errorf("observed are %q, and logged %q; %+v", observed, logged, stats)
		}
	}, durable.WithLogger(log), observe)
}

type panicking struct{}

func (panicking) Error() string { return "it panics" }
func (panicking) As(any) bool   { panic("As") }

// A run whose process ends is a failed attempt: the first is not counted, for it did not begin overdue.
func TestCrash_aTaskThatEndsItsProcess_isParked(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		kills := func() {
			r.handle("kills", func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
				durable.WithRetry(3, time.Second, time.Second))
		}
		kills()
		r.add(durable.Task{Key: "a", Kind: "kills", Delay: time.Second, Interval: time.Hour, Times: 2},
			durable.Task{Key: "b", Kind: "note", Delay: time.Second, Times: 1})
		time.Sleep(2 * time.Second)
		r.runs()
		for attempt := 1; attempt <= 3; attempt++ {
			r.crash()
			kills()
			r.start()
			time.Sleep(time.Second)
			calls := r.runs()
			if len(calls) != 1 || calls[0].Key != "a" || calls[0].Attempt != attempt {
				t.Fatalf("attempt %d: %v", attempt, brief(calls))
			}
			if i := r.info("a"); i.Attempts != 0 || i.Parked { // until the next process looks at it
				t.Errorf("attempt %d: %+v", attempt, i)
			}
		}
		r.crash()
		kills()
		r.start()
		time.Sleep(time.Second)
		if calls := r.runs(); len(calls) != 0 {
			t.Errorf("it was called again: %v", brief(calls))
		}
		if i := r.info("a"); !i.Parked || i.Attempts != 3 || r.Stats().Parked != 1 {
			t.Errorf("%+v, %+v", i, r.Stats())
		}
		if err := r.Reschedule(ctx, "a", time.Hour); err != nil {
			t.Error(err)
		}
		if i := r.info("a"); i.Attempts != 0 || i.Failure != "" {
			t.Errorf("%+v", i)
		}
	})
}

// A run that is running when another ends the process has failed, too, and its task is parked in the end.
func TestCrash_whatRunsNextToIt_usesUpAnAttempt(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		waits := func() {
			r.handle("waits", func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
				durable.WithRetry(2, time.Second, time.Second))
		}
		waits()
		r.add(durable.Task{Key: "kills", Kind: "waits", Delay: time.Second},
			durable.Task{Key: "innocent", Kind: "waits", Delay: time.Second})
		for range 4 {
			time.Sleep(2 * time.Second)
			r.crash()
			waits()
			r.start()
		}
		time.Sleep(time.Second)
		for _, key := range []string{"kills", "innocent"} {
			if i := r.info(key); !i.Parked || i.Attempts != 2 {
				t.Errorf("%+v", i)
			}
		}
		if err := r.Reschedule(ctx, "innocent", time.Hour); err != nil {
			t.Error(err)
		}
		if i := r.info("innocent"); i.Parked || i.Attempts != 0 {
			t.Errorf("rescheduled: %+v", i)
		}
	})
}

// An attempt has failed when its time is over, though its context was done before that for another reason.
func TestTimeout_ofARunThatWasCancelledBefore_isAFailure(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		c.handle("slow", func(m *member) durable.Handler {
			return func(ctx context.Context, _ durable.Run) error {
				m.link.SetDown(true)
				<-ctx.Done()
				m.link.SetDown(false)
				if cause := context.Cause(ctx); !errors.Is(cause, durable.ErrFenced) {
					t.Errorf("the context is done because of %v", cause)
				}
				time.Sleep(time.Minute)
				return nil
			}
		}, durable.WithTimeout(time.Minute), durable.WithRetry(5, time.Hour, time.Hour))
		c.nodes[0].add(durable.Task{Key: "a", Kind: "slow", Delay: time.Second})
		time.Sleep(10 * time.Minute)
		if i := c.info("a"); i.Attempts != 1 || !strings.HasPrefix(i.Failure, "timed out after 1m0s") {
			t.Errorf("%+v", i)
		}
	})
}

// So it is behind a backlog that is longer than the number of starts that are counted: what ran before it is
// done.
func TestCrash_behindABacklog_isParked(t *testing.T) {
	inOneBubble(t, func(t *testing.T, r *rig) {
		const backlog = 20_000
		kills := func() {
			r.handle("kills", func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
				durable.WithRetry(2, time.Second, time.Second))
		}
		kills()
		var tasks []durable.Task
		for i := range backlog {
			tasks = append(tasks, durable.Task{Key: fmt.Sprint(i), Kind: "note", Delay: time.Hour})
		}
		r.add(tasks...)
		r.add(durable.Task{Key: "a", Kind: "kills", Delay: time.Hour + time.Millisecond})
		attempts := 0
		for life := 0; life < 5 && !r.info("a").Parked; life++ {
			r.crash()
			kills()
			if life == 0 {
				time.Sleep(2 * time.Hour)
			}
			r.start()
			time.Sleep(10 * time.Second)
			for _, c := range r.runs() {
				if c.Key == "a" {
					attempts++
				}
			}
		}
		if i := r.info("a"); !i.Parked || attempts != 3 {
			t.Errorf("after %d attempts: %+v", attempts, i)
		}
	})
}

// An overdue run that ends normally counts as ever.
func TestCrash_overdueRuns_endAsOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.add(durable.Task{Key: "done", Kind: "note", Delay: time.Second},
			durable.Task{Key: "again", Kind: "note", Delay: time.Second, Interval: time.Hour, Times: durable.Forever},
			durable.Task{Key: "fails", Kind: "fail", Delay: time.Second})
		r.crash()
		time.Sleep(time.Minute)
		r.start()
		time.Sleep(2 * tick)
		if calls := r.runs(); len(calls) != 3 {
			t.Errorf("%v", brief(calls))
		}
		r.exists("done", false)
		if i := r.info("again"); i.Attempts != 0 || i.Seq != 1 {
			t.Errorf("%+v", i)
		}
		if i := r.info("fails"); i.Attempts != 1 || i.Failure != errFail.Error() {
			t.Errorf("%+v", i)
		}
	})
}

// What is removed while its start is being counted does not start.
func TestCrash_removedAsItStarts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.add(durable.Task{Key: "a", Kind: "note", Delay: time.Second})
		time.Sleep(500 * time.Millisecond)
		r.crash()
		time.Sleep(time.Minute)
		r.start()
		if err := r.RemoveTask(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if calls := r.runs(); len(calls) != 0 {
			t.Errorf("%v", brief(calls))
		}
	})
}
