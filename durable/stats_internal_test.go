// SPDX-License-Identifier: MIT

package durable

import (
	"testing"
	"testing/synctest"
	"time"
)

// A rate covers the last ten complete seconds, and is known once there are ten.
func TestRate_isOfTheSecondsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rate
		for second, want := range []float64{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0} {
			for range 10 * max(1-second, 0) { // in the first second alone
				r.note(time.Now())
			}
			if perSecond, known := r.read(); perSecond != want || known != (second >= 10) {
				t.Errorf("second %d: %v a second, %v, want %v", second, perSecond, known, want)
			}
			time.Sleep(time.Second)
		}
	})
}
