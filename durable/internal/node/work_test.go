// SPDX-License-Identifier: MIT

package node

import (
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// A node names the kind with the most runs. Among several it names the one with the longest run, and never one that
// JSON would change.
func TestBusiest_isWhatAReportCanHold(t *testing.T) {
	ago := func(runs int, d time.Duration) Progress { return Progress{runs, time.Now().Add(-d)} }
	for want, kinds := range map[string]map[string]Progress{
		"":     {},
		"many": {"many": ago(3, time.Second), "old": ago(2, time.Hour)},
		"old":  {"new": ago(2, time.Second), "old": ago(2, time.Hour)},
		"text": {"\xff": ago(3, time.Second), "text": ago(1, time.Second)},
	} {
		if got := (&Workload{Kinds: kinds}).busiest(); got.Kind != want || got.Running != kinds[want].Runs ||
			(got.Longest-kinds[want].Longest()).Abs() > time.Minute {
			t.Errorf("of %v the busiest is %+v, want %s", kinds, got, want)
		}
	}
	long := Report{Busiest: KindRuns{Kind: strings.Repeat("\x00", 1<<8), Running: 1}}
	if b := long.encode(1); len(b) > engine.MaxReport || reportOf(engine.Membership{Report: b}).Busiest != long.Busiest {
		t.Errorf("a report of a long kind is %s", b)
	}
}
