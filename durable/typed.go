// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// A Kind is a kind of task whose payload is a T, stored as JSON. It adds tasks of the kind; [Scheduler] has the other
// verbs. It is safe for concurrent use.
type Kind[T any] struct {
	s    *Scheduler
	name string
}

// KindOf registers a kind whose payload is a T. h is called with the decoded payload. If decoding fails, the task is
// parked at once, with the error of package encoding/json. For a change of T that breaks stored payloads, see
// [WithPayloadVersion].
//
// If h is nil, this process only adds tasks of the kind, and other processes run them: see [Scheduler.Declare].
//
// The errors are those of [Scheduler.Handle].
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

// Add adds a task with the payload, as [Scheduler.AddTask] does. Without an option it is due at once. If encoding the
// payload fails, the error wraps ErrInvalidTask.
func (k Kind[T]) Add(ctx context.Context, key string, payload T, opts ...TaskOption) error {
	task, err := k.Task(key, payload, opts...)
	if err != nil {
		return err
	}
	return k.s.AddTask(ctx, task)
}

// Set adds a task with the payload, or replaces the one with that key, as [Scheduler.SetTask] does. If encoding the
// payload fails, the error wraps ErrInvalidTask, and the existing task stays.
func (k Kind[T]) Set(ctx context.Context, key string, payload T, opts ...TaskOption) error {
	task, err := k.Task(key, payload, opts...)
	if err != nil {
		return err
	}
	return k.s.SetTask(ctx, task)
}

// Task returns a task with the payload and its version, for the verbs that take one or several tasks, such as
// [Scheduler.AddTask] with a batch, or those of a transaction. If encoding the payload fails, the error wraps
// ErrInvalidTask.
func (k Kind[T]) Task(key string, payload T, opts ...TaskOption) (Task, error) {
	task := Task{Key: key, Kind: k.name}
	task.PayloadVersion, _ = k.s.kinds.version(k.name)
	for _, o := range opts {
		o(&task)
	}
	return task, task.setJSON(payload)
}

// A TaskOption sets fields of a task. [In], [At], [Every] and [ByCalendar] set its time. A function literal sets any
// other field.
type TaskOption func(*Task)

// In makes the first run of a task due after d.
func In(d time.Duration) TaskOption { return func(t *Task) { t.Delay = d } }

// At makes the first run of a task due at that time. The past means at once.
func At(at time.Time) TaskOption { return func(t *Task) { t.At = at } }

// Every makes a task run every d until it is removed. Without In or At the first run is due after d.
func Every(d time.Duration) TaskOption {
	return func(t *Task) { t.Interval, t.Times = d, Forever }
}

// ByCalendar makes a task run by the calendar, such as "CRON_TZ=Europe/Berlin 30 2 * * *", until it is removed. [Task]
// has the rules.
func ByCalendar(cron string) TaskOption { return func(t *Task) { t.Cron = cron } }

// Declare makes the verbs that add tasks accept a kind that has no handler in this scheduler, such as on one from
// [Connect]: another process runs the tasks. Of the options only [WithPayloadVersion] matters: its version is that of
// the tasks that this scheduler adds. Handle may follow, and then its options count. Declare returns an error if the
// name or an option is wrong.
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
