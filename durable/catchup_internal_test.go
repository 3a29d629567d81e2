// SPDX-License-Identifier: MIT

package durable

import (
	"testing"
	"time"
)

// A start of a task that has become overdue since the last count is not subtracted from that count.
func TestOverdueStarts_ofTasksThatWereNotCounted(t *testing.T) {
	var o overdueStarts
	now := time.Now()
	o.until.Store(100)
	for due := range int64(200) {
		o.note(&record{due: due + 1}, now)
	}
	if n := o.counted.Load(); n != 100 {
		t.Errorf("%d are subtracted, want 100", n)
	}
}
