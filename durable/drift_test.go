// SPDX-License-Identifier: MIT

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/kit"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

const (
	driftSeeds = 60
	driftSteps = 120
	driftKeys  = 40
)

// Random verbs of all sorts, alone and concurrently, while runs end in every way, kinds are paused or handled late, and
// the process crashes. After each step all counters agree with the engine, and at the end with an empty one.
func TestAccounts_randomWalk_agreeWithTheEngine(t *testing.T) {
	testkit.NotForRaces(t)
	walks(t, driftSeeds, driftSeeds/3, driftSeeds/3, func(t *testing.T, seed uint64) {
		kit.OnOwn(t, func(t *testing.T, k *kit.Kit) {
			w := &driftWalk{Kit: k, seed: seed, draw: rand.New(rand.NewPCG(seed, 1)), runs: rand.New(rand.NewPCG(seed, 2))}
			w.walk()
		}, durable.WithPoolSize(1+int(seed%5)), durable.WithCatchUp([]int{10_000, 20, 1}[seed%3]))
	})
}

type driftWalk struct {
	*kit.Kit
	mu      sync.Mutex
	seed    uint64
	step    int
	draw    *rand.Rand
	runs    *rand.Rand // draws the behaviour of runs, under the mutex
	late    []string   // kinds without a handler
	removed []engine.Record
}

var driftKinds = map[string][]durable.KindOption{
	"plain":   nil,
	"limited": {durable.WithConcurrency(1), durable.WithTimeout(500 * time.Millisecond)},
	"rate":    {durable.WithRate(2, sec, 3), durable.WithMissed(durable.MissedSkip)},
	"age":     {durable.WithMissedAge(10 * sec), durable.WithMissed(durable.MissedAll)},
	"second":  {durable.WithPayloadVersion(2, func([]byte, int) ([]byte, error) { return nil, kit.ErrFail })},
	"late":    {durable.WithConcurrency(1)},
	"skipped": {durable.WithMissed(durable.MissedSkip)},
}

var driftNames = []string{"plain", "limited", "rate", "age", "second", "late", "skipped"}

func (w *driftWalk) ms(most int) time.Duration {
	return time.Duration(w.draw.IntN(most)) * time.Millisecond
}

func (w *driftWalk) key() string  { return fmt.Sprint("k", w.draw.IntN(driftKeys)) }
func (w *driftWalk) kind() string { return driftNames[w.draw.IntN(len(driftNames))] }

func (w *driftWalk) handle(kind string) {
	options := append([]durable.KindOption{durable.WithRetry(3, 100*time.Millisecond, sec)}, driftKinds[kind]...)
	w.Handle(kind, w.run, options...)
}

// begin registers handlers for the kinds that are not late.
func (w *driftWalk) begin() {
	for _, kind := range driftNames[:5] {
		w.handle(kind)
	}
	w.late = []string{"late", "skipped"}
}

func (w *driftWalk) run(ctx context.Context, run durable.Run) error {
	w.mu.Lock()
	took, how, end := time.Duration(w.runs.IntN(1000))*time.Millisecond, w.runs.IntN(4), w.runs.IntN(16)
	w.mu.Unlock()
	switch how {
	case 0:
		time.Sleep(took)
	case 1:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(took):
		}
	}
	switch end {
	case 0:
		return kit.ErrFail
	case 1:
		return durable.Park(kit.ErrFail)
	case 2:
		return durable.RetryAfter(3*took, kit.ErrFail)
	case 3:
		run.Complete("done before")
	case 4:
		panic("of a handler")
	case 5:
		runtime.Goexit()
	}
	return nil
}

func (w *driftWalk) task() durable.Task {
	task := durable.Task{Key: w.key(), Kind: w.kind(), Payload: make([]byte, w.draw.IntN(3))}
	task.Group = fmt.Sprint(w.draw.IntN(3))
	d := time.Millisecond + w.ms(5000)
	if w.draw.IntN(10) == 0 {
		d *= 60
	}
	switch w.draw.IntN(5) {
	case 0:
		task.Delay, task.MaxDelay = d, d+w.ms(3000)
	case 1:
		task.At, task.Interval, task.Times = time.Now().Add(d-3*sec), sec, 1+w.draw.IntN(5)
	case 2:
		task.Cron, task.Jitter, task.Times = "* * * * *", w.ms(70_000), durable.Forever
	case 3:
		task.Interval, task.Times = d, durable.Forever
	default:
		task.Delay = d
	}
	if w.draw.IntN(4) == 0 {
		task.PayloadVersion = 1 + w.draw.IntN(3)
	}
	return task
}

func (w *driftWalk) walk() {
	w.begin()
	for w.step = range driftSteps {
		var err error
		if w.draw.IntN(12) == 0 {
			for range 20 { // in one commit or several
				verb := w.verb()
				go func() { _ = verb() }()
			}
		} else if w.draw.IntN(40) == 0 {
			w.restart()
		} else {
			err = w.verb()()
		}
		w.check(err)
		if w.draw.IntN(3) == 0 {
			time.Sleep(w.ms(3000))
			w.check(nil)
		}
	}
	w.Must(w.ResumeAll(ctx))
	for _, kind := range driftNames {
		w.Must(w.ResumeKind(ctx, kind))
	}
	testkit.Settle(10 * time.Minute)
	w.check(nil)
	_, err := w.RemovePrefix(ctx, "")
	testkit.Settle(time.Minute)
	w.check(err)
	st := w.Stats()
	if st.Pending+st.Waiting+st.Running+st.Limited+st.Unhandled != 0 {
		w.T.Errorf("seed %d: in the end the accounts are %+v", w.seed, st)
	}
}

