// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/sirupsen/logrus"
)

func newStore() *memstore.Store { return memstore.New() }

// A failing store fails while its flags are set: with errDisk, or with errDamage if damaged is also set.
type failing struct {
	*memstore.Store
	commit, get, due, keys, damaged atomic.Bool
}

var (
	errDisk   = errors.New("the disk is on fire")
	errDamage = fmt.Errorf("%w: table 7", durable.ErrCorrupt)
)

func (f *failing) err() error {
	if f.damaged.Load() {
		return errDamage
	}
	return errDisk
}

func (f *failing) Commit(changes []engine.Change) error {
	if f.commit.Load() {
		return errDisk
	}
	return f.Store.Commit(changes)
}

func (f *failing) Get(key string) (engine.Record, bool, error) {
	if f.get.Load() {
		return engine.Record{}, false, f.err()
	}
	return f.Store.Get(key)
}

func (f *failing) Due(after engine.Position, until int64) iter.Seq2[engine.Record, error] {
	if f.due.Load() {
		return func(yield func(engine.Record, error) bool) { yield(engine.Record{}, f.err()) }
	}
	return f.Store.Due(after, until)
}

func (f *failing) Keys() iter.Seq2[string, error] {
	if f.keys.Load() {
		return func(yield func(string, error) bool) { yield("", f.err()) }
	}
	return f.Store.Keys()
}

// withFailing runs the test on a started scheduler with a store that can be made to fail.
func withFailing(t *testing.T, test func(t *testing.T, k *kit.Kit, f *failing)) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		f := &failing{Store: k.Store}
		k.Open(f).Start()
		test(t, k, f)
		broken := k.Err()
		if err := k.Shutdown(ctx); !errors.Is(err, broken) {
			t.Errorf("shutdown: %v, Err was %v", err, broken)
		}
		k.Kill()
	})
}

func TestStoreFails_onCommit_nothingChangesOrRunsAnyMoreAndReadsGoOn(t *testing.T) {
	withFailing(t, func(t *testing.T, k *kit.Kit, f *failing) {
		near := durable.Task{Key: "near", Kind: "note", Delay: sec}
		far := durable.Task{Key: "far", Kind: "note", Delay: hour}
		k.Add(near, far)
		f.commit.Store(true)
		task := durable.Task{Key: "new", Kind: "note", Delay: tick}
		for range 2 {
			for verb, err := range map[string]error{
				"AddTask": k.AddTask(ctx, task), "SetTask": k.SetTask(ctx, far),
				"RemoveTask": k.RemoveTask(ctx, "near"), "Reschedule": k.Reschedule(ctx, "far", sec), "Err": k.Err(),
			} {
				if !errors.Is(err, durable.ErrBroken) || !errors.Is(err, errDisk) {
					t.Errorf("%s: %v", verb, err)
				}
			}
			f.commit.Store(false) // it is too late
		}
		k.After(2 * hour)
		k.RanNothing()
		for key, want := range map[string]bool{"near": true, "far": true, "new": false} {
			if ok, err := k.Exist(ctx, key); ok != want || err != nil {
				t.Errorf("Exist(%q) = %v, %v", key, ok, err)
			}
		}
		if st := k.Stats(); st.Added != 2 || st.Removed != 0 || st.Pending != 2 {
			t.Errorf("the accounts are %+v", st)
		}
	})
}

// While very many due tasks wait for a worker, further ones are not read into memory: they run later.
func TestFeed_whileVeryManyWait_readsNoMore(t *testing.T) {
	testkit.NotForRaces(t)
	const waiting, more = 1<<16 + 1000, 1000
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		store := &counting{Store: newStore()}
		s := k.Use(durable.New(store, durable.WithLogger(testkit.Quiet()), durable.WithPoolSize(1), durable.WithLookAhead(sec))).Scheduler
		var ran atomic.Int32
		end := make(chan struct{})
		k.Must(s.Start(), s.Handle("k", func(context.Context, durable.Run) error { <-end; ran.Add(1); return nil }))
		for i := range waiting + more {
			task := durable.Task{Key: fmt.Sprint(i), Kind: "k", Delay: sec / 2}
			if i >= waiting {
				task.Delay = 5 * sec
			}
			k.Must(s.AddTask(ctx, task))
		}
		k.After(10 * sec)
		if n := store.records.Load(); n > 0 {
			t.Errorf("%d tasks were read", n)
		}
		close(end)
		k.After(time.Minute)
		if n := ran.Load(); n != waiting+more {
			t.Errorf("%d tasks have run", n)
		}
	})
}

