// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// as returns the server's URL for another role, which it creates, and a connection of the superuser.
func as(t *testing.T, role string) string {
	t.Helper()
	conn := connect(t, server(t))
	exec(t, conn, "CREATE ROLE "+role+" LOGIN")
	u, err := url.Parse(server(t))
	check(t, err)
	u.User = url.User(role)
	return u.String()
}

func TestOpen_byManyAtOnce_makesTheSchemaOnce(t *testing.T) {
	at := schema()
	server(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			e, err := postgres.Open(context.Background(), shared.URL(), at)
			if err != nil {
				t.Error(err)
				return
			}
			defer e.Close()
			commit(t, e, 0, put("k", 1, engine.Always))
		})
	}
	all.Wait()
	if n := length(t, open(t, at)); n != 1 {
		t.Errorf("there are %d tasks, want 1", n)
	}
}

func TestSchema_byHand_isWhatOpenNeeds(t *testing.T) {
	at, of := schema(), postgres.WithCluster(`the shop's`)
	conn := connect(t, server(t))
	text, err := postgres.Schema(at, of)
	check(t, err)
	_, err = postgres.Open(t.Context(), shared.URL(), at, of, postgres.WithoutMigration())
	if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), "there is no schema") {
		t.Errorf("a schema that is missing: %v", err)
	}
	exec(t, conn, text)
	exec(t, conn, text)
	e := open(t, at, of, postgres.WithoutMigration())
	commit(t, e, 0, add("k", 1))
	exec(t, conn, text)
	check(t, postgres.Migrate(t.Context(), conn, at, of))
	if n := length(t, e); n != 1 {
		t.Errorf("there are %d tasks, want 1", n)
	}

	// A migration that was made halfway, as by a later version that is rolled back, is completed.
	exec(t, conn, e.Text("UPDATE $schema.version SET version = 0"))
	_, err = postgres.Open(t.Context(), shared.URL(), at, of, postgres.WithoutMigration())
	if !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("an older schema: %v", err)
	}
	check(t, postgres.Migrate(t.Context(), conn, at, of))
	open(t, at, of, postgres.WithoutMigration())
}

