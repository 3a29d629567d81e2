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

// HandleJSON is like [Scheduler.Handle], but for JSON payloads such as those of [Scheduler.AddJSON] and
// [Scheduler.SetJSON]. It decodes each payload into a T and passes the result to h. If decoding fails, the task is
// parked at once with the error from package encoding/json. For changes to T that break old payloads, see
// [WithPayloadVersion].
func HandleJSON[T any](s *Scheduler, kind string, h func(ctx context.Context, run Run, payload T) error,
	opts ...KindOption,
) error {
	if h == nil {
		return errNoHandler
	}
	return s.Handle(kind, func(ctx context.Context, run Run) error {
		var payload T
		if err := json.Unmarshal(run.Payload, &payload); err != nil {
			return Park(fmt.Errorf("payload does not decode into %T: %w", payload, err))
		}
		return h(ctx, run, payload)
	}, opts...)
}

// AddJSON encodes the payload as JSON and adds the task with it, as [Scheduler.AddTask] does. For other verbs, set
// [Task].Payload to the result of json.Marshal. If encoding fails, the error wraps ErrInvalidTask.
func (s *Scheduler) AddJSON(ctx context.Context, task Task, payload any) error {
	if err := task.setJSON(payload); err != nil {
		return err
	}
	return s.AddTask(ctx, task)
}

// SetJSON encodes the payload as JSON and adds the task with it, or replaces the existing task with the same key, as
// [Scheduler.SetTask] does. With MaxDelay, the run gets the payload of the last SetJSON call. If encoding fails, the
// error wraps ErrInvalidTask, and the existing task is unchanged.
func (s *Scheduler) SetJSON(ctx context.Context, task Task, payload any) error {
	if err := task.setJSON(payload); err != nil {
		return err
	}
	return s.SetTask(ctx, task)
}

// setJSON encodes the payload into the task.
func (t *Task) setJSON(payload any) (err error) {
	if t.Payload, err = json.Marshal(payload); err != nil {
		return fmt.Errorf("%w: payload of %q: %w", ErrInvalidTask, t.Key, err)
	}
	return nil
}

// WithPayloadVersion sets the version of the payloads that the handler accepts. The default is 1. Tasks added by this
// scheduler have payloads with that version, unless [Task].PayloadVersion is set.
//
// A payload with an earlier version is passed to upgrade, and the handler receives the result. If upgrade returns an
// error, the task is parked at once. upgrade must not modify its argument, which remains in the store.
//
// A task whose payload has a later version is left alone, as if its kind had no handler on this scheduler. Another node
// or a later process runs the task. Payloads can therefore change in a rolling deployment: nodes of the old version run
// the old payloads, and nodes of the new version run all payloads.
//
// version must be from 2 to 1,000, and upgrade must not be nil.
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

// call calls the handler, with the payload upgraded to the handler's version if necessary.
func (k *kind) call(ctx context.Context, run Run) error {
	if from := max(run.rec.Version, 1); from < k.policy.Version {
		var err error
		if run.Payload, err = k.policy.Upgrade(run.Payload, from); err != nil {
			return Park(fmt.Errorf("payload of version %d is not upgraded to %d: %w", from, k.policy.Version, err))
		}
	}
	return k.handler(ctx, run)
}

// byKind combines an engine's counts, which are by class, into counts by kind.
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
