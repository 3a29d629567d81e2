// SPDX-License-Identifier: MIT

package kv_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// A restorable is a KV whose entries can be replaced by older ones.
type restorable struct{ *memory.KV }

func entries(t *testing.T, kv engine.KV) (all []engine.Entry) {
	t.Helper()
	for e, err := range kv.Scan(t.Context(), "\x00", "\xff") {
		ok(t, err)
		all = append(all, e)
	}
	return all
}

// restore replaces the entries. The KV gives no version again.
func (r restorable) restore(t *testing.T, to []engine.Entry) {
	t.Helper()
	tx := engine.Tx{Put: to}
	for _, e := range entries(t, r.KV) {
		tx.Delete = append(tx.Delete, e.Key)
	}
	_, err := r.Commit(context.Background(), engine.Tx{Delete: tx.Delete}, engine.Tx{Put: tx.Put})
	ok(t, err)
}

// A member that joined after the backup is gone, and a member that joins since has another ID.
func TestShared_restoredToABackup(t *testing.T) {
	kv := restorable{memory.New()}
	e := open(t, kv)
	write(t, e, 0, add("k"))
	backup := entries(t, kv)
	before := join(t, e, "before", time.Hour)
	had := claim(t, e, before)
	kv.restore(t, backup)
	since := join(t, e, "since", time.Hour)
	has := claim(t, e, since)
	if before == since || len(had) != 1 || len(has) != 1 || has[0].Revision <= had[0].Revision {
		t.Fatalf("member %d held %+v, and now %d holds %+v", before, had, since, has)
	}
	if _, _, err := e.Renew(t.Context(), before, nil); !errors.Is(err, engine.ErrMemberGone) {
		t.Errorf("a member from before the restore renews its lease: %v", err)
	}
	if _, _, err := e.Confirm(t.Context(), before, []engine.Claim{claimOf(has[0])}, time.Second); !errors.Is(err, engine.ErrMemberGone) {
		t.Errorf("it starts a run: %v", err)
	}
	if !confirms(t, e, since, has[0]) {
		t.Error("the later claim is not confirmed")
	}
}

// An exclusive engine opens a backup. Its revisions are greater than all revisions of the earlier process, although the
// backup lacks them.
func TestExclusive_opensABackup(t *testing.T) { synctest.Test(t, opensABackup) }

func opensABackup(t *testing.T) {
	kv := restorable{memory.New()}
	e := open(t, memory.Exclusive(kv.KV))
	write(t, e, 0, add("k"))
	backup := entries(t, kv)
	for range 5 { // each process reserves more
		e = open(t, memory.Exclusive(kv.KV))
	}
	last := write(t, e, 0, add("lost")).Revision
	time.Sleep(time.Hour)
	kv.restore(t, backup)
	e = open(t, memory.Exclusive(kv.KV))
	if r := write(t, e, 0, add("since")).Revision; r <= last {
		t.Errorf("the revision is %d, and it was %d before", r, last)
	}
}

// The clock is set back while no process runs. The claims of the next process have greater revisions than the last one,
// which has written nothing.
func TestExclusive_claimsAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, claimsAfterTheClockWasSetBack)
}

func claimsAfterTheClockWasSetBack(t *testing.T) {
	m := memory.New()
	e := open(t, memory.Exclusive(m))
	write(t, e, 0, add("k"))
	var last int64
	for range 5 {
		m.Step(-time.Minute)
		e = open(t, memory.Exclusive(m))
		task := claim(t, e, join(t, e, "a", time.Hour))[0]
		if task.Revision <= last {
			t.Errorf("the claim has the revision %d, after %d", task.Revision, last)
		}
		last = task.Revision
	}
}
