// SPDX-License-Identifier: MIT

package node

import (
	"testing"
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
