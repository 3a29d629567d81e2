// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Members with leases of milliseconds claim while they are reaped. No task may be left with a member that is gone. With
// a detail removed some are.
func TestReap_whileMembersClaim_leavesNothingWithTheDead(t *testing.T) {
	eachFound(t, 10, "tasks left with members that are gone", []sabotage{ // a broken promise shows in most tries
		{"", false},
		{"6 a claim does not lock its member", true},
		{"a slow reaper", false},
		{"7 a slow reaper of one statement", true},
	}, orphans)
}

// orphans returns how many tasks have an owner that is not a member, after concurrent claims and reaps.
func orphans(t *testing.T, without string) (n int) {
	t.Helper()
	e := open(t)
	e.Break(without)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const tasks, callers, joins = 2000, 4, 30
	var batch engine.Batch
	for i := range tasks {
		batch = append(batch, add(fmt.Sprint(i), int64(i)))
	}
	commit(t, e, 0, batch...)
	done := make(chan struct{})
	var reaper, all sync.WaitGroup
	for range 2 {
		reaper.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := e.Reap(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range callers {
		all.Go(func() {
			for i := range joins {
				id, _, err := e.Join(ctx, "brief", time.Millisecond<<(i%5))
				for range 3 {
					if err == nil {
						_, err = e.Claim(ctx, engine.ClaimRequest{By: id, Kinds: []string{"kind"}, After: -1, Until: tasks,
							Most: 50, Readable: math.MaxUint8})
					}
				}
				if err != nil && !errors.Is(err, engine.ErrMemberGone) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	close(done)
	reaper.Wait()
	check(t, connect(t, shared.URL()).QueryRow(ctx, e.Text("SELECT count(*) FROM $schema.task t "+
		"WHERE owner IS NOT NULL AND NOT EXISTS (SELECT FROM $schema.member m WHERE m.id = t.owner)")).Scan(&n))
	return n
}
