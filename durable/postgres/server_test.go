// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// hosts returns the URL of several servers.
func hosts(servers ...*pgtest.Server) string {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return strings.Replace(servers[0].URL(), addrs[0], strings.Join(addrs, ","), 1)
}

// startFor starts a server, and closes it with the test.
func startFor(t *testing.T, start func(settings ...string) (*pgtest.Server, error), settings ...string) *pgtest.Server {
	t.Helper()
	s, err := start(settings...)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// column returns the rows of a query on a server.
func column(t *testing.T, url, sql string) []string {
	t.Helper()
	conn := connect(t, url)
	rows, err := conn.Query(t.Context(), sql)
	check(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	check(t, conn.Close(t.Context()))
	return texts
}

// synchronous makes the server of the connection wait for one of its standbys at each commit.
func synchronous(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	exec(t, conn, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
	exec(t, conn, "SELECT pg_reload_conf()")
	await(t, func() error {
		var there bool
		err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'quorum')").
			Scan(&there)
		if err == nil && !there {
			err = errors.New("no standby is synchronous")
		}
		return err
	})
}

const keysSQL = "SELECT convert_from(key, 'UTF8') FROM $schema.task ORDER BY key"

// replicate waits until the standby has the task.
func replicate(t *testing.T, e *postgres.Engine, standby *pgtest.Server, key string) {
	t.Helper()
	await(t, func() error {
		var there bool
		err := connect(t, standby.URL()).QueryRow(t.Context(), e.Text("SELECT EXISTS (SELECT FROM $schema.task "+
			"WHERE key = $1)"), []byte(key)).Scan(&there)
		if err == nil && !there {
			err = errors.New("the standby is behind")
		}
		return err
	})
}

// An engine that forgets the greatest timeline would write to an old primary that comes back.
func TestEngine_severalHosts_sabotage(t *testing.T) {
	eachFound(t, 1, "tasks written to the old primary", []sabotage{
		{"", false},
		{"the greatest timeline is forgotten", true},
	}, func(t *testing.T, without string) int {
		first := startFor(t, start)
		second := startFor(t, first.Standby)
		e, err := postgres.Open(t.Context(), hosts(first, second))
		check(t, err)
		defer e.Close()
		commit(t, e, 0, add("on both", 1))
		replicate(t, e, second, "on both")
		check(t, first.Stop(pgtest.Fast))
		check(t, second.Promote())
		e.Reconnect()
		commit(t, e, 0, add("before", 1))
		check(t, first.Restart())
		e.Break(without)
		e.Reconnect()
		commit(t, e, 0, add("since", 1))
		return len(column(t, first.URL(), e.Text(keysSQL))) - 1
	})
}

// An engine moves from the lost primary to the promoted standby, and not back. It skips standbys.
func TestEngine_severalHosts_theOldPrimaryIsRefused(t *testing.T) {
	ctx := t.Context()
	first := startFor(t, start)
	second := startFor(t, first.Standby)
	if _, err := postgres.Open(ctx, second.URL()); !errors.Is(err, postgres.ErrNotPrimary) {
		t.Errorf("a standby alone: %v", err)
	}
	for _, attrs := range []string{"", "&target_session_attrs=read-write"} {
		e, err := postgres.Open(ctx, hosts(second, first)+attrs)
		check(t, err)
		commit(t, e, 0, put("standby first", 1, engine.Always))
		e.Close()
	}
	e, err := postgres.Open(ctx, hosts(first, second)+"&target_session_attrs=read-write")
	check(t, err)
	defer e.Close()
	commit(t, e, 0, add("before", 1))
	if h, err := e.Health(ctx); err != nil || h.Refused != 0 {
		t.Errorf("the health is %+v, %v", h, err)
	}
	replicate(t, e, second, "before")
	check(t, first.Kill())
	check(t, second.Promote())
	await(t, func() error {
		_, err := e.Get(ctx, "before")
		return err
	})
	check(t, first.Restart())
	e.Reconnect()
	commit(t, e, 0, add("since", 1))
	for url, want := range map[string]string{
		first.URL(): "[before standby first]", second.URL(): "[before since standby first]",
	} {
		if got := fmt.Sprint(column(t, url, e.Text(keysSQL))); got != want {
			t.Errorf("%s has %s, want %s", url, got, want)
		}
	}
	if h, err := e.Health(ctx); err != nil || h.Refused == 0 { // the first host is tried first
		t.Errorf("the health is %+v, %v", h, err)
	}
	check(t, second.Stop(pgtest.Fast))
	e.Reconnect()
	_, err = e.Get(ctx, "before")
	if !errors.Is(err, postgres.ErrNotPrimary) || !strings.Contains(err.Error(), "timeline") {
		t.Errorf("with the old primary alone: %v", err)
	}
}

// When one connection finds the promoted server, connections to the old one are no longer used, although it still
// exists.
func TestEngine_oneConnectionFindsThePromotedServer_allFollow(t *testing.T) {
	ctx := t.Context()
	first := startFor(t, start)
	second := startFor(t, first.Standby)
	e, err := postgres.Open(ctx, hosts(second, first))
	check(t, err)
	defer e.Close()
	_, _, err = e.Join(ctx, "old", time.Hour) // on a connection for claims
	check(t, err)
	commit(t, e, 0, add("before", 1)) // on one for commits
	replicate(t, e, second, "before")
	check(t, second.Promote())
	exec(t, connect(t, first.URL()), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%unnest%' "+
		"AND pid <> pg_backend_pid()")
	await(t, func() error {
		_, err := e.Get(ctx, "before")
		return err
	})
	_, _, err = e.Join(ctx, "new", time.Hour)
	check(t, err)
	for url, want := range map[string]string{first.URL(): "[old]", second.URL(): "[old new]"} {
		if got := fmt.Sprint(column(t, url, e.Text("SELECT name FROM $schema.member ORDER BY name DESC"))); got != want {
			t.Errorf("%s has the members %s, want %s", url, got, want)
		}
	}
}

// A standby has been up for long when it is promoted. Its first caller does not reap members whose leases expired while
// there was no primary. Members that do not renew are reaped one lease after the promotion. With that detail removed
// both are reaped at once.
func TestReap_afterAPromotion_noMemberThatLives(t *testing.T) {
	eachFound(t, 1, "members reaped right after the promotion", []sabotage{
		{"", false},
		{"reaping right after a promotion", true},
	}, reapedAfterAPromotion)
}

// reapedAfterAPromotion returns how many members are reaped before their lease has passed since a promotion.
func reapedAfterAPromotion(t *testing.T, without string) int {
	t.Helper()
	ctx := t.Context()
	const lease = time.Second
	first := startFor(t, start)
	second := startFor(t, first.Standby)
	e, err := postgres.Open(ctx, hosts(first, second))
	check(t, err)
	defer e.Close()
	e.Break(without)
	lives, _, err := e.Join(ctx, "lives", lease)
	check(t, err)
	_, _, err = e.Join(ctx, "dead", lease)
	check(t, err)
	commit(t, e, 0, add("k", 1))
	replicate(t, e, second, "k")
	check(t, first.Kill())
	time.Sleep(lease * 5 / 4)
	promoted := time.Now()
	check(t, second.Promote())
	var reaped []string
	await(t, func() (err error) { // the connections to the lost server break
		reaped, err = e.Reap(ctx)
		return err
	})
	if len(reaped) > 0 {
		return len(reaped)
	}
	await(t, func() error {
		_, _, renewed := e.Renew(ctx, lives, nil)
		reaped, err = e.Reap(ctx)
		if err == nil && len(reaped) == 0 {
			err = errors.New("nobody is reaped")
		}
		return errors.Join(renewed, err)
	})
	if up := time.Since(promoted); fmt.Sprint(reaped) != "[dead]" || up < lease {
		t.Errorf("%q are reaped %v after the promotion, want the dead one after its lease of %v", reaped, up, lease)
	}
	return 0
}

// A new primary is recorded even while no member is dead. Otherwise the first member that dies would keep its tasks for
// two leases.
func TestReap_whileAllLive_notesTheServer(t *testing.T) {
	s := startFor(t, start)
	e, err := postgres.Open(t.Context(), s.URL())
	check(t, err)
	defer e.Close()
	_, _, err = e.Join(t.Context(), "lives", time.Minute)
	check(t, err)
	exec(t, connect(t, s.URL()), e.Text("UPDATE $schema.version SET server = 'before', since = 0"))
	names, err := e.Reap(t.Context())
	check(t, err)
	noted := column(t, s.URL(), e.Text("SELECT server || ' ' || (since > 0) FROM $schema.version"))
	if len(names) > 0 || len(noted) != 1 || !strings.HasSuffix(noted[0], " 00000001 true") {
		t.Errorf("reaped are %q, and noted is %q", names, noted)
	}
}

// The clock was a year ahead while the server started, was noticed as the primary and renewed leases. A member that died
// meanwhile is reaped after its lease, and one that lives is not.
func TestReap_afterAClockThatWasAhead(t *testing.T) {
	const lease = time.Second
	ctx := t.Context()
	s := startFor(t, start)
	e, err := postgres.Open(ctx, s.URL())
	check(t, err)
	defer e.Close()
	e.Break("started while the clock was ahead")
	lives, _, err := e.Join(ctx, "lives", lease)
	check(t, err)
	dead, _, err := e.Join(ctx, "dead", lease)
	check(t, err)
	_, err = e.Reap(ctx) // notes the server
	check(t, err)
	commit(t, e, 0, add("k", 1))
	_, err = e.Claim(ctx, engine.ClaimRequest{By: dead, Kinds: []string{"kind"}, Until: math.MaxInt64 - 2, Most: 1})
	check(t, err)
	conn := connect(t, s.URL())
	exec(t, conn, e.Text("UPDATE $schema.member SET until = until + 31536000000000000; "+
		"UPDATE $schema.version SET since = since + 31536000000000000"))
	began := time.Now()
	var reaped []string
	await(t, func() error {
		_, _, renewed := e.Renew(ctx, lives, nil)
		reaped, err = e.Reap(ctx)
		if err == nil && len(reaped) == 0 {
			err = errors.New("no member is reaped")
		}
		return errors.Join(renewed, err)
	})
	if after := time.Since(began); fmt.Sprint(reaped) != "[dead]" || after < lease {
		t.Errorf("%q are reaped after %v, want the dead one after its lease", reaped, after)
	}
}

// Another database cluster at the same address is refused.
func TestEngine_anotherSystemIdentifier_isRefused(t *testing.T) {
	first, other := startFor(t, start), startFor(t, start)
	e, err := postgres.Open(t.Context(), hosts(first, other))
	check(t, err)
	defer e.Close()
	check(t, first.Stop(pgtest.Fast))
	e.Reconnect()
	_, err = e.Get(t.Context(), "k")
	if !errors.Is(err, postgres.ErrNotPrimary) || !strings.Contains(err.Error(), "system identifier") {
		t.Errorf("the error is %v", err)
	}
}

// An engine that was opened with a direct connection to a server does not use a pooler later. It moves to another host
// of the URL, or returns an error that names the problem.
func TestEngine_poolerAfterADirectConnection_isRefused(t *testing.T) {
	s := startFor(t, start)
	first, err := pgtest.NewProxy(s)
	check(t, err)
	by := func(addrs ...string) string { return strings.Replace(s.URL(), s.Addr(), strings.Join(addrs, ","), 1) }
	direct, pooled := first.Addr(), relay(t, s.Addr())
	e, err := postgres.Open(t.Context(), by(direct, pooled))
	check(t, err)
	defer e.Close()
	unnamed, err := postgres.Open(t.Context(), by(direct, pooled)+"&default_query_exec_mode=cache_describe")
	check(t, err)
	defer unnamed.Close()
	several, err := postgres.Open(t.Context(), by(direct, pooled, s.Addr()))
	check(t, err)
	defer several.Close()
	first.Close()
	for _, e := range []*postgres.Engine{e, unnamed, several} {
		e.Reconnect()
	}
	if _, err = e.Get(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "by a pooler") {
		t.Errorf("the error is %v", err)
	}
	for _, e := range []*postgres.Engine{unnamed, several} {
		_, err = e.Get(t.Context(), "k")
		check(t, err)
	}
}

// Every role may read the identity of the server. A role that has lost this right works as before, and does not change
// the recorded identity.
func TestOpen_withoutTheRightToIdentify(t *testing.T) {
	s := startFor(t, start)
	conn := connect(t, s.URL())
	exec(t, conn, "CREATE ROLE ordinary LOGIN")
	exec(t, conn, "GRANT CREATE ON DATABASE postgres TO ordinary")
	var noted []string
	for _, sql := range []string{"SELECT", "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"} {
		exec(t, conn, sql)
		e, err := postgres.Open(t.Context(), strings.Replace(s.URL(), pgtest.User, "ordinary", 1))
		check(t, err)
		defer e.Close()
		_, _, err = e.Join(t.Context(), "dead", time.Millisecond)
		check(t, err)
		await(t, func() error {
			if names, err := e.Reap(t.Context()); err != nil || len(names) == 0 {
				return fmt.Errorf("reaped are %q, %v", names, err)
			}
			return nil
		})
		noted = append(noted, column(t, s.URL(), e.Text("SELECT server || ' ' || since FROM $schema.version"))...)
	}
	if len(noted) != 2 || noted[0] != noted[1] || !strings.Contains(noted[0], " 00000001 ") {
		t.Errorf("noted are %q", noted)
	}
}

// A server that does not return its identity for any other reason may be an old primary.
func TestOpen_identityFails_isRefused(t *testing.T) {
	s := startFor(t, start)
	conn := connect(t, s.URL())
	exec(t, conn, "ALTER FUNCTION pg_catalog.pg_control_system() RENAME TO pg_control_before")
	exec(t, conn, "CREATE FUNCTION pg_catalog.pg_control_system(OUT system_identifier bigint) LANGUAGE plpgsql AS "+
		"$$BEGIN RAISE query_canceled; END$$")
	e, err := postgres.Open(t.Context(), s.URL())
	if err == nil {
		e.Close()
	}
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "57014" {
		t.Errorf("the error is %v", err)
	}
}

// The failures that an acknowledged task survives depend on the settings of the role and of the database, and on the
// standbys.
func TestHealth_whatAnAcknowledgedTaskSurvives(t *testing.T) {
	s := startFor(t, start)
	conn := connect(t, s.URL())
	is := func(role string, want engine.Health) {
		t.Helper()
		e, err := postgres.Open(t.Context(), strings.Replace(s.URL(), pgtest.User, role, 1))
		check(t, err)
		defer e.Close()
		h, err := e.Health(t.Context())
		check(t, err)
		got := engine.Health{Unflushed: h.Unflushed, Replicated: h.Replicated, Standbys: h.Standbys}
		if got != want {
			t.Errorf("as %s the health is %+v, want %+v", role, got, want)
		}
	}
	exec(t, conn, "CREATE ROLE ordinary LOGIN SUPERUSER")
	is("ordinary", engine.Health{})
	exec(t, conn, "ALTER ROLE ordinary SET synchronous_commit = off")
	is("ordinary", engine.Health{Unflushed: true})
	is(pgtest.User, engine.Health{})
	exec(t, conn, "ALTER ROLE ordinary IN DATABASE postgres SET synchronous_commit = local")
	is("ordinary", engine.Health{})
	startFor(t, s.Standby)
	synchronous(t, conn)
	is(pgtest.User, engine.Health{Replicated: true, Standbys: 1})
	is("ordinary", engine.Health{Standbys: 1})
	exec(t, conn, "ALTER ROLE ordinary NOSUPERUSER")
	exec(t, conn, "ALTER ROLE ordinary IN DATABASE postgres SET synchronous_commit = on")
	exec(t, conn, "GRANT USAGE ON SCHEMA timewheel TO ordinary")
	exec(t, conn, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA timewheel TO ordinary")
	is("ordinary", engine.Health{Replicated: true})
}

// The failures that an acknowledged task survives, with each value of synchronous_commit, without and with synchronous
// standbys, and when the last one is lost.
func TestHealth_replicated(t *testing.T) {
	s := startFor(t, start)
	conn := connect(t, s.URL())
	engines := make(map[string]*postgres.Engine)
	for _, commit := range []string{"on", "remote_apply", "remote_write", "local", "off"} {
		e, err := postgres.Open(t.Context(), s.URL()+"&synchronous_commit="+commit)
		check(t, err)
		defer e.Close()
		engines[commit] = e
	}
	all := func(when string, standbys int, replicated ...string) {
		t.Helper()
		for commit, e := range engines {
			want := engine.Health{Unflushed: commit == "off", Replicated: slices.Contains(replicated, commit), Standbys: standbys}
			await(t, func() error { // each process of the server rereads the settings independently
				h, err := e.Health(t.Context())
				check(t, err)
				got := engine.Health{Unflushed: h.Unflushed, Replicated: h.Replicated, Standbys: h.Standbys}
				if got != want {
					return fmt.Errorf("%s, %s: the health is %+v, want %+v", when, commit, got, want)
				}
				return nil
			})
		}
	}
	all("alone", 0)
	standby := startFor(t, s.Standby)
	await(t, func() error {
		if len(column(t, s.URL(), "SELECT 'there' FROM pg_stat_replication WHERE state = 'streaming'")) == 0 {
			return errors.New("there is no standby")
		}
		return nil
	})
	all("with an asynchronous standby", 0)
	synchronous(t, conn)
	all("with a synchronous standby", 1, "on", "remote_apply", "remote_write")
	check(t, standby.Kill())
	all("after the loss of the standby", 0)
}
