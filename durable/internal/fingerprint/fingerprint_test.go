// SPDX-License-Identifier: MIT

package fingerprint_test

import (
	"testing"

	"github.com/seed581295f1/timewheel/durable/internal/fingerprint"
)

// A fingerprint is in the set as long as a key has it.
func TestSet_counts(t *testing.T) {
	s := fingerprint.New()
	for n := range 4 {
		if s.Count(7) != n || s.Has(7) != (n > 0) {
			t.Errorf("after %d keys there are %d", n, s.Count(7))
		}
		s.Add(7)
	}
	for n := 4; n > 0; n-- {
		s.Remove(7)
		if s.Count(7) != n-1 || s.Has(7) != (n > 1) {
			t.Errorf("of %d keys one is removed, and there are %d", n, s.Count(7))
		}
	}
	if s.Of("a") == s.Of("b") || s.Len() != 0 {
		t.Error("two keys have one fingerprint, or some are left")
	}
}
