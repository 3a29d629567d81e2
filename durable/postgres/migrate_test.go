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
	"github.com/seed581295f1/timewheel/durable"
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
	held, _, err := e.Confirm(ctx, id, []engine.Claim{{Key: "k", Revision: got[0].Revision}}, 0)
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
	if got := notes(t, e); !slices.Equal(got, []string{"a=b", "pauses={}"}) {
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

// later is the migration of a later version. It takes its locks in another order than a transaction that adds a task and
// then reads the members.
const later = `
ALTER TABLE $schema.member ADD COLUMN IF NOT EXISTS later bigint;
ALTER TABLE $schema.task ADD COLUMN IF NOT EXISTS later bigint;
`

// A migration needs locks that a user's transaction may delay for a long time. Meanwhile the nodes continue to work,
// and their leases do not expire. Neither a transaction that takes its locks in another order than the migration nor
// another program that migrates makes it fail.
func TestMigrate_whileATransactionIsOpen_holdsNobodyUp(t *testing.T) {
	at := schema()
	old := open(t, at)
	conn := connect(t, shared.URL())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id, _, err := old.Join(ctx, "old", time.Hour)
	check(t, err)
	tx, err := conn.Begin(ctx)
	check(t, err)
	check(t, old.AddTaskTx(ctx, tx, durable.Task{Key: "users", Kind: "kind", Delay: time.Hour}))
	watch := connect(t, shared.URL())
	waits := func() error {
		var waits bool
		err := watch.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted "+
			"AND relation = $1::text::regclass AND mode = 'AccessExclusiveLock')", old.Text("$schema.task")).Scan(&waits)
		if err == nil && !waits {
			err = errors.New("nobody waits for the table")
		}
		return err
	}
	postgres.AsLater(later, func() {
		opened := make(chan error, 2)
		for range cap(opened) {
			go func() {
				e, err := postgres.Open(ctx, shared.URL(), at)
				if err == nil {
					e.Close()
				}
				opened <- err
			}()
		}
		for i := range 3 {
			await(t, waits)
			_, _, err := old.Renew(ctx, id, nil)
			check(t, err)
			commit(t, old, id, add(fmt.Sprint("k", i), 1))
		}
		await(t, waits)
		exec(t, conn, old.Text("SELECT count(*) FROM $schema.member"))
		select {
		case err := <-opened:
			t.Errorf("the migration has ended before the transaction: %v", err)
		default:
		}
		check(t, tx.Commit(ctx))
		for range cap(opened) {
			check(t, <-opened)
		}
		if n := length(t, open(t, at, postgres.WithoutMigration())); n != 4 {
			t.Errorf("there are %d tasks, want 4", n)
		}
	})
}

// A deployment is rolled back as docs/versions.md says: the version is set back by hand. Then programs of this version
// open the schema, which has all that they need and more, and work. Programs of the later version migrate it again. A
// program that was running before the migration continues to work.
func TestMigrate_backByHand(t *testing.T) {
	ctx, at := t.Context(), schema()
	e := open(t, at)
	conn := connect(t, server(t))
	commit(t, e, 0, add("before", 1<<62))
	for range 2 {
		postgres.AsLater(later, func() {
			if _, err := postgres.Open(ctx, shared.URL(), at, postgres.WithoutMigration()); !errors.Is(err, postgres.ErrSchema) {
				t.Errorf("without a migration a later program opens the schema: %v", err)
			}
			migrated := open(t, at)
			if get(t, migrated, "before") == nil {
				t.Error("a task is lost")
			}
			works(t, migrated)
		})
		works(t, e)
		if _, err := postgres.Open(ctx, shared.URL(), at); !errors.Is(err, engine.ErrVersion) {
			t.Fatalf("an earlier program opens a later schema: %v", err)
		}
		exec(t, conn, e.Text("UPDATE $schema.version SET version = 1"))
		works(t, open(t, at))
	}
}
