// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// claimed claims the only due task of a kind for a new member.
func claimed(t *testing.T, e *postgres.Engine, name string) (engine.MemberID, engine.Stored) {
	t.Helper()
	id, now, err := e.Join(t.Context(), name, time.Hour)
	check(t, err)
	got, err := e.Claim(t.Context(), engine.ClaimRequest{By: id, Kinds: []string{"kind"}, Until: now, Most: 10, Readable: 255})
	check(t, err)
	if len(got.Tasks) != 1 {
		t.Fatalf("%s has claimed %d tasks", name, len(got.Tasks))
	}
	return id, got.Tasks[0]
}

// lost checks that a member from before a restore may do nothing. since has claimed the task after the restore.
func lost(t *testing.T, e *postgres.Engine, before, since engine.MemberID, had, has engine.Stored) {
	t.Helper()
	ctx := t.Context()
	if before == since {
		t.Errorf("two members have the ID %d", since)
	}
	if has.Revision <= had.Revision {
		t.Errorf("the later claim has the revision %d, and the one before the restore %d", has.Revision, had.Revision)
	}
	for what, err := range map[string]error{
		"renew": func() error { _, _, err := e.Renew(ctx, before, nil); return err }(),
		"claim": func() error {
			_, err := e.Claim(ctx, engine.ClaimRequest{By: before, Kinds: []string{"kind"}, Until: had.Due, Most: 1, Readable: 255})
			return err
		}(),
		"confirm": func() error {
			_, _, err := e.Confirm(ctx, before, []engine.Claim{{Key: had.Key, Revision: has.Revision}}, time.Second)
			return err
		}(),
		"release": e.Release(ctx, before, []engine.Claim{{Key: had.Key, Revision: has.Revision}}),
	} {
		if !errors.Is(err, engine.ErrMemberGone) {
			t.Errorf("%s by a member from before the restore: %v", what, err)
		}
	}
	end := engine.Write{Record: engine.Record{Key: had.Key}, If: engine.IfUnchanged, Revision: had.Revision}
	if r, err := e.Commit(ctx, before, []engine.Batch{{end}}); err != nil || len(r[0].Unmet) == 0 {
		t.Errorf("the end of a run from before the restore counts: %v", err)
	}
	if held, _, err := e.Confirm(ctx, since, []engine.Claim{{Key: has.Key, Revision: has.Revision}}, time.Second); err != nil || !held[0] {
		t.Errorf("the start of the later claim is %v, %v", held, err)
	}
}

// An older backup replaces the rows and the sequences while the connections stay open. The task was added
// before the backup, and claimed after it.
func TestRestore_inPlace(t *testing.T) {
	e := open(t)
	conn := connect(t, shared.URL())
	commit(t, e, 0, add("k", 1))
	was := get(t, e, "k")
	before, had := claimed(t, e, "before")
	exec(t, conn, e.Text("DELETE FROM $schema.member"))
	exec(t, conn, e.Text("ALTER TABLE $schema.member ALTER COLUMN id RESTART WITH 1"))
	exec(t, conn, e.Text("UPDATE $schema.task SET owner = NULL, revision = $1"), was.Revision)
	exec(t, conn, fmt.Sprintf(e.Text("ALTER SEQUENCE $schema.revision RESTART WITH %d"), was.Revision-5_000_000))
	since, has := claimed(t, e, "since")
	lost(t, e, before, since, had, has)
}

// A member whose row is in the backup renews its lease before it claims. So its claims have later revisions, too.
func TestRestore_ofAMemberThatLives(t *testing.T) {
	e := open(t)
	conn := connect(t, shared.URL())
	id, _, err := e.Join(t.Context(), "lives", time.Hour)
	check(t, err)
	commit(t, e, 0, add("lost", 1))
	last := get(t, e, "lost").Revision
	exec(t, conn, e.Text("ALTER SEQUENCE $schema.revision RESTART WITH 1"))
	_, now, err := e.Renew(t.Context(), id, nil)
	check(t, err)
	if r := commit(t, e, 0, add("k", now)); r[0].Revision <= last {
		t.Errorf("the revision %d follows %d", r[0].Revision, last)
	}
}

