// SPDX-License-Identifier: MIT

package fingerprint_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/seed581295f1/timewheel/durable/internal/fingerprint"
	"github.com/seed581295f1/timewheel/internal/testkit"
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

// The memory of a key: go test -run none -bench Set
func BenchmarkSet(b *testing.B) {
	for _, keys := range []int{1_000_000, 2_000_000, 3_000_000, 5_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			for b.Loop() {
				before := testkit.Heap()
				s := fingerprint.New()
				for key := range keys {
					s.Add(s.Of(fmt.Sprint("order:", key)))
				}
				b.ReportMetric(float64(testkit.Heap()-before)/float64(keys), "B/key")
				runtime.KeepAlive(s)
			}
		})
	}
}
