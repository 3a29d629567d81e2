// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// sizes are the sizes of the measurements.
type sizes struct {
	live     int           // far tasks that exist before verbs are measured
	verbs    time.Duration // duration of the measurement of verbs
	idle     time.Duration // duration of the measurement of idle nodes
	rate     int           // tasks due per second in the sustained case
	sustain  time.Duration // duration of the sustained case
	burst    int           // tasks due at one instant
	commits  time.Duration // duration of the measurement of a user's transactions, with and without a task
	dead     int           // dead rows for the measurement of claims
	held     int           // tasks that nodes run while a transaction is open
	few      int           // number of far tasks to compare
	many     int           // with this larger number
	cycles   int           // tasks that are added and run next to the larger number
	vacuum   time.Duration // how long to wait for autovacuum after half of them
	patience time.Duration // how long to wait for a run after the last due time
}

var (
	full = sizes{
		live: 100_000, verbs: 5 * time.Second, idle: time.Minute, rate: 5000, sustain: 20 * time.Second, burst: 20_000,
		commits: 10 * time.Second, dead: 200_000, held: 200_000, few: 100_000, many: 10_000_000, cycles: 1_000_000,
		vacuum: 2 * time.Minute, patience: time.Minute,
	}
	small = sizes{
		live: 20_000, verbs: 2 * time.Second, idle: 20 * time.Second, rate: 5000, sustain: 5 * time.Second, burst: 20_000,
		commits: 3 * time.Second, dead: 200_000, held: 50_000, few: 10_000, many: 100_000, cycles: 100_000,
		vacuum: 70 * time.Second, patience: 40 * time.Second,
	}
)

func sizesOf(quick bool) sizes {
	if quick {
		return small
	}
	return full
}

// A measurement runs a case for a peer with the given name.
type measurement func(p peer, name string, size sizes) (figures, error)

var measurements = map[string]measurement{
	"add-64":    measureAdds(64),
	"add-1024":  measureAdds(1024),
	"add-batch": measureBatches,
	"remove":    measureRemoves,
	"sustained": measureSustained,
	"seldom":    measureSeldom,
	limitedCase: measureLimited,
	"at-once":   measureAtOnce,
	repeatsCase: measureRepeats,
	tenCase:     measureTen,
	"idle":      measureIdle,
	"burst":     measureBurst,
	"take-over": measureTakeOver,
	"tx":        measureTx,
	"claim":     measureClaims,
	"held":      measureHeld,
	historyCase: measureHistory,
	tenMillion:  measureMany,
}

// oursAlone are the cases that are measured only for durable/postgres.
var oursAlone = []string{limitedCase, repeatsCase, tenCase, historyCase, tenMillion}

func caseNames() []string {
	return []string{
		"add-64", "add-1024", "add-batch", "remove", "sustained", "seldom", limitedCase, repeatsCase, "at-once", "idle", tenCase, "burst", "take-over", "tx", "claim", "held", historyCase, tenMillion,
	}
}

const (
	batch       = 1000 // tasks added by one call
	batchers    = 2    // goroutines that add batches
	connections = 64   // largest pool of a peer, if its user chooses the size
)

// together calls f with the numbers from 0 on, from the given number of goroutines, until n calls have been made or the
// time is up. It returns the number of calls and the calls per second.
func together(
	goroutines, n int, most time.Duration, f func(ctx context.Context, i int) error,
) (calls int, ops float64, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var next, done atomic.Int64
	var wait sync.WaitGroup
	began := time.Now()
	for range goroutines {
		wait.Go(func() {
			for ctx.Err() == nil && time.Since(began) < most {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wait.Wait()
	took := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return 0, 0, err
	}
	return int(done.Load()), float64(done.Load()) / took.Seconds(), nil
}
