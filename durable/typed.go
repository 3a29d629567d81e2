// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// A Kind is a kind of task whose payloads are values of type T, stored as JSON. Its methods add tasks of the kind. For
// other verbs, use the [Scheduler]. A Kind is safe for concurrent use.
type Kind[T any] struct {
	s    *Scheduler
	name string
}

// KindOf registers h as the handler for tasks of a kind, as [Scheduler.Handle] does, and returns the kind. It decodes
// each payload into a T and passes the result to h. If decoding fails, the task is parked at once with the error from
// package encoding/json. For changes to T that break stored payloads, see [WithPayloadVersion].
//
// If h is nil, KindOf declares the kind, as [Scheduler.Declare] does. The process then adds tasks of the kind, and
// other processes run them. If their payloads have a version, pass it with [WithPayloadVersion] and a nil upgrade.
func KindOf[T any](s *Scheduler, name string, h func(ctx context.Context, run Run, payload T) error,
	opts ...KindOption,
) (Kind[T], error) {
	k := Kind[T]{s, name}
	if h == nil {
		return k, s.Declare(name, opts...)
	}
	return k, s.Handle(name, func(ctx context.Context, run Run) error {
		var payload T
		if err := json.Unmarshal(run.Payload, &payload); err != nil {
			return Park(fmt.Errorf("payload does not decode into %T: %w", payload, err))
		}
		return h(ctx, run, payload)
	}, opts...)
}

// Name returns the name of the kind.
func (k Kind[T]) Name() string { return k.name }

// Add adds a task with the payload, as [Scheduler.AddTask] does. Without options the task is due at once. If encoding
// the payload fails, the error wraps ErrInvalidTask.
func (k Kind[T]) Add(ctx context.Context, key string, payload T, opts ...TaskOption) error {
	task, err := k.Task(key, payload, opts...)
	if err != nil {
		return err
	}
	return k.s.AddTask(ctx, task)
}

// Set adds a task with the payload, or replaces the existing task with that key, as [Scheduler.SetTask] does. If
// encoding the payload fails, the error wraps ErrInvalidTask, and the existing task is unchanged.
func (k Kind[T]) Set(ctx context.Context, key string, payload T, opts ...TaskOption) error {
	task, err := k.Task(key, payload, opts...)
	if err != nil {
		return err
	}
	return k.s.SetTask(ctx, task)
}

// Task returns a task with the encoded payload and its version. Use it to add several tasks at once with
// [Scheduler.AddTask], or to add a task in a transaction. If encoding the payload fails, the error wraps
// ErrInvalidTask. The options are applied in order, after the payload has been encoded, so an option may encrypt it.
func (k Kind[T]) Task(key string, payload T, opts ...TaskOption) (Task, error) {
	task := Task{Key: key, Kind: k.name}
	task.PayloadVersion, _ = k.s.kinds.version(k.name)
	if err := task.setJSON(payload); err != nil {
		return Task{}, err
	}
	for _, o := range opts {
		if o == nil {
			return Task{}, fmt.Errorf("%w: option of %q is nil", ErrInvalidTask, key)
		}
		o(&task)
	}
	return task, nil
}

// A TaskOption sets fields of a task. [In], [At], [Every] and [ByCalendar] set when it is due. To set another field,
// pass a function literal.
type TaskOption func(*Task)

// In makes the first run of a task due after d. In(0) has no effect: a repeating task is then first due by its interval or
// calendar. To start it at once, use At with the current time.
func In(d time.Duration) TaskOption { return func(t *Task) { t.Delay = d } }

// At makes the first run of a task due at that time, or at once if the time has passed.
func At(at time.Time) TaskOption { return func(t *Task) { t.At = at } }

// Every makes a task run every d until it is removed. Without In or At, the first run is due after d.
func Every(d time.Duration) TaskOption {
	return func(t *Task) { t.Interval, t.Times = d, Forever }
}

// ByCalendar makes a task run according to a calendar, such as "CRON_TZ=Europe/Berlin 30 2 * * *", until it is removed.
// [Task] describes the format.
func ByCalendar(cron string) TaskOption { return func(t *Task) { t.Cron = cron } }

// Declare makes AddTask and SetTask accept tasks of a kind that has no handler in this scheduler. Another process runs
// the tasks. The only option with an effect is [WithPayloadVersion]: its version becomes the default for the tasks that
// this scheduler adds. If Handle is called for the kind later, the options passed to Handle apply instead. Declare
// returns an error if the name or an option is invalid. Once Shutdown has begun, it returns ErrStopped.
func (s *Scheduler) Declare(name string, opts ...KindOption) error {
	if err := checkKind(name); err != nil {
		return err
	}
	k, err := newKind(name, nil, opts)
	if err != nil {
		return err
	}
	if s.ending.Load() {
		return stopped(ErrStopped, "Declare", name)
	}
	s.kinds.declare(name, k.policy.Version)
	return nil
}
