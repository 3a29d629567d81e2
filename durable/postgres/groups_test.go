// SPDX-License-Identifier: MIT

package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/postgres"
)

// A task that is added in a transaction has its group, and keeps it when it is moved in one.
func TestAddTaskTx_group(t *testing.T) {
	e := open(t)
	conn := connect(t, shared.URL())
	tx, err := conn.Begin(t.Context())
	check(t, err)
	with, without := task("with", time.Hour), task("without", time.Hour)
	with.Group = "g\x00\xff"
	check(t, e.AddTaskTx(t.Context(), tx, with, without))
	check(t, e.RescheduleTx(t.Context(), tx, "with", time.Minute))
	check(t, tx.Commit(t.Context()))
	for key, want := range map[string]string{"with": with.Group, "without": ""} {
		if got := get(t, e, key); got == nil || got.Group != want {
			t.Errorf("%q is %+v, want the group %q", key, got, want)
		}
	}
	var none bool
	check(t, conn.QueryRow(t.Context(), e.Text("SELECT grp IS NULL FROM $schema.task WHERE key = 'without'")).Scan(&none))
	if !none {
		t.Error("a task without a group is in the index of groups")
	}
}

// A crowd of due tasks does not make claims of other kinds or pages of a walk read more. A claim in turns reads no more
// of a group with many tasks than of one with few. Whether the table was analyzed does not matter.
func TestClaim_whileACrowdIsDue_readsNoMore(t *testing.T) {
	e := open(t)
	id, now, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	conn := connect(t, shared.URL())
	exec(t, conn, e.Text("ALTER TABLE $schema.task SET (autovacuum_enabled = off)"))
	filled := 0
	fill := func(kind, group string, n int, due int64) {
		filled++
		exec(t, conn, e.Text("INSERT INTO $schema.task (key, due, revision, kind, data, grp) "+
			"SELECT convert_to($5::int || '.' || i, 'UTF8'), $4, i, convert_to($1::text, 'UTF8'), 'data', "+
			"nullif(convert_to($2::text, 'UTF8'), '') FROM generate_series(1, $3::int) i"), kind, group, n, due, filled)
	}
	names := func(kinds ...string) (all [][]byte) {
		for _, kind := range kinds {
			all = append(all, []byte(kind))
		}
		return all
	}
	all := []byte{255}
	reads := func() map[string]int {
		return map[string]int{
			"a claim of a kind": readsOf(t, e, conn, postgres.ClaimSQL(e), int64(id), names("kind"), int64(0), now, 100, all),
			"a claim of two kinds": readsOf(t, e, conn, postgres.ClaimSQL(e), int64(id), names("kind", "other"), int64(0), now,
				100, all),
			"a claim in turns": readsOf(t, e, conn, postgres.TurnsSQL(e), int64(id), names("kind"), []byte(""), now, 30, all),
			"a page of a walk": readsOf(t, e, conn, postgres.DueSQL(e), int64(0), []byte(""), now, 64),
			"a claim in turns of idle groups": readsOf(t, e, conn, postgres.TurnsSQL(e), int64(id), names("idle"), []byte(""),
				now, 30, all),
		}
	}
	idle := func(from, to int) {
		exec(t, conn, e.Text("INSERT INTO $schema.task (key, due, revision, kind, data, grp) SELECT convert_to('idle' || i, "+
			"'UTF8'), $3, i, 'idle', 'data', convert_to('group' || i, 'UTF8') FROM generate_series($1::int, $2::int) i"),
			from, to, now+int64(time.Hour))
	}
	idle(1, 1100)
	for i := range 20 {
		fill("kind", fmt.Sprint("group ", i), 50, now)
	}
	fill("kind", "", 200, now)
	fill("other", "", 200, now)
	fill("crowd", "", 1000, now-1)
	fill("crowd", "group 3", 1000, now-1)
	before := reads()
	idle(1101, 5000)
	fill("crowd", "", 50_000, now-1)
	fill("crowd", "group 3", 50_000, now-1)
	fill("kind", "group 3", 50_000, now)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, conn, e.Text("ANALYZE $schema.task"))
		}
		for what, n := range reads() {
			t.Logf("%s reads %d blocks, and %d while a crowd is due", what, before[what], n)
			if n > 2*before[what] {
				t.Errorf("%s reads %d blocks, and %d while a crowd is due; analyzed: %v", what, before[what], n, analyzed)
			}
		}
	}
}