func TestOpen_ofWhatDoesNotFit_saysWhy(t *testing.T) {
	ctx := t.Context()
	at := schema()
	e := open(t, at, postgres.WithCluster("shop"))
	conn := connect(t, server(t))
	refused := func(want string, kind error, url string, opts ...postgres.Option) {
		t.Helper()
		e, err := postgres.Open(ctx, url, opts...)
		if err == nil {
			e.Close()
			t.Errorf("opened, want an error with %q", want)
			return
		}
		if !strings.Contains(err.Error(), want) || kind != nil && !errors.Is(err, kind) {
			t.Errorf("the error is %q, want one with %q", err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error has the password: %q", err)
		}
	}
	refused(`is that of cluster "shop", and not of "depot"`, postgres.ErrSchema, shared.URL(), at,
		postgres.WithCluster("depot"))
	refused(`is that of cluster "shop", and not of ""`, postgres.ErrSchema, shared.URL(), at)
	exec(t, conn, e.Text("UPDATE $schema.version SET version = 1000"))
	for _, opt := range []postgres.Option{postgres.WithConnections(4), postgres.WithoutMigration()} {
		refused("has version 1000", engine.ErrVersion, shared.URL(), at, postgres.WithCluster("shop"), opt)
	}
	if err := postgres.Migrate(ctx, conn, at, postgres.WithCluster("shop")); !errors.Is(err, engine.ErrVersion) {
		t.Errorf("a newer schema is migrated: %v", err)
	}

	refused("invalid URL", nil, "postgres://user:secret@host:port/")
	refused("connect", nil, "postgres://user:secret@127.0.0.1:1/postgres")
	refused("does not exist", nil, strings.Replace(shared.URL(), "/postgres?", "/none?", 1))
	refused("does not exist", nil, strings.Replace(shared.URL(), "timewheel@", "nobody_here@", 1))
	refused("the role lacks a right", nil, as(t, "without_rights"), schema())
	refused("the role lacks a right", nil, as(t, "without_tables"), at, postgres.WithCluster("shop"))
	refused("schema name", nil, shared.URL(), postgres.WithSchema(""))
	refused("schema name", nil, shared.URL(), postgres.WithSchema(strings.Repeat("x", 64)))
	refused("cluster name", nil, shared.URL(), postgres.WithCluster("\x00"))
	refused("3 connections", nil, shared.URL(), postgres.WithConnections(3))
	if _, err := postgres.Schema(postgres.WithSchema("\xff")); err == nil {
		t.Error("a schema's name that is not UTF-8 is accepted")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := postgres.Open(ended, shared.URL()); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is done: %v", err)
	}
}

// A program of version 4 does not change the time of the last start, whichever record it belongs to. The time is then
// unknown.
func TestMigrate_fromVersion4_withProgramsOfIt(t *testing.T) {
	at := schema()
	old, err := postgres.OpenVersion4(t.Context(), server(t), at)
	check(t, err)
	t.Cleanup(old.Close)
	commit(t, old, 0, add("k", 1))
	e := open(t, at) // which migrates
	start := func(on *postgres.Engine) (now int64) {
		t.Helper()
		id, now, err := on.Join(t.Context(), "node", time.Hour)
		check(t, err)
		got := claim(t, on, id, now, 10)
		if len(got) != 1 {
			t.Fatalf("claimed are %v", got)
		}
		held, _, err := on.Confirm(t.Context(), id, []engine.Claim{{Key: "k", Revision: got[0].Revision, Starts: got[0].Starts}})
		if err != nil || !held[0] {
			t.Fatalf("confirmed is %v, %v", held, err)
		}
		return now
	}
	is := func(what string, starts int, known bool, least int64) {
		t.Helper()
		for _, on := range []*postgres.Engine{e, old} {
			got, want := get(t, on, "k"), known && on == e
			if got == nil || got.Starts != starts || want != (got.Started != 0) || want && got.Started < least {
				t.Errorf("%s, it is %+v", what, got)
			}
		}
	}
	start(old)
	is("started by the old program", 1, false, 0)
	commit(t, old, 0, put("k", 1, engine.Always))
	now := start(e)
	is("started by the new program", 1, true, now)
	_, later, err := e.Renew(t.Context(), 0, nil)
	check(t, err)
	commit(t, old, 0, put("k", later, engine.Always))
	is("written by the old program", 0, false, 0)
	start(old)
	is("and started by it", 1, false, 0)
	commit(t, e, 0, put("k", 1, engine.Always))
	is("written by the new program", 0, false, 0)
	now = start(e)
	is("and started by it", 1, true, now)
}

// A role that owns nothing but has the rights on the tables can do everything that an engine does.
func TestOpen_roleWithRightsOnTheTables_works(t *testing.T) {
	at := schema()
	e := open(t, at)
	user := as(t, "worker")
	conn := connect(t, shared.URL())
	for _, sql := range []string{
		"GRANT USAGE ON SCHEMA $schema TO worker",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA $schema TO worker",
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA $schema TO worker",
	} {
		exec(t, conn, e.Text(sql))
	}
	own, err := postgres.Open(t.Context(), user, at)
	check(t, err)
	defer own.Close()
	works(t, own)
}

// works adds, claims, confirms and removes a task.
func works(t *testing.T, e *postgres.Engine) {
	t.Helper()
	ctx := t.Context()
	id, now, err := e.Join(ctx, "node\x00\xff", 1<<62)
	check(t, err)
	commit(t, e, 0, add("k", now))
	got := claim(t, e, id, now, 10)
	if len(got) != 1 {
		t.Fatalf("claimed are %v", got)
	}
	held, _, err := e.Confirm(ctx, id, []engine.Claim{{Key: "k", Revision: got[0].Revision}})
	if err != nil || !held[0] {
		t.Fatalf("confirmed is %v, %v", held, err)
	}
	commit(t, e, 0, remove("k"))
	for _, key := range []string{"a", "b"} {
		w := add(key, now)
		w.Group = "\x00\xff"
		commit(t, e, 0, w)
	}
	c, err := e.Claim(ctx, engine.ClaimRequest{By: id, Kinds: []string{"kind"}, Until: now, Most: 2,
		Readable: math.MaxUint8, Fair: true})
	if err != nil || len(c.Tasks) != 2 || c.Next != "" || c.Tasks[0].Group != "\x00\xff" {
		t.Fatalf("claimed in turns are %+v, %v", c, err)
	}
	commit(t, e, 0, remove("a"), remove("b"))
	commit(t, e, 0, note("pauses", "{}"), note("a", "b"))
	if got := notes(t, e); !slices.Equal(got, []string{"a=b", "pauses=1:{}"}) {
		t.Fatalf("the notes are %q", got)
	}
	if members, _, err := e.Renew(ctx, id, []byte("report")); err != nil || len(members) != 1 {
		t.Fatalf("the members are %v, %v", members, err)
	}
	_, err = e.Reap(ctx)
	check(t, err)
	check(t, e.Leave(ctx, id))
}

// A pooler may use another session for every transaction, and allow no prepared statements.
func TestOpen_everyModeOfThePool_works(t *testing.T) {
	modes := []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			at := schema()
			pool, err := pgxpool.New(t.Context(), server(t)+"&default_query_exec_mode="+mode)
			check(t, err)
			defer pool.Close()
			e, err := postgres.OpenPool(t.Context(), pool, at)
			check(t, err)
			defer e.Close()
			works(t, e)
		})
	}
}

