// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// HandleJSON is [Scheduler.Handle] for payloads that are JSON, as [Scheduler.AddJSON] and [Scheduler.SetJSON]
// make them. h is called with the payload as a T. A task whose payload is no T is parked at once, with the error
// of package encoding/json. To change T in a way that old payloads do not fit, see [WithPayloadVersion].
func HandleJSON[T any](s *Scheduler, kind string, h func(ctx context.Context, run Run, payload T) error,
	opts ...KindOption,
) error {
	if h == nil {
		return errNoHandler
	}
	return s.Handle(kind, func(ctx context.Context, run Run) error {
		var payload T
		if err := json.Unmarshal(run.Payload, &payload); err != nil {
			return Park(fmt.Errorf("payload does not fit %T: %w", payload, err))
		}
		return h(ctx, run, payload)
	}, opts...)
}

// AddJSON adds the task with the payload as JSON, as [Scheduler.AddTask] does. Whatever else adds a task can
// have such a payload from json.Marshal. The error wraps ErrInvalidTask if the payload cannot be JSON.
func (s *Scheduler) AddJSON(ctx context.Context, task Task, payload any) error {
	if err := task.setJSON(payload); err != nil {
		return err
	}
	return s.AddTask(ctx, task)
}

// SetJSON adds the task with the payload as JSON, or replaces the one of that key, as [Scheduler.SetTask]
// does. With MaxDelay the run has the payload of the last SetJSON. The error wraps ErrInvalidTask if the
// payload cannot be JSON: then the task that was there stays.
func (s *Scheduler) SetJSON(ctx context.Context, task Task, payload any) error {
	if err := task.setJSON(payload); err != nil {
		return err
	}
	return s.SetTask(ctx, task)
}

// setJSON makes the payload that of the task.
func (t *Task) setJSON(payload any) (err error) {
	if t.Payload, err = json.Marshal(payload); err != nil {
		return fmt.Errorf("%w: payload of %q: %w", ErrInvalidTask, t.Key, err)
	}
	return nil
}

// WithPayloadVersion sets the version of the payloads' form that the handler takes. Without it that is 1.
// Tasks that this scheduler adds have payloads of that version, unless [Task].PayloadVersion says otherwise.
//
// A payload of an earlier version is given to upgrade before the handler is called, and the handler gets what
// upgrade returns. An error of upgrade parks the task at once. upgrade must not change its argument, which
// stays in the store.
//
// A payload of a later version is left alone, as if its kind had no handler here. Another node runs it, or a
// later process. So a form changes by a rolling deploy: while nodes of both versions are there, those of the
// old version run what the old ones have added, and those of the new version run everything.
//
// version must be 2 to 1,000, and upgrade must not be nil.
func WithPayloadVersion(version int, upgrade func(payload []byte, from int) ([]byte, error)) KindOption {
	return func(k *kind) error {
		switch {
		case version < 2 || version > task.MostVersion:
			return fmt.Errorf("durable: version %d of the payload; 2 to %d are allowed", version, task.MostVersion)
		case upgrade == nil:
			return errors.New("durable: upgrade is nil")
		}
		k.policy.Version, k.policy.Upgrade = version, upgrade
		return nil
	}
}

// call calls the handler, with a payload of its version.
func (k *kind) call(ctx context.Context, run Run) error {
	if from := max(run.rec.Version, 1); from < k.policy.Version {
		var err error
		if run.Payload, err = k.policy.Upgrade(run.Payload, from); err != nil {
			return Park(fmt.Errorf("payload of version %d is not upgraded to %d: %w", from, k.policy.Version, err))
		}
	}
	return k.handler(ctx, run)
}

// byKind returns the counts of an engine, which counts by class, by kind.
func byKind(classes []engine.KindCount) (kinds []KindCounts) {
	of := make(map[string]int)
	for _, c := range classes {
		kind, _, _ := strings.Cut(c.Kind, task.ClassMark)
		i, known := of[kind]
		if !known {
			i = len(kinds)
			of[kind] = i
			kinds = append(kinds, KindCounts{Kind: kind})
		}
		k := &kinds[i]
		k.Tasks, k.Failing = k.Tasks+c.Tasks, k.Failing+c.Failing
		k.Parked, k.Paused = k.Parked+c.Parked, k.Paused+c.Paused
	}
	return kinds
}
