// SPDX-License-Identifier: MIT

package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// leftBehind returns records of these tasks: parked; being retried; repeating, with missed periods; on a calendar, with
// jitter, a group and a note; in a burst; paused; due in an hour.
func leftBehind(t *testing.T) (all []engine.Record) {
	k := &kit.Kit{T: t, KV: memory.New(), Begin: time.Now()}
	k.Open(k.KV, "fail")
	fails := func(context.Context, durable.Run) error { return kit.ErrFail }
	k.Handle("fail", fails, durable.WithRetry(2, time.Second, time.Second))
	k.Handle("done", completing("a note"))
	k.Start()
	k.Must(k.SetTask(ctx, durable.Task{Key: "burst", Kind: "done", Delay: 50 * hour, MaxDelay: 51 * hour}))
	k.Add(durable.Task{Key: "noted", Kind: "done", Cron: "@daily", Jitter: hour, Times: 3, Group: "g"})
	k.Must(k.Reschedule(ctx, "noted", tick))
	k.Add(durable.Task{Key: "parked", Kind: "fail", Payload: []byte("p"), Delay: tick},
		durable.Task{Key: "later", Kind: "note", Delay: hour},
		durable.Task{Key: "missed", Kind: "note", Interval: time.Minute, Times: 7, At: k.Begin.Add(-90 * sec)},
		durable.Task{Key: "calendar", Kind: "note", Cron: "CRON_TZ=Europe/Berlin 0 3 * * *", Times: durable.Forever},
		durable.Task{Key: "paused", Kind: "note", Delay: hour})
	k.Must(k.Pause(ctx, "paused"))
	k.After(5 * sec)
	k.Add(durable.Task{Key: "retried", Kind: "fail", Delay: tick})
	k.After(3 * tick)
	if i := k.Info("retried"); i.Attempts != 1 || k.Info("parked").State != durable.Parked || k.Info("missed").Missed == 0 ||
		k.Info("noted").Note == "" {
		t.Fatalf("the tasks are not as they should be: %+v", i)
	}
	left := k.KV.Clone()
	k.End()
	for _, one := range stored(t, left) {
		all = append(all, one.Record)
	}
	return all
}

func TestRestore_tasks_areAsTheyWere(t *testing.T) {
	onEach(t, func(t *testing.T, k *kit.Kit) {
		records := leftBehind(t)
		k.Must(k.Restore(ctx, records...))
		for _, r := range records {
			want, err := durable.InfoOf(r)
			if err != nil {
				t.Fatal(err)
			}
			got, ok, err := k.Get(ctx, r.Key)
			if err != nil || !ok || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s is\n%+v, %v, and was\n%+v", r.Key, got, err, want)
			}
		}
		if st := k.Stats(); st.Pending != len(records) || st.Parked != 1 || st.Added != uint64(len(records)) {
			t.Errorf("the accounts are %+v", st)
		}
		// Nothing has run, and the restored tasks can be operated.
		k.After(2 * hour)
		if st := k.Stats(); st.Started != 0 || st.Pending != len(records) {
			t.Errorf("the accounts are %+v", st)
		}
		if err := errors.Join(k.Reschedule(ctx, "parked", hour), k.RemoveTask(ctx, "later")); err != nil {
			t.Error(err)
		}
		// The burst keeps its length, and the calendar its jitter.
		k.Handle("done", sleeper(0))
		at := slices.IndexFunc(records, func(r engine.Record) bool { return r.Key == "burst" })
		latest := time.Unix(0, records[at].Due).Add(hour)
		err := k.SetTask(ctx, durable.Task{Key: "burst", Kind: "done", Delay: 50 * hour, MaxDelay: 51 * hour})
		if i, _, err2 := k.Get(ctx, "burst"); err != nil || err2 != nil || !i.Next.Equal(latest) {
			t.Errorf("the burst is due at %v, %v, %v, want %v", i.Next, err, err2, latest)
		}
		// With handlers, every task runs as it would have run before.
		ran := make(chan durable.Run, 100)
		note := func(_ context.Context, run durable.Run) error { ran <- run; return nil }
		k.Handle("fail", note)
		k.Handle("note", note)
		k.Start()
		k.After(sec)
		for range 2 {
			run := <-ran
			at = slices.IndexFunc(records, func(r engine.Record) bool { return r.Key == run.Key })
			was, err := durable.InfoOf(records[at])
			if err != nil || run.Token != (was.Token) ||
				run.Attempt != was.Attempts+1 {
				t.Errorf("%+v runs, and was %+v, %v", run, was, err)
			}
		}
	})
}

