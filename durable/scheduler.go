// SPDX-License-Identifier: MIT

package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/past"
	"github.com/seed581295f1/timewheel/durable/internal/series"
	"github.com/seed581295f1/timewheel/durable/internal/task"

	"github.com/seed581295f1/timewheel/timewheel"
)

// A Scheduler runs durable tasks at their due times. Its tasks are in an [engine.Engine], which belongs to the scheduler
// alone or is shared by many. It is safe for concurrent use, including by handlers.
//
// Every verb takes a context. If the context is done before the verb has finished, the verb returns the context's error
// and may or may not take effect. After Shutdown, verbs return ErrStopped. After the scheduler's own engine has failed,
// they return ErrBroken with the cause. While a shared engine is unavailable, they return ErrUnavailable.
type Scheduler struct {
	wheel *timewheel.TimeWheel
	kinds node.Kinds
	node  *node.Node

	within []Middleware
	once   sync.Once // registers the handler of OnceKind
	teller *teller
	past   *past.Writer
	hour   *series.Writer

	reads  node.Gate
	behind catchingUp

	ending atomic.Bool
	ended  chan struct{}
	result error // the error of the first Shutdown; valid once ended is closed
}

// Handle registers h as the handler for tasks of a kind. AddTask refuses tasks whose kind has no handler and is not
// declared ([Scheduler.Declare]). A task that falls due while its kind has no handler waits, and runs as an overdue task
// after Handle is called in this process or a later one. Handle returns an error if an option is invalid or if the kind
// already has a handler. Once Shutdown has begun, Handle returns ErrStopped.
func (s *Scheduler) Handle(name string, h Handler, opts ...KindOption) error {
	if err := task.CheckKind(name); err != nil {
		return err
	}
	if name == OnceKind {
		return fmt.Errorf("%w: the kind %s has its handler", ErrInvalidTask, OnceKind)
	}
	if h == nil {
		return errNoHandler
	}
	k, err := newKind(name, h, opts)
	if err == nil {
		err = k.wrap(s.within)
	}
	if err != nil {
		return err
	}
	if s.ending.Load() {
		return failed(ErrStopped, "Handle", name)
	}
	k.tell = s.teller
	k.all = &s.kinds
	err = s.node.Handle(&k.Kind, func() {
		if k.keeps > 0 {
			k.past = s.past.Kind(name, k.keeps, k.keepsFor) // nil after Shutdown; then nothing runs
		}
	})
	if err != nil || k.Policy.Once == 0 {
		return err
	}
	return s.handleOnce()
}

// Start begins running tasks. A second call has no effect.
func (s *Scheduler) Start() error {
	if err := s.node.Start(); err != nil {
		return failed(err, "Start", "")
	}
	s.wheel.Start()
	s.hour.Start()
	return nil
}

// Shutdown prevents further runs from starting, waits until the runs in progress have ended and been acknowledged, and
// closes the engine if it is the scheduler's own. It leaves a shared engine without closing it. If ctx is done first,
// Shutdown cancels the contexts of the runs, does not wait for them, and returns an error that contains their number.
// These runs are repeated later. On a shared engine the abandoned attempt counts as failed, so a run is parked if it was
// the last attempt.
//
// If a kind has a history ([WithHistory]), Shutdown writes the remaining attempts, for up to two seconds. It also writes
// the last minute of [Scheduler.LastHour], for up to one second. If the engine is busy, Shutdown waits up to five more seconds, and then returns an error while the engine is still closing. After
// the store has failed, Shutdown never waits more than five seconds, and its error includes the error from Err. It
// abandons an acknowledgement that waits more than five seconds for a lock. A second Shutdown waits for the first and
// returns the same error, unless its own ctx is done first. If Shutdown is called in a handler or in the body of a loop
// over All, it waits for itself until ctx is done.
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
	s.node.Stop()
	if s.wheel.Shutdown(ctx) != nil {
		s.result = fmt.Errorf("durable: shutdown: runs that have not ended: %d: %w", s.wheel.Stats().Running, context.Cause(ctx))
	}
	s.node.Cancel()
	closed := make(chan error, 1)
	go func() {
		s.node.Finish()
		s.teller.wait()
		s.past.Stop()
		s.hour.Stop()
		idle := s.reads.Stop()
		s.behind.count.Stop()
		<-idle
		closed <- s.node.Release()
	}()
	broken := s.node.Failing()
	var patience <-chan time.Time
	for {
		select {
		case err := <-closed:
			s.result = errors.Join(s.result, err, s.Err())
			select {
			case <-s.node.Reporter().Written():
			case <-time.After(logGrace):
			}
			return s.result
		case <-ctx.Done():
			ctx = context.WithoutCancel(ctx)
			patience = time.After(node.CloseGrace)
		case <-broken: // the engine may never return from its current call
			broken = nil
			if patience == nil {
				patience = time.After(node.CloseGrace)
			}
		case <-patience:
			s.result = errors.Join(s.result, s.Err(), s.unclosed())
			return s.result
		}
	}
}