// Two nodes work on while an older backup replaces the rows and the sequences. Each of its tasks runs once more, with a
// later fence, also a task that a third node claims before it crashes: the first nodes neither keep its lease alive nor
// start the tasks that it has claimed.
func TestRestore_whileTwoNodesWork_runsEachTaskOnce(t *testing.T) {
	eachFound(t, 1, "tasks that do not run once with a later fence", []sabotage{
		{"", false}, {"the numbers of members come from a sequence", true},
	}, wrongAfterRestore)
}

// wrongAfterRestore returns how many tasks do not run exactly once after a restore, or with a fence from before.
func wrongAfterRestore(t *testing.T, without string) (wrong int) {
	t.Helper()
	const tasks = 20
	ctx, conn, at := t.Context(), connect(t, server(t)), schema()
	var mu sync.Mutex
	ran := make(map[string][]int64) // the fences of each task
	total := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, fences := range ran {
			n += len(fences)
		}
		return n
	}
	await := func(n int, within time.Duration) {
		for end := time.Now().Add(within); total() < n && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	var nodes []*durable.Scheduler
	var e *postgres.Engine
	for range 2 {
		e = open(t, at)
		e.Break(without)
		s, err := durable.New(ctx, e, durable.WithLogger(testkit.Quiet()), durable.WithLease(2*time.Second))
		check(t, err)
		defer func() { check(t, s.Shutdown(context.WithoutCancel(ctx))) }()
		check(t, s.Handle("kind", func(_ context.Context, run durable.Run) error {
			mu.Lock()
			defer mu.Unlock()
			ran[run.Key] = append(ran[run.Key], run.Fence)
			return nil
		}))
		nodes = append(nodes, s)
	}
	for i := range tasks {
		check(t, nodes[0].AddTask(ctx, task(fmt.Sprint("task ", i), 0)))
	}
	exec(t, conn, e.Text("CREATE TABLE $schema.backup AS SELECT * FROM $schema.task"))
	for _, s := range nodes {
		check(t, s.Start())
	}
	await(tasks, time.Minute)

	_, now, err := e.Renew(ctx, 0, nil)
	check(t, err)
	later := now + int64(3*time.Second) // so that the third node claims them first
	exec(t, conn, "BEGIN")              // no node renews until the third node has joined
	exec(t, conn, e.Text("LOCK TABLE $schema.member"))
	exec(t, conn, e.Text("DELETE FROM $schema.member"))
	exec(t, conn, e.Text("ALTER TABLE $schema.member ALTER COLUMN id RESTART WITH 1"))
	exec(t, conn, e.Text("ALTER SEQUENCE $schema.revision RESTART WITH 1"))
	var id engine.MemberID
	check(t, conn.QueryRow(ctx, postgres.JoinSQL(e), []byte("crashes"), int64(3*time.Second), 1).Scan(&id, nil, nil))
	exec(t, conn, e.Text("DELETE FROM $schema.task"))
	exec(t, conn, e.Text("INSERT INTO $schema.task SELECT * FROM $schema.backup"))
	exec(t, conn, e.Text("UPDATE $schema.task SET due = $1"), later)
	exec(t, conn, "COMMIT")
	c, err := e.Claim(ctx, engine.ClaimRequest{By: id, Kinds: []string{"kind"}, Until: later, Most: tasks / 2, Readable: 255})
	if err != nil || len(c.Tasks) != tasks/2 {
		t.Fatalf("the third node has claimed %d tasks, %v", len(c.Tasks), err)
	}
	crashed := make(map[string]int64) // the fences that the third node was given
	for _, task := range c.Tasks {
		crashed[task.Key] = task.Revision
	}
	within := time.Minute
	if without != "" {
		within = 8 * time.Second
	}
	await(2*tasks, within)
	mu.Lock()
	defer mu.Unlock()
	for key, fences := range ran {
		if len(fences) != 2 || fences[1] <= max(fences[0], crashed[key]) {
			t.Logf("%s has the fences %d, and on the third node %d", key, fences, crashed[key])
			wrong++
		}
	}
	return wrong
}

