// SPDX-License-Identifier: MIT

package enginetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
)

// The locks of two transactions, and a transaction that waits in vain.
func TestTransaction_waitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := t.Context(), enginetest.NewLocks(memory.New().Shared())
		first, second := e.Begin(), e.Begin()
		_, err := first.Write(ctx, add("ada", 1))
		ok(t, err)
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := second.Lock(brief, "ada"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second lock of a key returns %v", err)
		}
		time.AfterFunc(time.Second, func() { ok(t, first.Commit()) })
		if unmet, err := second.Write(ctx, add("ada", 2)); err != nil || !slices.Equal(unmet, []string{"ada"}) {
			t.Errorf("unmet are %q, %v", unmet, err)
		}
		second.Rollback()
	})
}

// A commit that arrives in time does not come too late because it waits for a lock, and one that comes too late does not
// wait.
func TestLocks_arrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := t.Context(), enginetest.NewLocks(memory.New().Shared())
		tx := e.Begin()
		ok(t, tx.Lock(ctx, "ada"))
		time.AfterFunc(time.Hour, tx.Rollback)
		w, began := add("ada", 1), time.Now()
		for _, late := range []bool{true, false} {
			w.Now = time.Now().UnixNano()
			if late {
				w.Now -= int64(engine.MaxStale) + 1
			}
			r, err := e.Commit(ctx, 0, []engine.Batch{{w}})
			ok(t, err)
			if waits := time.Since(began) > 0; waits == late || (len(r[0].Written) == 0) != late || (r[0].Late == 0) == late {
				t.Errorf("late: %v, and the result is %+v", late, r[0])
			}
		}
	})
}

func TestLocks_RollBack_endsAllTransactions(t *testing.T) {
	ctx, e := t.Context(), enginetest.NewLocks(memory.New().Shared())
	tx := e.Begin()
	_, err := tx.Write(ctx, add("ada", 1))
	ok(t, err)
	e.RollBack()
	if tx.Commit() == nil || count(ctx, e) != 0 {
		t.Error("a transaction that was rolled back is committed")
	}
	if _, err := tx.Write(ctx, add("bob", 1)); err == nil {
		t.Error("a transaction that was rolled back writes")
	}
	ok(t, e.Begin().Lock(ctx, "ada"))
}