func TestRestore_whatCannotBe_isRefusedWhole(t *testing.T) {
	onEach(t, func(t *testing.T, k *kit.Kit) {
		records := leftBehind(t)
		good := records[0]
		changed := func(f func(r *engine.Record)) engine.Record {
			r := good
			r.Data = bytes.Clone(r.Data)
			f(&r)
			return r
		}
		for name, c := range map[string]struct {
			with engine.Record
			want error
		}{
			"cut off":         {changed(func(r *engine.Record) { r.Data = r.Data[:3] }), durable.ErrCorrupt},
			"another version": {changed(func(r *engine.Record) { r.Data[0] = 99 }), durable.ErrVersion},
			"no key":          {changed(func(r *engine.Record) { r.Key = "" }), durable.ErrInvalidTask},
			"before 1970":     {changed(func(r *engine.Record) { r.Key, r.Due = "x", -1 }), durable.ErrInvalidTask},
			"too large": {changed(func(r *engine.Record) {
				r.Key, r.Data = "x", append(r.Data, make([]byte, durable.MaxPayload+1)...)
			}), durable.ErrInvalidTask},
			"twice": {good, durable.ErrDuplicateTaskKey},
		} {
			if err := k.Restore(ctx, append(records[:len(records):len(records)], c.with)...); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if k.Len() != 0 {
				t.Fatalf("%s: %d tasks are restored", name, k.Len())
			}
		}
		k.Must(k.Restore(ctx), k.Restore(ctx, good))
		var taken *durable.DuplicateKeysError
		if err := k.Restore(ctx, records...); !errors.As(err, &taken) || !slices.Equal(taken.Keys, []string{good.Key}) {
			t.Errorf("a key that is taken: %v", err)
		}
		if k.Len() != 1 {
			t.Errorf("%d tasks are there", k.Len())
		}
	})
}

func TestBackup_whereThereIsNone_saysSo(t *testing.T) {
	onEach(t, func(t *testing.T, k *kit.Kit) {
		if err := k.Backup(ctx, io.Discard); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("it returns %v", err)
		}
		k.Must(k.Shutdown(ctx))
		if err := k.Backup(ctx, io.Discard); !errors.Is(err, durable.ErrStopped) {
			t.Errorf("after Shutdown it returns %v", err)
		}
	})
}

// A backuper is an exclusive KV whose backup writes until it is refused.
type backuper struct {
	*memory.KV
	began chan bool
}

func (backuper) Exclusive() {}

func (b backuper) Backup(_ context.Context, w io.Writer) error {
	close(b.began)
	for {
		if _, err := w.Write([]byte("x")); err != nil {
			return err
		}
		time.Sleep(time.Second) // of the bubble
	}
}

func TestBackup_shutdownOrContext_endsIt(t *testing.T) {
	for name, want := range map[string]error{"shutdown": durable.ErrStopped, "context": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			kit.In(t, func(t *testing.T, k *kit.Kit) {
				store := backuper{memory.New(), make(chan bool)}
				s := k.Use(durable.New(ctx, kit.Own(store), durable.WithLogger(testkit.Quiet()))).Scheduler
				until, cancel := context.WithCancel(ctx)
				defer cancel()
				ended := make(chan error)
				go func() { ended <- s.Backup(until, io.Discard) }()
				<-store.began
				if name == "context" {
					cancel()
				} else {
					go func() { _ = s.Shutdown(ctx) }()
				}
				if err := <-ended; !errors.Is(err, want) {
					t.Errorf("it returns %v", err)
				}
			})
		})
	}
}

// The caller of Restore may reuse its bytes.
func TestRestore_keepsNothingOfTheCaller(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		rec := recordOf(durable.Task{Key: "a", Kind: "note", Payload: []byte("payload"), At: k.Begin.Add(sec)})
		k.Must(k.Restore(ctx, rec))
		clear(rec.Data)
		if calls := k.RunsAfter(2 * sec); len(calls) != 1 || string(calls[0].Payload) != "payload" {
			t.Errorf("%v", calls)
		}
	})
}

// Restore refuses more than MaxBatch bytes at once, and then restores nothing.
func TestRestore_tooMuchAtOnce_isRefused(t *testing.T) {
	kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
		rec := recordOf(durable.Task{Key: "k", Kind: "note", Payload: make([]byte, durable.MaxPayload), Delay: hour})
		recs := make([]engine.Record, durable.MaxBatch/durable.MaxPayload)
		for i := range recs {
			rec.Key = fmt.Sprint(i)
			recs[i] = rec
		}
		if err := k.Restore(ctx, recs...); !errors.Is(err, durable.ErrInvalidTask) || k.Len() != 0 {
			t.Errorf("%v, and there are %d tasks", err, k.Len())
		}
		k.Must(k.Restore(ctx, recs[1:]...))
	})
}
