// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// sizes are how much is measured.
type sizes struct {
	live     int           // far tasks there are before verbs are measured
	verbs    time.Duration // for which verbs are
	idle     time.Duration // for which nodes without anything due are measured
	rate     int           // tasks that fall due in a second of the sustained case
	sustain  time.Duration // for which they do
	burst    int           // tasks that are due at one instant
	commits  time.Duration // for which the transactions of the user are measured, with and without a task
	dead     int           // dead rows that claims are measured with
	held     int           // tasks that nodes run while a transaction is open
	few      int           // far tasks that a larger number is compared with,
	many     int           // and that number
	cycles   int           // tasks that are added and run among the larger number
	vacuum   time.Duration // how long autovacuum is waited for after half of them
	patience time.Duration // how long after the last due time a run is waited for
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

// A measurement makes a case of a peer, whose name it is given.
type measurement func(p peer, name string, size sizes) (figures, error)

var measurements = map[string]measurement{
	"add-64":    measureAdds(64),
	"add-1024":  measureAdds(1024),
	"add-batch": measureBatches,
	"remove":    measureRemoves,
	"sustained": measureSustained,
	"seldom":    measureSeldom,
	"idle":      measureIdle,
	"burst":     measureBurst,
	"take-over": measureTakeOver,
	"tx":        measureTx,
	"claim":     measureClaims,
	"held":      measureHeld,
	tenMillion:  measureMany,
}

func caseNames() []string {
	return []string{
		"add-64", "add-1024", "add-batch", "remove", "sustained", "seldom", "idle", "burst", "take-over", "tx", "claim", "held", tenMillion,
	}
}

const (
	batch       = 1000 // tasks that one call adds
	batchers    = 2    // goroutines that do
	connections = 64   // that the pool of a peer may have at most, if its user chooses the number
)

// together calls f with the numbers from 0 on, from the given number of goroutines, until n calls have been
// made or the time is over. It returns the number of calls, and of calls a second.
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