// A standby is promoted that lacks the last joins and claims. Its clock may be behind, so the time does not help.
func TestFailover_toAStandbyThatLacksTheLastJoins(t *testing.T) {
	first := startFor(t, start)
	second := startFor(t, first.Standby)
	e, err := postgres.Open(t.Context(), hosts(first, second), postgres.WithNow("2000000000000000000"))
	check(t, err)
	defer e.Close()
	commit(t, e, 0, add("k", 1))
	replicate(t, e, second, "k")
	behind := connect(t, second.URL())
	exec(t, behind, "ALTER SYSTEM SET primary_conninfo = ''")
	exec(t, behind, "SELECT pg_reload_conf()")
	await(t, func() error {
		var there bool
		err := behind.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver)").Scan(&there)
		if err == nil && there {
			err = errors.New("the standby still receives")
		}
		return err
	})
	for i := range 100 { // more than the sequence has written ahead
		commit(t, e, 0, add(fmt.Sprint("lost ", i), 1<<62))
	}
	before, had := claimed(t, e, "before")
	check(t, first.Kill())
	check(t, second.Promote())
	await(t, func() error {
		_, err := e.Get(t.Context(), "k")
		return err
	})
	if get(t, e, "lost 0") != nil {
		t.Fatal("the standby does not lack the last commits")
	}
	since, has := claimed(t, e, "since")
	lost(t, e, before, since, had, has)
}

// A logical replica has the rows, but not the sequences. The SQL of a publication and a subscription is that of an upgrade
// to another server. Open moves the sequence up.
func TestLogicalReplica_isOpened(t *testing.T) {
	ctx := t.Context()
	s := startFor(t, start, "wal_level=logical")
	conn := connect(t, s.URL())
	exec(t, conn, "CREATE DATABASE replica")
	replica, err := pgx.ParseConfig(s.URL())
	check(t, err)
	replica.Database = "replica"
	to, err := pgx.ConnectConfig(ctx, replica)
	check(t, err)
	defer func() { check(t, to.Close(context.WithoutCancel(ctx))) }()
	e, err := postgres.Open(ctx, s.URL())
	check(t, err)
	defer e.Close()
	commit(t, e, 0, add("k", 1))
	before, had := claimed(t, e, "before")

	sql, err := postgres.Schema()
	check(t, err)
	_, err = to.Exec(ctx, "BEGIN; "+sql+"DELETE FROM timewheel.version; COMMIT", pgx.QueryExecModeSimpleProtocol)
	check(t, err)
	exec(t, conn, "CREATE PUBLICATION upgrade FOR ALL TABLES")
	exec(t, conn, "SELECT pg_create_logical_replication_slot('upgrade', 'pgoutput')") // within one server it cannot make it itself
	exec(t, to, fmt.Sprintf("CREATE SUBSCRIPTION upgrade CONNECTION 'host=127.0.0.1 port=%d user=%s dbname=postgres' "+
		"PUBLICATION upgrade WITH (create_slot = false)", replica.Port, pgtest.User))
	await(t, func() error {
		var states string
		err := to.QueryRow(ctx, "SELECT string_agg(DISTINCT srsubstate::text, '') FROM pg_subscription_rel").Scan(&states)
		if err == nil && states != "r" {
			err = fmt.Errorf("the tables are in the states %q", states)
		}
		return err
	})
	exec(t, conn, "UPDATE timewheel.task SET starts = starts") // a change after the copy
	exec(t, to, "DROP SUBSCRIPTION upgrade")

	for _, table := range []string{"task", "member", "version"} {
		var n int
		check(t, to.QueryRow(ctx, "SELECT count(*) FROM timewheel."+table).Scan(&n))
		if n != 1 {
			t.Errorf("the replica has %d rows of %s", n, table)
		}
	}
	url := replicaURL(s.URL())
	next, err := postgres.Open(ctx, url)
	check(t, err)
	defer next.Close()
	if r := commit(t, next, 0, add("first", 1<<62)); r[0].Revision <= had.Revision {
		t.Errorf("the replica gives the revision %d after %d", r[0].Revision, had.Revision)
	}
	check(t, next.Leave(ctx, before)) // its node ends, and its task is free
	since, has := claimed(t, next, "since")
	lost(t, next, before, since, had, has)
}

func replicaURL(url string) string { return strings.Replace(url, "/postgres?", "/replica?", 1) }