// A store that fails in the middle of a large backlog ends it, even if no further start has to be made durable.
func TestStoreFails_inALargeBacklog_nothingRunsAnyMore(t *testing.T) {
	const tasks, before = 12_000, 9000
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		f := &failing{Store: newStore()}
		s := k.Use(durable.New(f, durable.WithLogger(testkit.Quiet()), durable.WithPoolSize(1), durable.WithCatchUp(100_000))).Scheduler
		var ran atomic.Int32
		all := make([]durable.Task, tasks)
		for i := range all {
			all[i] = durable.Task{Key: fmt.Sprint(i), Kind: "k"}
		}
		k.Must(s.Handle("k", func(context.Context, durable.Run) error {
			f.commit.Store(ran.Add(1) >= before)
			time.Sleep(time.Millisecond)
			return nil
		}), s.AddTask(ctx, all...))
		k.After(sec)
		k.Must(s.Start())
		k.After(time.Minute)
		if n := ran.Load(); n < before || n > before+2 || !errors.Is(k.Err(), errDisk) {
			t.Errorf("%d runs, and Err is %v", n, k.Err())
		}
		k.Kill()
	})
}

func TestStoreFails_onAcknowledgement_saysSo(t *testing.T) {
	withFailing(t, func(t *testing.T, k *kit.Kit, f *failing) {
		k.Add(durable.Task{Key: "a", Kind: "note", Delay: sec})
		f.commit.Store(true)
		k.After(2 * sec)
		k.Ran("a")
		if !errors.Is(k.Err(), errDisk) {
			t.Errorf("Err is %v", k.Err())
		}
		if ok, err := k.Exist(ctx, "a"); !ok || err != nil {
			t.Errorf("the task whose run was not acknowledged: %v, %v", ok, err)
		}
	})
}

func TestStoreFails_onRead_theVerbSaysSoAndNothingElse(t *testing.T) {
	withFailing(t, func(t *testing.T, k *kit.Kit, f *failing) {
		k.Add(durable.Task{Key: "far", Kind: "note", Delay: hour})
		f.get.Store(true)
		_, _, get := k.Get(ctx, "far")
		task := durable.Task{Key: "far", Kind: "note", Delay: sec}
		for verb, err := range map[string]error{
			"Get": get, "RemoveTask": k.RemoveTask(ctx, "far"), "Reschedule": k.Reschedule(ctx, "far", sec),
			"AddTask": k.AddTask(ctx, task), "SetTask": k.SetTask(ctx, task),
		} {
			if !errors.Is(err, errDisk) || errors.Is(err, durable.ErrBroken) {
				t.Errorf("%s: %v", verb, err)
			}
		}
		f.get.Store(false)
		f.due.Store(true)
		for _, err := range k.All(ctx) {
			if !errors.Is(err, errDisk) {
				t.Errorf("All: %v", err)
			}
		}
		f.due.Store(false)
		if err := k.Reschedule(ctx, "far", sec); err != nil || k.Err() != nil {
			t.Errorf("Reschedule: %v, Err: %v", err, k.Err())
		}
		k.After(2 * sec)
		k.Ran("far")
	})
}

// A scheduler that cannot read due tasks must not behave as if nothing were due.
func TestStoreFails_onReadingWhatIsDue_saysSo(t *testing.T) {
	withFailing(t, func(t *testing.T, k *kit.Kit, f *failing) {
		f.due.Store(true)
		k.After(2 * time.Minute)
		if !errors.Is(k.Err(), errDisk) {
			t.Errorf("Err is %v", k.Err())
		}
	})
}

// A store checks itself with the walk over the keys, whether or not there are fingerprints of them.
func TestStoreFails_onReadingTheKeys_saysSo(t *testing.T) {
	for name, opts := range map[string][]durable.Option{"fingerprints": nil, "none": {durable.WithoutKeyFilter()}} {
		t.Run(name, func(t *testing.T) {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				f := &failing{Store: newStore()}
				f.keys.Store(true)
				s := k.Use(durable.New(f, append(opts, durable.WithLogger(testkit.Quiet()))...)).Scheduler
				synctest.Wait()
				if !errors.Is(s.Err(), errDisk) {
					t.Errorf("Err is %v", s.Err())
				}
				if err := s.Shutdown(ctx); !errors.Is(err, errDisk) {
					t.Errorf("shutdown: %v", err)
				}
				k.Kill()
			})
		})
	}
}

