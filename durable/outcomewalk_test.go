// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// An outcomeWalk calls random verbs on a store while runs end in every possible way.
type outcomeWalk struct {
	*kit.Kit
	draw *rand.Rand
	seed uint64

	mu       sync.Mutex           // protects below
	life     int                  // crashes so far: actions of a crashed scheduler no longer count
	paused   map[string]time.Time // keys, kinds and all: when the verb returned
	removed  map[durable.Token]time.Time
	running  map[durable.Token]int
	began    map[durable.Token]time.Time
	halted   map[string]time.Time // when the key was last paused: then its run is made again
	attempts map[durable.Token]int
}

func (w *outcomeWalk) errorf(format string, args ...any) {
	w.T.Helper()
	w.T.Errorf("seed %d, %v: "+format, append([]any{w.seed, time.Since(w.Begin)}, args...)...)
}

func (w *outcomeWalk) run(life int) durable.Handler {
	return func(ctx context.Context, run durable.Run) error {
		now := time.Now()
		w.mu.Lock()
		if life == w.life {
			if w.running[run.Token]++; w.running[run.Token] > 1 && w.halted[run.Key].Before(w.began[run.Token]) {
				w.errorf("%v runs twice at once", run.Token)
			}
			w.began[run.Token] = now
			if now.Before(run.Due) {
				w.errorf("%v is due at %v", run.Token, run.Due)
			}
			for _, what := range []string{"key " + run.Key, "kind " + run.Kind, "all"} {
				if at, ok := w.paused[what]; ok && at.Before(now) {
					w.errorf("%v runs, and %s is paused since %v", run.Token, what, now.Sub(at))
				}
			}
			if at, ok := w.removed[durable.Token{Key: run.Key, Generation: run.Generation}]; ok && at.Before(now) {
				w.errorf("%v runs, and was removed %v ago", run.Token, now.Sub(at))
			}
			if run.Attempt < w.attempts[run.Token] {
				w.errorf("%v has its attempt %d after %d", run.Token, run.Attempt, w.attempts[run.Token])
			}
			w.attempts[run.Token] = run.Attempt
		}
		h := fnv.New64()
		fmt.Fprint(h, w.seed, run.Key, run.Seq, run.Attempt)
		draw := rand.New(rand.NewPCG(h.Sum64(), 1))
		what, d := draw.IntN(12), time.Duration(draw.Int64N(int64(3*sec)))
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if life == w.life {
				w.running[run.Token]--
			}
		}()
		switch what {
		case 0, 1:
			return kit.ErrFail
		case 2:
			return durable.Park(kit.ErrFail)
		case 3:
			return durable.RetryAfter(d, kit.ErrFail)
		case 4:
			run.Complete("a note")
			return nil
		case 5:
			panic("it panics")
		case 6, 7:
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		case 8:
			time.Sleep(d)
			return kit.ErrFail
		case 9:
			time.Sleep(d)
		}
		return nil
	}
}

var outcomeKinds = []string{"plain", "brief", "narrow", "fresh"}

func (w *outcomeWalk) handleAll() {
	options := map[string][]durable.KindOption{
		"plain":  {durable.WithRetry(3, sec, 10*sec)},
		"brief":  {durable.WithRetry(2, sec, sec), durable.WithTimeout(sec)},
		"narrow": {durable.WithRetry(4, sec/10, sec), durable.WithConcurrency(2), durable.WithRate(20, sec, 3)},
		"fresh":  {durable.WithMissedAge(time.Minute), durable.WithRetry(2, sec, sec)},
	}
	w.mu.Lock()
	life := w.life
	w.mu.Unlock()
	for kind, opts := range options {
		w.Must(w.Scheduler.Handle(kind, w.run(life), opts...)) // the walk has its own log
	}
}

