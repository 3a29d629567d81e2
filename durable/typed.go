// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A Kind is a kind of task whose payloads are values of type T, stored as JSON. Its methods add tasks of the kind and
// read their payloads. For other verbs, use the [Scheduler]. A Kind is safe for concurrent use. [KindOf] returns a Kind.
// The methods of the zero value return an error that wraps ErrInvalidTask.
type Kind[T any] struct {
	s    *Scheduler
	name string
}

// KindOf registers h as the handler for tasks of a kind, as [Scheduler.Handle] does, and returns the kind. It decodes
// each payload into a T and passes the result to h. For changes to T that break stored payloads, see
// [WithPayloadVersion].
//
// An empty payload is the zero value of T, in every version. It is not passed to an upgrade.
//
// If decoding fails, the task is parked at once. The error names the types, the field and the position that do not fit,
// but never a value, because payloads may be secret. So the text of an error that T's own UnmarshalJSON or UnmarshalText
// returns is left out.
//
// If h is nil, KindOf declares the kind, as [Scheduler.Declare] does. The process then adds tasks of the kind, and
// other processes run them. If their payloads have a version, pass it with [WithPayloadVersion]. The upgrade may be nil
// unless the process reads older payloads with [Kind.Payload].
func KindOf[T any](s *Scheduler, name string, h func(ctx context.Context, run Run, payload T) error,
	opts ...KindOption,
) (Kind[T], error) {
	k := Kind[T]{s, name}
	if h == nil {
		return k, s.Declare(name, opts...)
	}
	typed := func(k *kind) error { k.typed = true; return nil }
	return k, s.Handle(name, func(ctx context.Context, run Run) error {
		payload, err := decode[T](run.Payload)
		if err != nil {
			return Park(err)
		}
		return h(ctx, run, payload)
	}, append(slices.Clone(opts), typed)...)
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
	if k.s == nil {
		return Task{}, errZeroKind
	}
	task := Task{Key: key, Kind: k.name}
	policy, _ := k.s.kinds.Policy(k.name)
	task.PayloadVersion = policy.Version
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

// Payload decodes the payload of a task that a look-up such as [Scheduler.Get] or [Scheduler.Find] has returned. It
// upgrades a payload of an earlier version, as for the handler. Middleware is not applied: if it decrypts payloads,
// decrypt info.Payload before the call. If the task is of another kind, or its payload cannot be upgraded or decoded,
// the error wraps ErrInvalidTask.
func (k Kind[T]) Payload(info Info) (payload T, err error) {
	switch {
	case k.s == nil:
		return payload, errZeroKind
	case info.Kind != k.name:
		return payload, fmt.Errorf("%w: %q is of kind %q, not %q", ErrInvalidTask, info.Key, info.Kind, k.name)
	}
	text := info.Payload
	if len(text) > 0 {
		policy, _ := k.s.kinds.Policy(k.name)
		if text, err = upgraded(text, info.PayloadVersion, policy.Version, policy.Upgrade); err != nil {
			return payload, fmt.Errorf("%w: %q: %w", ErrInvalidTask, info.Key, err)
		}
	}
	if payload, err = decode[T](text); err != nil {
		return payload, fmt.Errorf("%w: %q: %w", ErrInvalidTask, info.Key, err)
	}
	return payload, nil
}

var errZeroKind = fmt.Errorf("%w: the Kind is a zero value, and not one that KindOf returned", ErrInvalidTask)

// A TaskOption sets fields of a task. [In], [At], [Every] and [ByCalendar] set when it is due, and [Times], [Until], [Jittered]
// and [Expires] modify that. [InGroup] sets its group, and [Traced] its trace context. To set another field, pass a function
// literal.
type TaskOption func(*Task)

// In makes the first run of a task due after d. In(0) has no effect: a repeating task is then first due by its interval or
// calendar. To start it at once, use At with the current time.
func In(d time.Duration) TaskOption { return func(t *Task) { t.Delay = d } }

// At makes the first run of a task due at that time, or at once if the time has passed.
func At(at time.Time) TaskOption { return func(t *Task) { t.At = at } }

// Every makes a task run every d, until it is removed or for the number of [Times]. Without In or At, the first run is
// due after d.
func Every(d time.Duration) TaskOption {
	return func(t *Task) {
		t.Interval = d
		if t.Times == 0 {
			t.Times = Forever
		}
	}
}

// ByCalendar makes a task run according to a calendar, such as "CRON_TZ=Europe/Berlin 30 2 * * *" or "0 9 * * MON#1", until
// it is removed or for the number of [Times]. [Task] describes the format.
func ByCalendar(cron string) TaskOption { return func(t *Task) { t.Cron = cron } }

// Times sets the number of runs of a task that repeats by Every or ByCalendar.
func Times(n int) TaskOption { return func(t *Task) { t.Times = n } }

// Until ends a task that repeats by Every or ByCalendar: after the first run, none is due later. See Until in [Task].
func Until(end time.Time) TaskOption { return func(t *Task) { t.Until = end } }

// Jittered delays the runs of a task by a part of d, which depends only on its key. See Jitter in [Task].
func Jittered(d time.Duration) TaskOption { return func(t *Task) { t.Jitter = d } }

// Expires drops the run of a task if it cannot start within d of its due time. See Expires in [Task].
func Expires(d time.Duration) TaskOption { return func(t *Task) { t.Expires = d } }

// InGroup puts a task into a group, such as a tenant. See Group in [Task].
func InGroup(group string) TaskOption { return func(t *Task) { t.Group = group } }

// Traced passes the caller's trace context to the runs of a task. Package otel sets it from a context.Context: see
// its Inject.
func Traced(trace string) TaskOption { return func(t *Task) { t.Trace = trace } }

// Declare makes AddTask and SetTask accept tasks of a kind that has no handler in this scheduler. Another process runs
// the tasks. Two options have an effect: the version of [WithPayloadVersion] becomes the default for the tasks that this
// scheduler adds, and with [WithOnce] they may have names. If Handle is called for the kind later, the options passed to Handle apply instead. Declare
// returns an error if the name or an option is invalid. Once Shutdown has begun, it returns ErrStopped.
func (s *Scheduler) Declare(name string, opts ...KindOption) error {
	if err := task.CheckKind(name); err != nil {
		return err
	}
	k, err := newKind(name, nil, opts)
	if err != nil {
		return err
	}
	if s.ending.Load() {
		return failed(ErrStopped, "Declare", name)
	}
	s.kinds.Declare(name, k.Policy)
	return nil
}