// Any read that meets damage fails the scheduler.
func TestStoreFails_corruptRead_failsTheScheduler(t *testing.T) {
	for name, read := range map[string]func(k *kit.Kit, f *failing) error{
		"Get": func(k *kit.Kit, f *failing) error {
			f.get.Store(true)
			_, _, err := k.Get(ctx, "far")
			return err
		},
		"All": func(k *kit.Kit, f *failing) (last error) {
			f.due.Store(true)
			for _, err := range k.All(ctx) {
				last = err
			}
			return last
		},
		"RemoveTask": func(k *kit.Kit, f *failing) error {
			f.get.Store(true)
			return k.RemoveTask(ctx, "far")
		},
		"the keeper": func(k *kit.Kit, f *failing) error {
			f.due.Store(true)
			k.After(2 * time.Minute)
			return k.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFailing(t, func(t *testing.T, k *kit.Kit, f *failing) {
				k.Add(durable.Task{Key: "far", Kind: "note", Delay: hour})
				f.damaged.Store(true)
				for what, err := range map[string]error{"the read": read(k, f), "Err": k.Err()} {
					if !errors.Is(err, durable.ErrCorrupt) || !errors.Is(err, durable.ErrBroken) {
						t.Errorf("%s: %v", what, err)
					}
				}
				k.After(2 * hour)
				k.RanNothing()
			})
		})
	}
}

// A reporting store reports its failure when failed is closed. While hangs is set, Commit hangs.
type reporting struct {
	*memstore.Store
	failed chan struct{}
	hangs  atomic.Bool
}

func (r *reporting) Failed() <-chan struct{} { return r.failed }
func (r *reporting) Err() error              { return errDamage }

func (r *reporting) Commit(changes []engine.Change) error {
	if r.hangs.Load() {
		time.Sleep(24 * hour)
	}
	return r.Store.Commit(changes)
}

func TestStoreFails_inTheBackground_isReportedAtOnce(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		store := &reporting{Store: newStore(), failed: make(chan struct{})}
		s := k.Use(durable.New(store, durable.WithLogger(testkit.Quiet()))).Scheduler
		var ran atomic.Int32
		k.Must(s.Handle("k", func(context.Context, durable.Run) error { ran.Add(1); return nil }))
		k.Must(s.Start(), s.AddTask(ctx, durable.Task{Key: "near", Kind: "k", Delay: sec}))
		store.hangs.Store(true)
		waiting := make(chan error)
		for i := range 2 { // one is being committed, one waits behind it
			task := durable.Task{Key: fmt.Sprint("new", i), Kind: "k", Delay: sec}
			go func() { waiting <- s.AddTask(ctx, task) }()
		}
		synctest.Wait()
		failedAt := time.Now()
		close(store.failed)
		for _, err := range []error{<-waiting, <-waiting, s.Err(), s.AddTask(ctx, durable.Task{Key: "k", Kind: "k", Delay: 1})} {
			if !errors.Is(err, durable.ErrBroken) || !errors.Is(err, durable.ErrCorrupt) {
				t.Errorf("the error is %v", err)
			}
		}
		k.After(2 * sec)
		if n := ran.Load(); n != 0 {
			t.Errorf("%d runs", n)
		}
		if err := s.Shutdown(ctx); !errors.Is(err, durable.ErrCorrupt) {
			t.Errorf("shutdown: %v", err)
		}
		if d := time.Since(failedAt); d > 8*sec {
			t.Errorf("the scheduler was down after %v", d)
		}
		k.Kill()
		k.After(25 * hour) // until the commit returns
	})
}

// A store that can report failures, and has none, leaves no goroutine behind: otherwise the bubble would not end.
func TestStoreFails_notInTheBackground_watchEnds(t *testing.T) {
	kit.In(t, func(t *testing.T, k *kit.Kit) {
		store := &reporting{Store: newStore(), failed: make(chan struct{})}
		k.Use(durable.New(store, durable.WithLogger(testkit.Quiet())))
	})
}

// A callingHook is called for each line of the log.
type callingHook func(*logrus.Entry)

func (callingHook) Levels() []logrus.Level       { return logrus.AllLevels }
func (h callingHook) Fire(e *logrus.Entry) error { h(e); return nil }

