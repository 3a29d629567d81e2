// SPDX-License-Identifier: MIT

package durable

import (
	"iter"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// getRecord returns the decoded record of the key, or nil if the store has none.
func getRecord(store engine.Store, key string) (*task.Record, error) {
	stored, ok, err := store.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	return task.Decode(stored)
}

// decoded returns a walk over the same records, decoded. It ends after the first error.
func decoded(walk iter.Seq2[engine.Record, error]) iter.Seq2[*task.Record, error] {
	return func(yield func(*task.Record, error) bool) {
		for stored, err := range walk {
			var rec *task.Record
			if err == nil {
				rec, err = task.Decode(stored)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}
