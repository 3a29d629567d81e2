// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/node"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// OnceKind is the kind of the tasks that remember the Once of other tasks. Their keys are OncePrefix followed by the name, and their
// Generation is one more than that of the other task. No other task may have the kind or such a key.
const (
	OnceKind   = task.OnceKind
	OncePrefix = task.OncePrefix
)

// defaultOnce is the window of a name if the kind of its task is unknown here.
const defaultOnce = time.Hour

// MaxOnce is the maximum size of [Task].Once, in bytes.
const MaxOnce = MaxKey - len(OncePrefix)

// WithOnce lets tasks of the kind have a name by which a repeated call is recognized: see Once in [Task]. A name is remembered as long
// as the task exists, and for the window after the task's first run was due, or after the task was added if it is removed or replaced
// before that run. It is forgotten at the latest when the task has been gone for as long as it existed, or for two windows if that is
// longer. The window must be positive.
//
// A name is remembered by a task of its own, of the kind [OnceKind], which is added in the same commit and removed when it is due. So
// a task with a name costs its engine about as much as two, and both are counted and exported. A [Query] finds such tasks only if it
// names their kind, and RemovePrefix, ReschedulePrefix and declared sets leave them alone. A scheduler with a kind with WithOnce
// handles OnceKind. To let a name be used again, remove its task.
func WithOnce(window time.Duration) KindOption {
	return func(k *kind) error {
		if window <= 0 {
			return fmt.Errorf("durable: names of tasks are to be remembered for %v", window)
		}
		k.Policy.Once = window
		return nil
	}
}

// ErrRepeated is returned by AddTask and SetTask for a task whose Once is remembered. The error is a [*RepeatedError].
var ErrRepeated = errors.New("durable: the task was added before")

// A RepeatedError wraps ErrRepeated. The call that returns it has had no effect, and the tasks with these keys were added by an earlier
// one, or are named twice in the same call. Each has ended, if no task has its key.
type RepeatedError struct{ Keys []string }

func (e *RepeatedError) Error() string {
	return node.AboutKeys(ErrRepeated, e.Keys)
}

func (e *RepeatedError) Unwrap() error { return ErrRepeated }

// checkOnce returns an error if the task is one that remembers a name, or has a name that is not allowed. remembered is the window of
// its kind.
func (t *Task) checkOnce(remembered time.Duration) error {
	reason := ""
	switch {
	case t.spec().IsOnce():
		reason = fmt.Sprintf("the kind %s, and keys that begin with %s, are for names of tasks", OnceKind, OncePrefix)
	case t.Once == "":
		return nil
	case len(t.Once) > MaxOnce:
		reason = fmt.Sprintf("once has %d bytes; %d are allowed", len(t.Once), MaxOnce)
	case remembered == 0:
		reason = fmt.Sprintf("it has Once, and kind %q no WithOnce", t.Kind)
	default:
		return nil
	}
	return fmt.Errorf("%w: %q: %s", ErrInvalidTask, t.Key, reason)
}

// onceRecord returns the record that remembers the name of a task that is added now.
func onceRecord(name string, of *task.Record, window time.Duration, now int64) *task.Record {
	due := checkOf(of.Due, window, window, now)
	return &task.Record{Token: task.Token{Key: OncePrefix + name}, Kind: OnceKind, Payload: []byte(of.Key), Times: 1, Grid: due, Due: due}
}

// checkOf returns when to check whether a name is still needed: a window after its task is due, or after the wait if the task is due
// later. The wait is about the age of the task, so its checks are few, and its name outlives it for about as long at most.
func checkOf(due int64, window, wait time.Duration, now int64) int64 {
	if check := task.Later(now, wait); check < due {
		return check
	}
	return task.Later(max(due, now), window)
}

// handleOnce registers the handler of OnceKind.
func (s *Scheduler) handleOnce() (err error) {
	s.once.Do(func() {
		var k *kind
		if k, err = newKind(OnceKind, s.forget, nil); err != nil {
			return
		}
		k.tell = s.teller
		err = errors.Join(k.wrap(nil), s.node.Handle(&k.Kind, func() {}))
	})
	return err
}

// forget is the handler of OnceKind. It remembers the name as long as the task exists.
func (s *Scheduler) forget(ctx context.Context, run Run) error {
	i, is, err := s.Get(ctx, string(run.Payload))
	if err == nil && is && i.Generation == run.Token.Generation-1 {
		policy, _ := s.kinds.Policy(i.Kind)
		window, due, now := cmp.Or(policy.Once, defaultOnce), int64(task.Never), s.node.Now()
		if !i.Next.IsZero() { // otherwise it is parked or paused
			due = i.Next.UnixNano()
		}
		age := time.Duration(now - run.Due.UnixNano()) // at least a window less than that of the task
		return Snooze(time.Duration(checkOf(due, window, max(age, window), now) - now))
	}
	return err
}

// repeated returns the error of a verb that adds the tasks. If names are among the keys that are in use, it is a RepeatedError.
func repeated(err error, tasks []Task) error {
	if err == nil {
		return nil // used would be allocated
	}
	var used *node.DuplicateKeysError
	if !errors.As(err, &used) {
		return err
	}
	names := make(map[string]bool)
	for _, key := range used.Keys {
		if name, is := strings.CutPrefix(key, OncePrefix); is {
			names[name] = true
		}
	}
	var keys []string
	for _, t := range tasks {
		if names[t.Once] {
			keys = append(keys, t.Key)
		}
	}
	if keys == nil {
		return err
	}
	return &RepeatedError{keys}
}
