// SPDX-License-Identifier: MIT

package durable

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTiming_buckets_haveTheirBounds(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: 0, -time.Second: 0, 100 * time.Microsecond: 0, 100*time.Microsecond + 1: 1, 200 * time.Microsecond: 1,
		TimingBound(TimingBuckets - 1): TimingBuckets - 1, TimingBound(TimingBuckets-1) + 1: -1, time.Hour: -1,
	} {
		var all timing
		all.add(d)
		got := all.read()
		if got.Count != 1 || got.Total != d {
			t.Errorf("%v is read as %+v", d, got)
		}
		for i, n := range got.Buckets {
			if (n == 1) != (i == want) {
				t.Errorf("%v is in the buckets %v, want %d", d, got.Buckets, want)
			}
		}
	}
	if last := TimingBound(TimingBuckets - 1); last < 10*time.Second {
		t.Errorf("the last bound is %v, and a commit may take 10 s", last)
	}
}

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