// unclosed returns the error of a Shutdown that waits no longer.
func (s *Scheduler) unclosed() error {
	if s.node.Failing() == nil {
		return errors.New("durable: shutdown: the engine has not answered, and the node has not left it yet")
	}
	return errors.New("durable: shutdown: the engine is being written or read, and not closed yet")
}

// logGrace is how long Shutdown waits for the logger to write the pending notices.
const logGrace = time.Second

// Err returns the error that made the scheduler's own engine fail, or nil. The possible causes are a failed commit, a read
// of damaged data ([ErrCorrupt]), a failed read by the scheduler itself, and a failure that the engine reports
// ([engine.FailureReporter]). Once it has failed, the scheduler changes no task and starts no run. To recover, shut the
// scheduler down and open the engine again. A shared engine never fails for good, and Err returns nil.
func (s *Scheduler) Err() error { return s.node.Err() }

// AddTask adds all of the tasks or none of them. The error wraps ErrInvalidTask, ErrUnknownKind, ErrDuplicateTaskKey or
// ErrRepeated. An error that wraps ErrDuplicateTaskKey is a [*DuplicateKeysError] with the keys that are in use or occur
// more than once. For ErrRepeated see Once in [Task].
//
// The tasks are written in one commit, and other verbs wait for it: a few milliseconds for a thousand tasks, a second
// or more for [MaxBatch] bytes. Adding them in batches of a few thousand takes no longer and delays other verbs less.
func (s *Scheduler) AddTask(ctx context.Context, tasks ...Task) error {
	if len(tasks) == 0 {
		return nil
	}
	return s.store(ctx, &node.Verb{What: node.ToAdd}, "AddTask", tasks...)
}

// AddNew is AddTask for one task. It also returns the task as it was stored.
func (s *Scheduler) AddNew(ctx context.Context, task Task) (Info, error) {
	v := node.Verb{What: node.ToAdd}
	if err := s.store(ctx, &v, "AddNew", task); err != nil {
		return Info{}, err
	}
	return s.stored(&v), nil
}

// Put is SetTask. It also returns the task as it was stored, and whether it has replaced another one. That is unknown,
// and replaced is false, if the engine's answer was lost and Put has found the task there.
func (s *Scheduler) Put(ctx context.Context, task Task) (stored Info, replaced bool, err error) {
	v := node.Verb{What: node.ToSet}
	if err := s.store(ctx, &v, "Put", task); err != nil {
		return Info{}, false, err
	}
	return s.stored(&v), v.Replaced, nil
}

// stored returns the task that the verb has stored. The node has the record, too.
func (s *Scheduler) stored(v *node.Verb) Info {
	i := infoOf(v.Records[0], s.node.Now())
	i.Payload = bytes.Clone(i.Payload)
	return i
}

// store applies a verb that adds or sets the tasks. The verb can be on the caller's stack.
func (s *Scheduler) store(ctx context.Context, v *node.Verb, name string, tasks ...Task) (err error) {
	if v.Size, err = check(&s.kinds, tasks); err != nil {
		return err
	}
	v.Make = recordsOf(&s.kinds, tasks)
	return failed(repeated(s.node.Do(ctx, v), tasks), name, tasks[0].Key)
}

// SetTask adds the task, or replaces the existing task with the same key. With MaxDelay, SetTask postpones the task's
// run, and with Once it may return ErrRepeated: see [Task].
func (s *Scheduler) SetTask(ctx context.Context, task Task) error {
	return s.store(ctx, &node.Verb{What: node.ToSet}, "SetTask", task)
}

// check returns the total size of the tasks in bytes, or an error if one of them is invalid or they are too large.
func check(kinds *node.Kinds, tasks []Task) (size int, err error) {
	for i := range tasks {
		t := &tasks[i]
		if err := t.spec().Validate(); err != nil {
			return 0, err
		}
		policy, known := kinds.Policy(t.Kind)
		if err := t.checkOnce(policy.Once); err != nil {
			return 0, err
		}
		if !known {
			return 0, fmt.Errorf("%w %q, of task %q", ErrUnknownKind, t.Kind, t.Key)
		}
		if t.Once != "" {
			size += onceRecord(t.Once, &task.Record{Token: task.Token{Key: t.Key}}, 0, 0).Size()
		}
		if size += t.spec().Size(); size > MaxBatch {
			return 0, tooMuch()
		}
	}
	return size, nil
}

