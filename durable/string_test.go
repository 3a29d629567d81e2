// SPDX-License-Identifier: MIT

package durable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// The printed form names its numbers.
func TestString_ofStatsAndInfo_reads(t *testing.T) {
	store := durable.Stats{Pending: 5, Parked: 1, Waiting: 2, Running: 3, Workers: 4, Added: 9, Removed: 6, ParkedTotal: 7,
		Started: 8, Retried: 1, Succeeded: 2, Failed: 5, Changes: 20, Commits: durable.Timing{Count: 10}}
	node := store
	node.Unhandled, node.Limited, node.OldestWait, node.Disk.Store = 11, 12, time.Second, 4096
	node.LongestRun, node.SinceStart = 2*time.Second, 3*time.Second
	node.Node = &durable.NodeStats{Lease: 5 * time.Second, LeaseAge: time.Second, Slow: 312 * time.Millisecond, Away: true, AwayFor: 7 * time.Second, AwayWhy: "claims: refused", CallsFailed: 1, Claimed: 2,
		TakenOver: 3, StartsRefused: 4, EndsRefused: 5, Calls: durable.Timing{Count: 6}}
	for want, s := range map[string]durable.Stats{
		"5 tasks pending, 1 of them parked; 2 runs waiting, 3 running on at most 4 workers; tasks: 9 added, 6 removed, " +
			"7 times parked; runs: 8 started, 1 retried, 2 succeeded, 5 failed; 20 changes in 10 commits": store,
		"5 tasks pending, 1 of them parked, 11 due without a handler; 2 runs waiting, 12 held back by a limit, 3 running " +
			"on at most 4 workers, the oldest wait is 1s, the longest run has taken 2s, the last one started 3s ago; tasks: 9 added, 6 removed, 7 times parked; runs: 8 started, " +
			"1 retried, 2 succeeded, 5 failed; 20 changes in 10 commits, 4096 bytes on the disk; node: lease of 5s, " +
			"renewed 1s ago, 6 calls and 1 failed, 2 claimed, 3 nodes taken over, 4 starts refused, 5 ends refused, " +
			"the engine takes 312ms to answer, the engine is away for 7s: claims: refused": node,
	} {
		if got := fmt.Sprint(s); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	next := time.Date(2000, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for want, i := range map[string]durable.Info{
		`"a" of kind "k": scheduled, due 2000-01-02T02:04:05Z, every 1m0s, forever, 3 bytes of payload version 1, token 10.2.a`: {
			Token: durable.Token{Key: "a", Generation: 16, Seq: 2}, Kind: "k", State: durable.Scheduled, Next: next,
			Interval: time.Minute, Times: durable.Forever, Payload: []byte("abc")},
		`"a" of kind "k": running, started 2000-01-02T02:04:05Z, runs left: 1, 0 bytes of payload version 1, token 0.0.a`: {
			Token: durable.Token{Key: "a"}, Kind: "k", State: durable.Running, Started: next, Times: 1},
		`"a" of kind "k": parked, at the latest 2000-01-02T02:04:05Z, by calendar "@daily", shifted by 1s, runs left: 2, ` +
			`missed: 3, failed attempts: 4, the last: "no", note "n", group "g", held by "m", 0 bytes of payload version 2, token 0.0.a`: {
			Token: durable.Token{Key: "a"}, Kind: "k", State: durable.Parked, Deadline: next, Cron: "@daily", Shift: time.Second, Times: 2, Missed: 3,
			Attempts: 4, Failure: "no", Note: "n", Group: "g", Node: "m", PayloadVersion: 2},
	} {
		if got := fmt.Sprint(i); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
