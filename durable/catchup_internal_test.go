// SPDX-License-Identifier: MIT

package durable

import (
	"testing"
	"testing/synctest"
	"time"
)

// If a task became overdue after the last count, its start is not subtracted from that count.
func TestOverdueStarts_ofTasksThatWereNotCounted(t *testing.T) {
	var o overdueStarts
	now := time.Now()
	o.until.Store(100)
	for due := range int64(200) {
		o.note(due+1, now)
	}
	if n := o.counted.Load(); n != 100 {
		t.Errorf("%d are subtracted, want 100", n)
	}
}

// A rate covers the last ten complete seconds, and is unknown before they have passed.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rate
		for i := range 250 {
			perSecond, ok := r.read()
			if known := i >= 100; i > 0 && ok != known || known && perSecond != 10 {
				t.Errorf("after %v it is %v, %v", time.Duration(i)*100*time.Millisecond, perSecond, ok)
			}
			r.note(time.Now())
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		r.note(time.Now())
		if _, ok := r.read(); ok {
			t.Error("it is known after a pause")
		}
	})
}