func (w *outcomeWalk) task(key string) durable.Task {
	task := durable.Task{
		Key: key, Kind: outcomeKinds[w.draw.IntN(len(outcomeKinds))], Group: []string{"", "a", "b"}[w.draw.IntN(3)],
		Times: 1 + w.draw.IntN(4), Delay: time.Duration(w.draw.Int64N(int64(5 * sec))),
	}
	switch w.draw.IntN(4) {
	case 0:
		task.Interval = time.Duration(1 + w.draw.Int64N(int64(20*sec)))
	case 1:
		crons := []string{"* * * * *", "*/5 * * * *", "CRON_TZ=Europe/Berlin 7 * * * *"}
		task.Delay, task.Cron = 0, crons[w.draw.IntN(len(crons))]
	default:
		task.Times = 1
	}
	if task.Cron == "" && task.Delay == 0 {
		task.Delay = 1
	}
	if w.draw.IntN(3) == 0 {
		task.Jitter = time.Duration(w.draw.Int64N(int64(5 * sec)))
	}
	return task
}

func (w *outcomeWalk) may(what string, err error, or ...error) {
	w.T.Helper()
	for _, e := range or {
		if errors.Is(err, e) {
			return
		}
	}
	if err != nil {
		w.errorf("%s: %v", what, err)
	}
}

func (w *outcomeWalk) step() {
	key := fmt.Sprint("k", w.draw.IntN(40))
	missing := durable.ErrTaskKeyNotFound
	forget := func() {
		w.mu.Lock()
		delete(w.paused, "key "+key)
		w.mu.Unlock()
	}
	pause := func(what string) {
		w.mu.Lock()
		if _, ok := w.paused[what]; !ok {
			w.paused[what] = time.Now()
		}
		w.mu.Unlock()
	}
	resume := func(what string) {
		w.mu.Lock()
		delete(w.paused, what)
		w.mu.Unlock()
	}
	kind := outcomeKinds[w.draw.IntN(len(outcomeKinds))]
	gen := func() durable.Token {
		i, _, err := w.Get(ctx, key)
		w.may("Get", err)
		return durable.Token{Key: key, Generation: i.Generation}
	}
	gone := func(t durable.Token) {
		w.mu.Lock()
		w.removed[t] = time.Now()
		w.mu.Unlock()
	}
	switch w.draw.IntN(34) {
	case 0, 1, 2, 3, 4, 5:
		w.may("AddTask", w.AddTask(ctx, w.task(key)), durable.ErrDuplicateTaskKey)
	case 6, 7:
		forget()
		task := w.task(key)
		if task.Cron == "" && w.draw.IntN(2) == 0 {
			task.MaxDelay = task.Delay + time.Duration(w.draw.Int64N(int64(5*sec)))
		}
		w.may("SetTask", w.SetTask(ctx, task))
	case 8:
		t := gen()
		if err := w.RemoveTask(ctx, key); err == nil {
			gone(t)
		} else {
			w.may("RemoveTask", err, missing)
		}
		forget()
	case 9, 10:
		t := gen()
		brief, cancel := context.WithTimeout(ctx, time.Duration(w.draw.Int64N(int64(4*sec))))
		_, err := w.RemoveTaskWait(brief, key)
		cancel()
		var still *durable.RunningError
		if err == nil {
			gone(t)
			w.mu.Lock()
			for of, n := range w.running {
				if n > 0 && of.Key == key {
					w.errorf("%s runs after RemoveTaskWait", of)
				}
			}
			w.mu.Unlock()
		} else if !errors.As(err, &still) {
			w.may("RemoveTaskWait", err, missing, context.DeadlineExceeded)
		}
		forget()
	case 11, 12:
		_, err := w.Cancel(ctx, key)
		w.may("Cancel", err, missing)
	case 13, 14:
		w.may("Reschedule", w.Reschedule(ctx, key, time.Duration(w.draw.Int64N(int64(5*sec)))), missing)
	case 15, 16:
		if err := w.Pause(ctx, key); err == nil {
			pause("key " + key)
			w.mu.Lock()
			w.halted[key] = time.Now()
			w.mu.Unlock()
		} else {
			w.may("Pause", err, missing)
		}
	case 17, 18:
		resume("key " + key)
		w.may("Resume", w.Resume(ctx, key), missing)
	case 19:
		w.may("PauseKind", w.PauseKind(ctx, kind))
		pause("kind " + kind)
	case 20:
		resume("kind " + kind)
		w.may("ResumeKind", w.ResumeKind(ctx, kind))
	case 21:
		w.may("PauseAll", w.PauseAll(ctx))
		pause("all")
	case 22, 23:
		resume("all")
		w.may("ResumeAll", w.ResumeAll(ctx))
	case 24:
		_, err := w.Bulk(ctx, durable.Query{State: durable.Parked}, durable.DoRunNow)
		w.may("Bulk", err)
	case 25:
		_, err := w.Bulk(ctx, durable.Query{State: durable.Parked, Prefix: "k1"}, durable.DoRemove)
		w.may("Bulk", err)
	case 26:
		w.mu.Lock()
		for what := range w.paused {
			if strings.HasPrefix(what, "key ") {
				delete(w.paused, what)
			}
		}
		w.mu.Unlock()
		_, err := w.Bulk(ctx, durable.Query{State: durable.Paused}, durable.DoResume)
		w.may("Bulk", err)
	case 27:
		_, err := w.ReschedulePrefix(ctx, "k2", time.Duration(w.draw.Int64N(int64(5*sec))))
		w.may("ReschedulePrefix", err)
	case 28:
		if w.draw.IntN(4) == 0 {
			w.mu.Lock()
			w.life++
			clear(w.running)
			clear(w.attempts) // an unacknowledged attempt is made again
			w.mu.Unlock()
			w.Crash()
			time.Sleep(time.Millisecond) // so that no generation is reused
			w.handleAll()
			w.Start()
		}
	default:
		time.Sleep(time.Duration(w.draw.Int64N(int64(8 * sec))))
	}
}