// The statements rely on READ COMMITTED, whatever the database's default is.
func TestOpen_databaseWithAnotherIsolation_works(t *testing.T) {
	conn := connect(t, server(t))
	exec(t, conn, "CREATE DATABASE strict")
	exec(t, conn, "ALTER DATABASE strict SET default_transaction_isolation = 'serializable'")
	e, err := postgres.Open(t.Context(), strings.Replace(shared.URL(), "/postgres?", "/strict?", 1))
	check(t, err)
	defer e.Close()
	works(t, e)
	commit(t, e, 0, add("contended", 1))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				commit(t, e, 0, put("contended", 2, engine.Always))
			}
		})
	}
	all.Wait()
}

// Programs of version 6 renew, claim, start and end next to programs of this version, during the migration and
// afterwards. Each sees the members of the other, and reaps them.
func TestMigrate_fromVersion6_withProgramsOfIt(t *testing.T) {
	ctx, at := t.Context(), schema()
	old, err := postgres.OpenVersion6(ctx, server(t), at)
	check(t, err)
	t.Cleanup(old.Close)
	join := func(e engine.Engine, name string, lease time.Duration) engine.MemberID {
		t.Helper()
		id, _, err := e.Join(ctx, name, lease)
		check(t, err)
		return id
	}
	before := join(old, "before", time.Hour)
	commit(t, old, 0, add("before", 1))
	e := open(t, at) // which migrates
	after := join(e, "after", time.Hour)
	commit(t, e, 0, add("after", 2))
	for _, node := range []struct {
		engine.Engine
		id  engine.MemberID
		key string
	}{{old, before, "before"}, {e, after, "after"}} {
		members, _, err := node.Renew(ctx, node.id, []byte("report"))
		if err != nil || len(members) != 2 {
			t.Errorf("the members are %+v, %v", members, err)
		}
		held := claim(t, node, node.id, 10, 1)
		if len(held) != 1 || held[0].Key != node.key {
			t.Fatalf("claimed are %+v", held)
		}
		started, _, err := node.Confirm(ctx, node.id, []engine.Claim{{Key: node.key, Revision: held[0].Revision}})
		if err != nil || !started[0] {
			t.Errorf("started: %v, %v", started, err)
		}
		w := remove(node.key)
		w.If, w.Revision = engine.IfUnchanged, held[0].Revision
		commit(t, node, node.id, w)
	}
	for of, by := range map[engine.Engine]engine.Engine{old: e, e: old} {
		commit(t, e, 0, add("left", 1))
		brief := join(of, "brief", 200*time.Millisecond)
		if held := claim(t, of, brief, 10, 1); len(held) != 1 {
			t.Fatalf("claimed are %+v", held)
		}
		await(t, func() error {
			if names, err := by.Reap(ctx); err != nil || len(names) == 0 {
				return fmt.Errorf("reaped are %q, %v", names, err)
			}
			return nil
		})
		commit(t, e, 0, remove("left"))
		if _, _, err := of.Renew(ctx, brief, nil); !errors.Is(err, engine.ErrMemberGone) {
			t.Errorf("a member that was reaped renews: %v", err)
		}
	}
	var unique int
	check(t, connect(t, shared.URL()).QueryRow(ctx, "SELECT count(*) FROM pg_index WHERE indrelid = to_regclass($1) "+
		"AND indisunique", e.Text("$schema.member")).Scan(&unique))
	if unique > 0 {
		t.Error("each renewal looks at all versions of the row that are left")
	}
}

