// SPDX-License-Identifier: MIT

package durable

import (
	"iter"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// getRecord returns the store's record of the key, decoded, or nil.
func getRecord(store engine.Store, key string) (*record, error) {
	stored, ok, err := store.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	return decode(stored)
}

// decoded is a walk over records, decoded.
func decoded(walk iter.Seq2[engine.Record, error]) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		for stored, err := range walk {
			var rec *record
			if err == nil {
				rec, err = decode(stored)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}
