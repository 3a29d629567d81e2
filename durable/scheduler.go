// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A Scheduler keeps tasks in a [Store] and runs them when they are due. It is safe for concurrent use, and a
// handler may call it.
//
// The verbs take a context. When it ends before the answer has come its error is returned, and the verb may
// or may not do what it was asked to. With nothing else wrong they return ErrStopped after Shutdown, and
// ErrBroken with the cause after the store has failed.
type Scheduler struct {
	store Store
	wheel *timewheel.TimeWheel
	kinds kinds
	keep  *keeper

	reads readers

	ending atomic.Bool
	ended  chan struct{}
	result error // of the first Shutdown, when ended is closed
}

// Open opens the store in a directory, which it makes if its parent is there, and returns a scheduler on it
// that is not started. The error is ErrLocked if another has it open, ErrVersion or ErrCorrupt if it cannot be
// read; no task is touched then, nor is a directory that holds something else.
func Open(dir string, opts ...Option) (*Scheduler, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	store, err := openDisk(dir, cfg.log)
	if err != nil {
		return nil, err
	}
	s, err := newScheduler(store, cfg)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// New returns a scheduler on a store, which from here on belongs to it. It is not started.
func New(store Store, opts ...Option) (*Scheduler, error) {
	if store == nil {
		return nil, errors.New("durable: store is nil")
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return newScheduler(store, cfg)
}

func newScheduler(store Store, cfg config) (*Scheduler, error) {
	wheel, err := timewheel.New(cfg.tick, slots,
		timewheel.WithPoolSize(cfg.poolSize), timewheel.WithLogger(cfg.log))
	if err != nil {
		return nil, err
	}
	s := &Scheduler{store: store, wheel: wheel, ended: make(chan struct{})}
	s.keep = newKeeper(store, wheel, &s.kinds, cfg)
	return s, nil
}

// Handle has h run the tasks of a kind. To add a task its kind must be known. A task that falls due while its
// kind is not known waits, and runs as an overdue one when Handle is called, in this process or a later one. The
// error is that of an option, or that the kind has a handler.
func (s *Scheduler) Handle(name string, h Handler, opts ...KindOption) error {
	if name == "" || len(name) > MaxKind {
		return fmt.Errorf("durable: kind of %d bytes; 1 to %d are allowed", len(name), MaxKind)
	}
	k, err := newKind(h, opts)
	if err != nil {
		return err
	}
	if err := s.kinds.add(name, k); err != nil {
		return err
	}
	_ = s.keep.post(op{do: func(*group) error { s.keep.handled(name); return nil }}) // or nothing runs any more
	return nil
}

// Start lets tasks run. A second Start does nothing.
func (s *Scheduler) Start() error {
	if err := s.keep.do(context.Background(), 0, s.keep.start); err != nil {
		return err
	}
	s.wheel.Start() // not on the keeper's goroutine, for it calls the logger
	return nil
}

// Shutdown lets no run begin from here on, waits until the runs that go on have ended and been acknowledged,
// and closes the store. When ctx is done before that, it cancels their contexts, closes the store without
// them, and returns an error that says how many there were: they will run again. It waits five seconds more for
// a store that is busy, and then leaves it to close by itself. If the store has failed, the error is also that
// of Err, and five seconds are all that a busy store is given. A further Shutdown waits for the first, or until
// its own ctx is done, and returns the same. A handler that calls it waits for itself, until ctx is done; so does
// the body of a loop over All.
func (s *Scheduler) Shutdown(ctx context.Context) error {
	if !s.ending.CompareAndSwap(false, true) {
		select {
		case <-s.ended:
			return s.result
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(s.ended)
	s.keep.backlog.stop()
	s.result = s.wheel.Shutdown(ctx)
	s.keep.cancel()
	closed := make(chan error, 1)
	go func() {
		s.keep.close()
		<-s.reads.stop()
		closed <- s.store.Close()
	}()
	failed := s.keep.failed
	var patience <-chan time.Time
	for {
		select {
		case err := <-closed:
			s.result = errors.Join(s.result, err, s.Err())
			select {
			case <-s.keep.report.written():
			case <-time.After(logGrace):
			}
			return s.result
		case <-ctx.Done():
			ctx = context.WithoutCancel(ctx)
			patience = time.After(closeGrace)
		case <-failed: // it may never return from what it does
			failed = nil
			if patience == nil {
				patience = time.After(closeGrace)
			}
		case <-patience:
			s.result = errors.Join(s.result, s.Err(),
				errors.New("durable: the store is being written or read, and not closed yet"))
			return s.result
		}
	}
}

const (
	// closeGrace is how long Shutdown waits for the store after its context is done, or the store has failed.
	closeGrace = 5 * time.Second

	// logGrace is how long Shutdown waits for the logger to write what there was to say.
	logGrace = time.Second
)

// Err returns why the store has failed, or nil. A failed commit is a cause, a read that meets damage
// ([ErrCorrupt]), a failed read of the scheduler's own, and what the store itself reports ([FailureReporter]). A
// scheduler whose store has failed changes and runs nothing any more; shut it down, and open the store again.
func (s *Scheduler) Err() error { return s.keep.Err() }

// AddTask adds the tasks, all or none. The error is ErrInvalidTask, ErrUnknownKind, or ErrDuplicateTaskKey: a
// [*DuplicateKeysError] with the keys that are there already, or occur twice.
//
// The tasks are committed at once, so the other verbs wait meanwhile: a few milliseconds for a thousand tasks, a
// second or more for [MaxBatch] bytes, which is there to bound it. Batches of a few thousand are as fast.
func (s *Scheduler) AddTask(ctx context.Context, tasks ...Task) error {
	recs, size, err := s.records(tasks)
	if err != nil || len(recs) == 0 {
		return err
	}
	recs, twice := distinct(recs) // here, and not while the keeper's other callers wait
	return s.keep.do(ctx, size, func(g *group) error {
		var taken []string
		for _, rec := range recs {
			old, err := g.find(rec.key)
			if err != nil {
				return err
			}
			if old != nil || twice[rec.key] {
				taken = append(taken, rec.key)
			}
		}
		if taken != nil {
			return &DuplicateKeysError{taken}
		}
		generation := s.keep.next(0, uint64(len(recs)))
		for i, rec := range recs {
			rec.generation = generation + uint64(i)
		}
		g.putNew(recs)
		g.tally.added += uint64(len(recs))
		return nil
	})
}

// distinct returns the first of the records of each key, and the keys that have more than one.
func distinct(recs []*record) (first []*record, twice map[string]bool) {
	if len(recs) == 1 {
		return recs, nil
	}
	seen := make(map[string]struct{}, len(recs))
	first = recs[:0]
	for _, rec := range recs {
		before := len(seen)
		if seen[rec.key] = struct{}{}; len(seen) > before {
			first = append(first, rec)
			continue
		}
		if twice == nil {
			twice = make(map[string]bool)
		}
		twice[rec.key] = true
	}
	return first, twice
}

// SetTask adds the task, or replaces the one of that key.
func (s *Scheduler) SetTask(ctx context.Context, task Task) error {
	recs, size, err := s.records([]Task{task})
	if err != nil {
		return err
	}
	rec := recs[0]
	return s.keep.do(ctx, size, func(g *group) error {
		old, err := g.find(rec.key)
		if err != nil {
			return err
		}
		var before uint64
		if old != nil {
			g.tally.removed++
			before = old.generation
		}
		g.tally.added++
		rec.generation = s.keep.next(before, 1)
		g.put(rec.key, old, rec)
		return nil
	})
}

// records returns the tasks as they are kept, without a generation, and how many bytes they will take.
func (s *Scheduler) records(tasks []Task) (recs []*record, size int, err error) {
	now := time.Now().UnixNano()
	recs = make([]*record, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if err := t.validate(); err != nil {
			return nil, 0, err
		}
		if s.kinds.get(t.Kind) == nil {
			return nil, 0, fmt.Errorf("%w %q, of task %q", ErrUnknownKind, t.Kind, t.Key)
		}
		due := t.due(now)
		recs[i] = &record{
			key: t.Key, kind: t.Kind, payload: append([]byte(nil), t.Payload...),
			interval: t.Interval, times: int64(t.Times), grid: due, due: max(due, now),
		}
		if t.Times == 0 {
			recs[i].times = 1
		}
		if size += recs[i].size(); size > MaxBatch {
			return nil, 0, fmt.Errorf("%w: more than %d bytes of tasks at once", ErrInvalidTask, MaxBatch)
		}
	}
	return recs, size, nil
}

// RemoveTask removes the task of the key. When it returns nil no run of it starts any more.
func (s *Scheduler) RemoveTask(ctx context.Context, key string) error {
	return s.change(ctx, key, func(g *group, _ *record) *record {
		g.tally.removed++
		return nil
	})
}

// Reschedule makes the next run of the task due d from now, at once if d is not positive; later ones follow at
// its interval. A run that goes on is not interrupted, but what comes of it no longer counts. A parked task
// runs again, and has all its attempts.
func (s *Scheduler) Reschedule(ctx context.Context, key string, d time.Duration) error {
	now := time.Now().UnixNano()
	return s.change(ctx, key, func(_ *group, old *record) *record {
		next := *old
		next.grid = later(now, max(d, 0))
		next.due = next.grid
		next.run++
		next.attempts, next.failure = 0, ""
		return &next
	})
}

// change makes the task of the key what next returns, or nobody.
func (s *Scheduler) change(ctx context.Context, key string, next func(g *group, old *record) *record) error {
	return s.keep.do(ctx, MaxKey, func(g *group) error {
		old, err := g.find(key)
		if err != nil {
			return err
		}
		if old == nil {
			return fmt.Errorf("%w: %q", ErrTaskKeyNotFound, key)
		}
		g.put(key, old, next(g, old))
		return nil
	})
}

// Exist reports whether there is a task of the key. There is one until its last run is acknowledged.
func (s *Scheduler) Exist(ctx context.Context, key string) (bool, error) {
	_, ok, err := s.Get(ctx, key)
	return ok, err
}

// GetTaskTimes returns how many runs of the task have not been acknowledged: a number, Forever, or 0 if there
// is no such task.
func (s *Scheduler) GetTaskTimes(ctx context.Context, key string) (int, error) {
	info, _, err := s.Get(ctx, key)
	return info.Times, err
}

// Get returns the task of the key, and whether there is one.
func (s *Scheduler) Get(ctx context.Context, key string) (Info, bool, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, false, err
	}
	if !s.reads.enter() {
		return Info{}, false, ErrStopped
	}
	defer s.reads.leave()
	rec, err := getRecord(s.store, key)
	if err != nil || rec == nil {
		return Info{}, false, s.keep.readError(err)
	}
	return rec.info(), true, nil
}

// All walks over the tasks in the order in which they are due, the parked ones last. It sees each task that is
// there all the time, and perhaps those that come, move or go meanwhile; an error ends it, and so does
// Shutdown.
func (s *Scheduler) All(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if !s.reads.enter() {
			yield(Info{}, ErrStopped)
			return
		}
		defer s.reads.leave()
		for rec, err := range dueRecords(s.store, Position{Due: None}, Never) {
			err = s.keep.readError(err)
			if err == nil {
				err = ctx.Err()
			}
			if err == nil && s.reads.stopped() {
				err = ErrStopped
			}
			if err != nil {
				yield(Info{}, err)
				return
			}
			if !yield(rec.info(), nil) {
				return
			}
		}
	}
}

// Len returns the number of tasks, or 0 after Shutdown.
func (s *Scheduler) Len() int {
	if !s.reads.enter() {
		return 0
	}
	defer s.reads.leave()
	return s.store.Len()
}
