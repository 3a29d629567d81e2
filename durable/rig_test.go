// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

var ctx = context.Background()

const tick = 10 * time.Millisecond

// A call is one call of a handler.
type call struct {
	durable.Run
	at time.Duration // since the rig was made
}

// A rig is a scheduler on a store in memory, inside a bubble of virtual time, and what it has run. The kind
// "note" does nothing else than to note its runs; "fail" returns an error, too.
type rig struct {
	*durable.Scheduler
	t     *testing.T
	store *memstore.Store
	opts  []durable.Option
	begin time.Time

	mu    sync.Mutex // protects calls
	calls []call
}

var errFail = errors.New("it fails")

// inBubble runs the test on a started scheduler, and shuts that down; and once more on one without
// fingerprints.
func inBubble(t *testing.T, test func(t *testing.T, r *rig), opts ...durable.Option) {
	t.Helper()
	t.Run("fingerprints", func(t *testing.T) { inOneBubble(t, test, opts...) })
	t.Run("none", func(t *testing.T) {
		testkit.NotForRaces(t)
		inOneBubble(t, test, append(opts, durable.WithoutKeyFilter())...)
	})
}

func inOneBubble(t *testing.T, test func(t *testing.T, r *rig), opts ...durable.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, store: memstore.New(), begin: time.Now()}
		r.opts = append([]durable.Option{durable.WithTick(tick), durable.WithLogger(testkit.Quiet())}, opts...)
		r.open()
		r.start()
		defer func() {
			if err := r.Shutdown(ctx); err != nil {
				t.Errorf("shutdown: %v", err)
			}
		}()
		test(t, r)
	})
}

func (r *rig) open(except ...string) {
	r.t.Helper()
	s, err := durable.New(r.store, r.opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Scheduler = s
	for kind, err := range map[string]error{"note": nil, "fail": errFail} {
		if !slices.Contains(except, kind) {
			r.handle(kind, func(context.Context, durable.Run) error { return err })
		}
	}
}

func (r *rig) start() {
	r.t.Helper()
	if err := r.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// handle registers a kind whose runs are noted before f is called.
func (r *rig) handle(kind string, f durable.Handler, opts ...durable.KindOption) {
	r.t.Helper()
	err := r.Handle(kind, func(ctx context.Context, run durable.Run) error {
		r.mu.Lock()
		r.calls = append(r.calls, call{run, time.Since(r.begin)})
		r.mu.Unlock()
		return f(ctx, run)
	}, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
}

// crash ends the scheduler without its store noticing, and opens another on what was committed. What ran at
// that moment is not heard of any more.
func (r *rig) crash(except ...string) {
	r.t.Helper()
	left := r.store.Reopen()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_ = r.Shutdown(gone) // its error is that jobs are still running
	r.store = left
	r.open(except...)
}

func (r *rig) add(tasks ...durable.Task) {
	r.t.Helper()
	if err := r.AddTask(ctx, tasks...); err != nil {
		r.t.Fatal(err)
	}
}

// runs returns what was run since the last time it was asked, sorted by time and key.
func (r *rig) runs() []call {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// ranAt fails the test unless the key, and nothing else, ran at each of the times since the rig was made, or
// less than two ticks later: one is the wheel's, one is what the wheel's own start may be apart from the rig's.
func (r *rig) ranAt(key string, times ...time.Duration) []call {
	r.t.Helper()
	calls := r.runs()
	ok := len(calls) == len(times)
	for i := 0; ok && i < len(times); i++ {
		ok = calls[i].Key == key && calls[i].at >= times[i] && calls[i].at < times[i]+2*tick
	}
	if !ok {
		r.t.Fatalf("%q should have run at %v, and these are the runs: %v", key, times, brief(calls))
	}
	return calls
}

func brief(calls []call) (all []string) {
	for _, c := range calls {
		all = append(all, c.at.String()+" "+c.Token.String())
	}
	return all
}

func (r *rig) info(key string) durable.Info {
	r.t.Helper()
	i, ok, err := r.Get(ctx, key)
	if err != nil || !ok {
		r.t.Fatalf("Get(%q): %v, %v", key, ok, err)
	}
	return i
}

func (r *rig) exists(key string, want bool) {
	r.t.Helper()
	if ok, err := r.Exist(ctx, key); ok != want || err != nil {
		r.t.Errorf("Exist(%q) = %v, %v, want %v", key, ok, err, want)
	}
}

func (r *rig) times(key string, want int) {
	r.t.Helper()
	if n, err := r.GetTaskTimes(ctx, key); n != want || err != nil {
		r.t.Errorf("GetTaskTimes(%q) = %d, %v, want %d", key, n, err, want)
	}
}