// restart crashes the process, and reopens the engine after some time.
func (w *driftWalk) restart() {
	w.Crash("note", "fail")
	time.Sleep(w.ms(100_000))
	w.begin()
	w.Start()
}

// verb draws a verb.
func (w *driftWalk) verb() func() error {
	key, kind, d, task := w.key(), w.kind(), w.ms(3000)-sec/2, w.task()
	count := func(_ any, err error) error { return err }
	switch w.draw.IntN(19) {
	case 0:
		return func() error { return w.SetTask(ctx, task) }
	case 1:
		return func() error {
			for _, task := range stored(w.T, w.KV) {
				if task.Key == key && w.RemoveTask(ctx, key) == nil {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.removed = append(w.removed, task.Record)
				}
			}
			return nil
		}
	case 2:
		w.mu.Lock()
		defer w.mu.Unlock()
		var record []engine.Record
		if n := len(w.removed); n > 0 {
			record, w.removed = w.removed[n-1:], w.removed[:n-1:n-1]
		}
		return func() error { return w.Restore(ctx, record...) }
	case 3:
		return func() error { return w.Reschedule(ctx, key, d) }
	case 4:
		return func() error { return w.Pause(ctx, key) }
	case 5:
		return func() error { return w.Resume(ctx, key) }
	case 6:
		return func() error { return w.PauseKind(ctx, kind) }
	case 7, 8:
		return func() error { return w.ResumeKind(ctx, kind) }
	case 9:
		if w.draw.IntN(3) == 0 {
			return func() error { return w.PauseAll(ctx) }
		}
		return func() error { return w.ResumeAll(ctx) }
	case 10:
		if w.draw.IntN(3) == 0 {
			return func() error { return count(w.RemovePrefix(ctx, "k1")) }
		}
		return func() error { return count(w.ReschedulePrefix(ctx, "k", d)) }
	case 11:
		query := durable.Query{State: durable.State(w.draw.IntN(7)), Kind: []string{"", kind}[w.draw.IntN(2)]}
		do := durable.Action(w.draw.IntN(5))
		return func() error { return count(w.Bulk(ctx, query, do)) }
	case 12:
		return func() error { return count(w.Cancel(ctx, key)) }
	case 13:
		return func() error {
			soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			return count(w.RemoveTaskWait(soon, key))
		}
	case 14:
		if len(w.late) == 0 {
			return func() error { return nil }
		}
		late := w.late[0]
		w.late = w.late[1:]
		return func() error { w.handle(late); return nil }
	default:
		others := []durable.Task{task, w.task(), w.task()}[:1+w.draw.IntN(3)]
		return func() error { return w.AddTask(ctx, others...) }
	}
}

// check compares the counters with a walk over the tasks.
func (w *driftWalk) check(err error) {
	t := w.T
	t.Helper()
	for _, usual := range []error{durable.ErrTaskKeyNotFound, durable.ErrDuplicateTaskKey, durable.ErrUnknownKind,
		context.DeadlineExceeded} {
		if errors.Is(err, usual) {
			err = nil
		}
	}
	w.Must(err)
	time.Sleep(100 * time.Millisecond) // every run that waits for nothing else has begun
	synctest.Wait()
	wrong := durable.Drift(w.Scheduler)
	if len(wrong) > 0 { // unless a claim is due
		first := wrong
		time.Sleep(3 * sec)
		synctest.Wait()
		wrong = slices.DeleteFunc(durable.Drift(w.Scheduler), func(text string) bool { return !slices.Contains(first, text) })
	}
	paused, err := w.Paused(ctx)
	w.Must(err)
	kinds, states, tasks, parked := make(map[string]durable.KindCounts), make(map[durable.State]int), 0, 0
	for i, err := range w.All(ctx) {
		w.Must(err)
		k := kinds[i.Kind]
		k.Kind, k.KindPaused = i.Kind, paused.Has(i.Kind)
		k.Tasks++
		if i.State == durable.Paused {
			k.Paused++
		} else if i.Attempts > 0 || i.GivenUp > 0 {
			k.Failing++
		}
		if i.State == durable.Parked {
			k.Parked++
			parked++
		}
		kinds[i.Kind] = k
		states[i.State]++
		tasks++
	}
	c, err := w.Counts(ctx)
	w.Must(err)
	if len(c.Kinds) != len(kinds) || !c.Whole {
		wrong = append(wrong, fmt.Sprintf("the census is %+v, want %v", c, kinds))
	}
	for _, k := range c.Kinds {
		if k != kinds[k.Kind] {
			wrong = append(wrong, fmt.Sprintf("the census has %+v, want %+v", k, kinds[k.Kind]))
		}
	}
	for _, state := range durable.States() {
		n, err := w.Bulk(ctx, durable.Query{State: state}, durable.DoNothing)
		w.Must(err)
		if n != states[state] {
			wrong = append(wrong, fmt.Sprintf("%d are %v, want %d", n, state, states[state]))
		}
	}
	st, started, limited := w.Stats(), uint64(0), 0
	for _, k := range w.Kinds() {
		started += k.Started
		limited += k.Waiting
	}
	if st.Pending != tasks || st.Parked != parked || st.Started != started || st.Limited != limited {
		wrong = append(wrong, fmt.Sprintf("the accounts are %+v, want %d tasks, %d parked, %d started, %d limited",
			st, tasks, parked, started, limited))
	}
	for _, what := range wrong {
		t.Errorf("seed %d, step %d: %s", w.seed, w.step, what)
	}
	if t.Failed() {
		t.FailNow()
	}
}
