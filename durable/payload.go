// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

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
// version must be from 2 to 1,000. upgrade may be nil only if the kind has no handler here: see [Scheduler.Declare].
func WithPayloadVersion(version int, upgrade func(payload []byte, from int) ([]byte, error)) KindOption {
	return func(k *kind) error {
		if version < 2 || version > task.MostVersion {
			return fmt.Errorf("durable: version %d of the payload; 2 to %d are allowed", version, task.MostVersion)
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