// agrees compares the counters with the store.
func (w *outcomeWalk) agrees() []durable.Info {
	w.T.Helper()
	all := countsAgree(w.Kit)
	w.mu.Lock()
	defer w.mu.Unlock()
	running := 0
	for _, n := range w.running {
		running += n
	}
	if s := w.Stats(); s.Running != running {
		w.errorf("%d run, and the accounts are %+v", running, s)
	}
	return all
}

// Random verbs and crashes on a store, while runs succeed, fail, park their task, ask for a later attempt, panic, take
// too long and are cancelled. No run starts early or twice, while it is paused or after its removal. All counters agree
// with the store, and when the verbs cease every due task runs.
func TestOutcomes_randomWalk_agreesWithTheEngine(t *testing.T) {
	testkit.NotForRaces(t)
	walks(t, 50, 50, 50, func(t *testing.T, seed uint64) {
		kit.OnOwn(t, func(t *testing.T, r *kit.Kit) {
			w := &outcomeWalk{
				Kit: r, draw: rand.New(rand.NewPCG(seed, 3)), seed: seed, paused: map[string]time.Time{},
				removed: map[durable.Token]time.Time{}, running: map[durable.Token]int{}, attempts: map[durable.Token]int{},
				began: map[durable.Token]time.Time{}, halted: map[string]time.Time{},
			}
			w.handleAll()
			for range 400 {
				w.step()
				if w.draw.IntN(4) == 0 {
					w.agrees()
				}
			}
			w.mu.Lock()
			clear(w.paused)
			w.mu.Unlock()
			w.may("", w.ResumeAll(ctx))
			for _, k := range outcomeKinds {
				w.may("", w.ResumeKind(ctx, k))
			}
			_, err := w.Bulk(ctx, durable.Query{State: durable.Paused}, durable.DoResume)
			w.may("", err)
			r.After(2 * time.Minute)
			for _, i := range w.agrees() {
				over := time.Since(i.Next)
				if over > 15*sec && i.State != durable.Parked && i.State != durable.Running {
					w.errorf("%+v is overdue by %v", i, over)
				}
			}
			if s := w.Stats(); s.Unhandled != 0 {
				w.errorf("%+v", s)
			}
			if behind, err := w.CatchUp(ctx); err != nil || behind.Left != 0 {
				w.errorf("%+v, %v", behind, err)
			}
		}, durable.WithPoolSize(3+int(seed%3)*10))
	})
}