// The keeper does not call the logger: a logger that calls the scheduler, blocks, panics or ends its goroutine holds up
// nothing.
func TestLogger_doesAsItLikes_holdsUpNothing(t *testing.T) {
	log := testkit.Quiet()
	log.SetLevel(logrus.DebugLevel)
	var k *kit.Kit
	var parked, added atomic.Int32
	log.AddHook(callingHook(func(e *logrus.Entry) {
		n := int32(0)
		if strings.Contains(e.Message, "parked") {
			n = parked.Add(1)
		}
		if err := k.AddTask(ctx, durable.Task{Key: fmt.Sprint(e.Message, n), Kind: "note", Delay: hour}); err == nil {
			added.Add(1)
		}
		switch n {
		case 1:
			time.Sleep(10 * sec)
		case 2:
			panic("at the disco")
		case 3:
			runtime.Goexit()
		}
	}))
	kit.OnStore(t, func(t *testing.T, rig *kit.Kit) {
		k = rig
		k.Handle("once", func(context.Context, durable.Run) error { return kit.ErrFail }, durable.WithRetry(1, sec, sec))
		for i := range 20 {
			k.Add(durable.Task{Key: fmt.Sprint(i), Kind: "once", Delay: time.Duration(i+1) * sec})
		}
		rig.After(25 * sec)
		if s := k.Stats(); s.ParkedTotal != 20 {
			t.Errorf("the accounts are %+v", s)
		}
		// The first notice takes ten seconds. The events of that time make one more notice, and so do the events of the
		// next ten.
		if n, a := parked.Load(), added.Load(); n != 3 || a < n {
			t.Errorf("%d notices, and %d tasks that the hook added", n, a)
		}
	}, durable.WithLogger(log))
}

func TestStore_corruptRecord_isReportedWithWhatWasRead(t *testing.T) {
	for name, data := range map[string]string{
		"empty": "", "short": "\x01\x05", "other version": "\x63\x05\x00\x02", "no sense": "\x01\x01\x00\x02\x00\x00\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			withFailing(t, func(t *testing.T, k *kit.Kit, f *failing) {
				c := engine.Change{Key: "bad", From: engine.None, Due: time.Now().Add(hour).UnixNano(), Data: []byte(data)}
				if err := f.Commit([]engine.Change{c}); err != nil {
					t.Fatal(err)
				}
				want := durable.ErrCorrupt
				if name == "other version" {
					want = durable.ErrVersion
				}
				_, _, err := k.Get(ctx, "bad")
				if !errors.Is(err, want) || !strings.Contains(err.Error(), "bad") {
					t.Errorf("Get: %v", err)
				}
				k.After(2 * hour)
				if !errors.Is(k.Err(), want) {
					t.Errorf("Err is %v", k.Err())
				}
			})
		})
	}
}