// recordsOf returns a function that returns the records of valid tasks that are added at the given time, without
// generations.
func recordsOf(kinds *node.Kinds, tasks []Task) func(now int64) []*task.Record {
	return func(now int64) []*task.Record {
		recs := make([]*task.Record, 0, len(tasks))
		for i := range tasks {
			t := &tasks[i]
			rec := t.spec().Record(now)
			policy, _ := kinds.Policy(t.Kind)
			if t.PayloadVersion == 0 {
				rec.Version = policy.Version
			}
			if recs = append(recs, rec); t.Once != "" {
				recs = append(recs, onceRecord(t.Once, rec, policy.Once, now))
			}
		}
		return recs
	}
}

func tooMuch() error {
	return fmt.Errorf("%w: more than %d bytes of tasks at once", ErrInvalidTask, MaxBatch)
}

// RemoveTask removes the task with the key. No run of the task starts after RemoveTask has returned nil. A run in
// progress is not interrupted, and may still have its effect. [Scheduler.RemoveTaskWait] waits for it and reports that
// there was one.
func (s *Scheduler) RemoveTask(ctx context.Context, key string) error {
	return failed(s.node.Do(ctx, &node.Verb{What: node.ToRemove, Key: key, Size: MaxKey}), "RemoveTask", key)
}

// Reschedule makes the next run of the task due after d, or at once if d is not positive. Later runs follow at the
// task's interval or according to its calendar. A paused task stays paused, and has the new due time when it is
// resumed. A run in progress is not interrupted, but its result no longer counts, and the next run may begin before
// that run ends. Reschedule makes a parked task run again, with its full number of attempts. The next run is a new run
// with another token, even if the earlier one was parked or was waiting for a retry.
func (s *Scheduler) Reschedule(ctx context.Context, key string, d time.Duration) error {
	return failed(s.node.Do(ctx, &node.Verb{What: node.ToMove, Key: key, After: max(d, 0), Size: MaxKey}), "Reschedule", key)
}

// Exist reports whether there is a task with the key. A task exists until its last run is acknowledged.
func (s *Scheduler) Exist(ctx context.Context, key string) (bool, error) {
	_, ok, err := s.get(ctx, "Exist", key)
	return ok, err
}

// GetTaskTimes returns how many of the task's runs have not been acknowledged. It returns Forever if the task runs
// until it is removed, and 0 if there is no task with the key.
func (s *Scheduler) GetTaskTimes(ctx context.Context, key string) (int, error) {
	info, _, err := s.get(ctx, "GetTaskTimes", key)
	return info.Times, err
}

// Get returns the task with the key, and whether there is one.
func (s *Scheduler) Get(ctx context.Context, key string) (Info, bool, error) {
	return s.get(ctx, "Get", key)
}

// get implements Get. verb is the name of the calling verb, for errors.
func (s *Scheduler) get(ctx context.Context, verb, key string) (Info, bool, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, false, err
	}
	if !s.reads.Enter() {
		return Info{}, false, failed(ErrStopped, verb, key)
	}
	defer s.reads.Leave()
	found, ok, err := s.node.Get(ctx, key)
	if err != nil || !ok {
		return Info{}, false, err
	}
	return infoOfView(found, s.node.Now()), true, nil
}

// All returns an iterator over the tasks in due order, with parked tasks last. It yields every task that exists
// throughout the walk. It may or may not yield a task that is added, moved or removed during the walk. An error or a
// call to Shutdown ends the walk.
func (s *Scheduler) All(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for found, err := range s.walk(ctx, ctx, node.Stretch{After: engine.Position{Due: engine.None}, Until: task.Never}) {
			if err != nil {
				yield(Info{}, failed(err, "All", ""))
				return
			}
			if !yield(infoOfView(found, s.node.Now()), nil) {
				return
			}
		}
	}
}

// walk is the node's walk. It ends when ctx is done or Shutdown is called. within is the context of the node's calls.
func (s *Scheduler) walk(ctx, within context.Context, over node.Stretch) iter.Seq2[node.View, error] {
	return func(yield func(node.View, error) bool) {
		if !s.reads.Enter() {
			yield(node.View{}, ErrStopped)
			return
		}
		defer s.reads.Leave()
		for found, err := range s.node.Walk(within, over) {
			if err == nil {
				err = ctx.Err()
			}
			if err == nil && s.reads.Stopped() {
				err = ErrStopped
			}
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// Len returns the number of tasks, or 0 after Shutdown. On a shared engine, the number comes from [Scheduler.Counts].
func (s *Scheduler) Len() int {
	if !s.reads.Enter() {
		return 0
	}
	defer s.reads.Leave()
	tasks, _ := s.node.Total()
	return tasks
}