// Programs of version 7 claim next to programs of this version, during the migration and afterwards.
func TestMigrate_fromVersion7_withProgramsOfIt(t *testing.T) {
	at := schema()
	old, err := postgres.OpenVersion7(t.Context(), server(t), at)
	check(t, err)
	t.Cleanup(old.Close)
	store(t, old, 1, 1)
	e := open(t, at) // which migrates
	for _, node := range []*postgres.Engine{old, e, old} {
		id, now, err := node.Join(t.Context(), "node", time.Hour)
		check(t, err)
		c, err := node.Claim(t.Context(), engine.ClaimRequest{By: id, Kinds: manyKinds(), Until: now, Most: 10, Readable: 255})
		if err != nil || len(c.Tasks) != 1 {
			t.Errorf("claimed are %+v, %v", c.Tasks, err)
		}
		check(t, node.Leave(t.Context(), id)) // its task is free again
	}
}

// A deployment is rolled back as docs/versions.md says: the version is set back by hand. Then programs of the earlier
// version open the schema, which has all that they need and more, and work. Programs of this version migrate it again.
func TestMigrate_backByHand(t *testing.T) {
	ctx, at := t.Context(), schema()
	e := open(t, at)
	conn := connect(t, server(t))
	earlier := postgres.Version() - 1
	if _, err := postgres.Check(ctx, conn, earlier, at); !errors.Is(err, engine.ErrVersion) {
		t.Fatalf("a program of version %d opens a later schema: %v", earlier, err)
	}
	commit(t, e, 0, add("before", 1<<62))
	exec(t, conn, fmt.Sprintf(e.Text("UPDATE $schema.version SET version = %d"), earlier))
	if v, err := postgres.Check(ctx, conn, earlier, at); err != nil || v != earlier {
		t.Fatalf("a program of version %d finds version %d, %v", earlier, v, err)
	}
	check(t, postgres.MigrateTo(ctx, conn, earlier, at))
	e.BeVersion7()
	works(t, e)
	exec(t, conn, e.Text("DELETE FROM $schema.settings"))
	exec(t, conn, e.Text("DELETE FROM $schema.note"))
	if _, err := postgres.Open(ctx, shared.URL(), at, postgres.WithoutMigration()); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("without a migration a later program opens version %d: %v", earlier, err)
	}
	again := open(t, at) // which migrates
	if v, err := postgres.Check(ctx, conn, postgres.Version(), at); err != nil || v != postgres.Version() {
		t.Errorf("it is version %d again, %v", v, err)
	}
	if get(t, again, "before") == nil {
		t.Error("a task is lost")
	}
	works(t, again)
}