func TestInput_bad_isRefusedAndChangesNothing(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	good := durable.Task{Key: "k", Kind: "note", Interval: sec}
	with := func(change func(t *durable.Task)) durable.Task {
		t := good
		change(&t)
		return t
	}
	inBubble(t, func(t *testing.T, k *kit.Kit) {
		for name, c := range map[string]struct {
			task durable.Task
			want error
		}{
			"no key":                {with(func(t *durable.Task) { t.Key = "" }), durable.ErrInvalidTask},
			"long key":              {with(func(t *durable.Task) { t.Key = long(durable.MaxKey + 1) }), durable.ErrInvalidTask},
			"no kind":               {with(func(t *durable.Task) { t.Kind = "" }), durable.ErrInvalidTask},
			"long kind":             {with(func(t *durable.Task) { t.Kind = long(durable.MaxKind + 1) }), durable.ErrInvalidTask},
			"unknown kind":          {with(func(t *durable.Task) { t.Kind = "other" }), durable.ErrUnknownKind},
			"large payload":         {with(func(t *durable.Task) { t.Payload = make([]byte, durable.MaxPayload+1) }), durable.ErrInvalidTask},
			"long group":            {with(func(t *durable.Task) { t.Group = long(durable.MaxGroup + 1) }), durable.ErrInvalidTask},
			"negative interval":     {with(func(t *durable.Task) { t.Interval = -1 }), durable.ErrInvalidTask},
			"negative delay":        {with(func(t *durable.Task) { t.Delay = -1 }), durable.ErrInvalidTask},
			"negative times":        {with(func(t *durable.Task) { t.Times = -2 }), durable.ErrInvalidTask},
			"delay and at":          {with(func(t *durable.Task) { t.Delay, t.At = 1, time.Now() }), durable.ErrInvalidTask},
			"twice and no interval": {with(func(t *durable.Task) { t.Interval, t.Delay, t.Times = 0, 1, 2 }), durable.ErrInvalidTask},
			"forever, no interval":  {with(func(t *durable.Task) { t.Interval, t.Delay, t.Times = 0, 1, -1 }), durable.ErrInvalidTask},
			"at in the year 1969":   {with(func(t *durable.Task) { t.At = time.Unix(-1, 0) }), durable.ErrInvalidTask},
			"at in the year 2300":   {with(func(t *durable.Task) { t.At = time.Unix(10413792000, 0) }), durable.ErrInvalidTask},
		} {
			for verb, err := range map[string]error{"AddTask": k.AddTask(ctx, c.task), "SetTask": k.SetTask(ctx, c.task)} {
				if !errors.Is(err, c.want) {
					t.Errorf("%s, %s: %v", name, verb, err)
				}
			}
		}
		if n := k.Len(); n != 0 {
			t.Errorf("%d tasks were added", n)
		}
		many := make([]durable.Task, 65)
		for i := range many {
			many[i] = with(func(t *durable.Task) { t.Key, t.Payload = strings.Repeat("k", i+1), make([]byte, durable.MaxPayload) })
		}
		if err := k.AddTask(ctx, many...); !errors.Is(err, durable.ErrInvalidTask) {
			t.Errorf("more than MaxBatch at once: %v", err)
		}
		if n := k.Len(); n != 0 {
			t.Errorf("%d tasks were added", n)
		}
		// The maximum size.
		k.Add(durable.Task{Key: long(durable.MaxKey), Kind: "note", Delay: hour, Payload: make([]byte, durable.MaxPayload)},
			durable.Task{Key: "end of time", Kind: "note", Delay: math.MaxInt64, Interval: math.MaxInt64, Times: 2})
		if calls := k.RunsAfter(2 * hour); len(calls) != 1 || len(calls[0].Payload) != durable.MaxPayload {
			t.Errorf("these ran: %d", len(calls))
		}
	})
}

func TestOptions_bad_areRefused(t *testing.T) {
	for name, o := range map[string]durable.Option{
		"nil": nil, "tick": durable.WithTick(0), "window": durable.WithLookAhead(-1), "pool": durable.WithPoolSize(0),
		"catch-up": durable.WithCatchUp(0), "logger": durable.WithLogger(nil),
	} {
		if _, err := durable.New(newStore(), o); err == nil {
			t.Errorf("%s: no error from New", name)
		}
	}
	if _, err := durable.New(nil); err == nil {
		t.Error("no error for a nil store")
	}
	inBubble(t, func(t *testing.T, k *kit.Kit) {
		h := func(context.Context, durable.Run) error { return nil }
		for name, err := range map[string]error{
			"no name":    k.Scheduler.Handle("", h),
			"long name":  k.Scheduler.Handle(strings.Repeat("x", durable.MaxKind+1), h),
			"no handler": k.Scheduler.Handle("x", nil),
			"nil option": k.Scheduler.Handle("x", h, nil),
			"attempts":   k.Scheduler.Handle("x", h, durable.WithRetry(0, sec, sec)),
			"least":      k.Scheduler.Handle("x", h, durable.WithRetry(1, 0, sec)),
			"most":       k.Scheduler.Handle("x", h, durable.WithRetry(1, sec, sec-1)),
			"policy":     k.Scheduler.Handle("x", h, durable.WithMissed(3)),
			"again":      k.Scheduler.Handle("note", h),
		} {
			if err == nil {
				t.Errorf("%s: no error from Handle", name)
			}
		}
	})
}

// The error for a time that no task can have names it and the allowed range.
func TestInput_timeOutOfRange_namesTheBounds(t *testing.T) {
	kit.OnStore(t, func(t *testing.T, k *kit.Kit) {
		for at, want := range map[time.Time]string{
			time.Date(2262, 5, 1, 0, 0, 0, 0, time.FixedZone("", 3600)): "2262-04-30T23:00:00Z",
			time.Unix(-1, 0): "1969-12-31T23:59:59Z",
		} {
			err := k.AddTask(ctx, durable.Task{Key: "k", Kind: "note", At: at})
			want = "durable: invalid task: at " + want + ` of "k" is not between 1970-01-01T00:00:00Z and 2262-04-11T23:47:16Z`
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}
