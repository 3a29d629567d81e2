// SPDX-License-Identifier: MIT

package memstore_test

import (
	"errors"
	"math"
	"testing"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable/memstore"
	"github.com/seed581295f1/timewheel/durable/storetest"
)

func TestStore_keepsTheContract(t *testing.T) {
	storetest.Test(t, func(*testing.T) storetest.Open {
		s := memstore.New()
		return func() (engine.Store, error) {
			s = s.Reopen()
			return s, nil
		}
	})
}

func TestStore_closed_saysSo(t *testing.T) {
	s := memstore.New()
	if err := s.Commit([]engine.Change{{Key: "k", From: engine.None, Due: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(nil); err == nil {
		t.Error("a closed store takes a commit")
	}
	if _, _, err := s.Get("k"); err == nil {
		t.Error("a closed store answers Get")
	}
	for _, err := range s.Due(engine.Position{}, math.MaxInt64) {
		if err == nil {
			t.Error("a closed store yields records")
		}
	}
	for _, err := range s.Keys() {
		if err == nil {
			t.Error("a closed store yields keys")
		}
	}
}

func TestSetFault_failsCommits_untilItEnds(t *testing.T) {
	s := memstore.New()
	full := errors.New("full")
	s.SetFault(full)
	add := []engine.Change{{Key: "k", From: engine.None, Due: 1}}
	if err := s.Commit(add); !errors.Is(err, full) || s.Len() != 0 {
		t.Errorf("with a fault: %v, %d records", err, s.Len())
	}
	s.SetFault(nil)
	if err := s.Commit(add); err != nil || s.Len() != 1 {
		t.Errorf("without it: %v, %d records", err, s.Len())
	}
}
