// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// shadows makes a schema with a function for each function and operator of the statements, with the same arguments.
// Each call fails.
const shadows = `
CREATE SCHEMA shadow;
GRANT USAGE ON SCHEMA shadow TO PUBLIC;
DO $do$ DECLARE f record; BEGIN
	FOR f IN SELECT proname, pg_get_function_identity_arguments(oid) AS args FROM pg_proc
		WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset
			AND '"any"'::regtype <> ALL (proargtypes) AND proname IN (
			'clock_timestamp', 'now', 'substr', 'nextval', 'setval', 'set_config', 'current_setting', 'convert_from',
			'pg_is_in_recovery', 'pg_backend_pid', 'pg_walfile_name', 'pg_current_wal_lsn', 'concat', 'octet_length',
			'pg_sequence_last_value', 'has_sequence_privilege', 'pg_try_advisory_xact_lock', 'pg_advisory_xact_lock',
			'hashtextextended', 'to_regclass', 'pg_total_relation_size', 'current_database', 'pg_postmaster_start_time', 'extract')
	LOOP
		EXECUTE format('CREATE FUNCTION shadow.%I(%s) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE ''shadow''; END $$',
			f.proname, f.args);
	END LOOP;
	FOR f IN SELECT DISTINCT oprname, oprleft::regtype AS l, oprright::regtype AS r FROM pg_operator
		WHERE oprkind = 'b' AND oprname IN ('=', '<>', '<', '<=', '>', '>=', '+', '-', '*', '/', '||', '<<')
			AND oprleft::regtype::text IN ('bytea', 'bigint', 'integer', 'text', 'boolean', 'name', 'oid', 'numeric', '"char"',
				'timestamp with time zone', 'interval', 'pg_lsn', 'xid')
			AND oprright::regtype::text IN ('bytea', 'bigint', 'integer', 'text', 'boolean', 'name', 'oid', 'numeric', '"char"',
				'timestamp with time zone', 'interval', 'pg_lsn', 'xid')
	LOOP
		EXECUTE format('CREATE OR REPLACE FUNCTION shadow.operate(%s, %s) RETURNS boolean LANGUAGE plpgsql '
			'AS $$ BEGIN RAISE ''shadow''; END $$', f.l, f.r);
		EXECUTE format('CREATE OPERATOR shadow.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = shadow.operate)',
			f.oprname, f.l, f.r);
	END LOOP;
END $do$`

// A role whose search path has other functions and operators before pg_catalog works as any other.
func TestSearchPath_ofARole_isNotUsed(t *testing.T) {
	s := startFor(t, start)
	conn := connect(t, s.URL())
	exec(t, conn, "CREATE ROLE shadowed LOGIN; CREATE ROLE bare LOGIN; GRANT CREATE ON DATABASE postgres TO shadowed, bare;"+
		"GRANT pg_read_all_stats TO shadowed, bare;"+shadows)
	exec(t, conn, "ALTER ROLE shadowed SET search_path = shadow, pg_catalog")
	exec(t, conn, "ALTER ROLE bare SET search_path = ''")
	for _, role := range []string{"shadowed", "bare"} {
		url := strings.Replace(s.URL(), pgtest.User, role, 1)
		for mode, schema := range map[string]string{"": "a", "&default_query_exec_mode=cache_describe": "b"} {
			worksAs(t, url, mode, postgres.WithSchema(role+schema))
		}
	}
	seen := connect(t, strings.Replace(s.URL(), pgtest.User, "shadowed", 1))
	if _, err := seen.Exec(t.Context(), "SELECT 1 + 1"); err == nil { // the test would prove nothing
		t.Error("the role uses the operators of the server")
	}
}

// worksAs runs a task that is added in a transaction, and calls every other method of the engine.
func worksAs(t *testing.T, url, mode string, opts ...postgres.Option) {
	t.Helper()
	ctx := t.Context()
	e, err := postgres.Open(ctx, url+mode, opts...)
	check(t, err)
	defer e.Close()
	sql, err := postgres.Schema(opts...)
	check(t, err)
	conn := connect(t, url)
	if _, err := conn.Exec(ctx, "BEGIN; "+sql+"COMMIT", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Errorf("the SQL of Schema: %v", err)
	}
	check(t, postgres.Migrate(ctx, conn, opts...))
	n, err := durable.New(ctx, e)
	check(t, err)
	defer func() { check(t, n.Shutdown(context.WithoutCancel(ctx))) }()
	ran := make(chan string, 10)
	check(t, n.Handle("k", func(ctx context.Context, run durable.Run) error {
		ran <- run.Key
		if run.Key == "in a transaction" {
			return nil
		}
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return e.CompleteTx(ctx, tx, run) })
	}, durable.WithHistory(10, time.Hour)))
	check(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		return errors.Join(
			e.AddTaskTx(ctx, tx, durable.Task{Key: "in a transaction", Kind: "k", Delay: time.Hour, Group: "g"}),
			e.AddTaskTx(ctx, tx, durable.Task{Key: "removed", Kind: "k", Delay: time.Hour}),
			e.RescheduleTx(ctx, tx, "in a transaction", 0),
			e.RemoveTaskTx(ctx, tx, "removed"),
		)
	}))
	check(t, n.Start())
	if key := <-ran; key != "in a transaction" {
		t.Errorf("%q has run", key)
	}
	check(t, n.AddTask(ctx, durable.Task{Key: "completed", Kind: "k", Delay: time.Millisecond}))
	if key := <-ran; key != "completed" {
		t.Errorf("%q has run", key)
	}
	check(t, n.PauseKind(ctx, "k"))
	check(t, n.ResumeKind(ctx, "k"))
	for _, q := range []durable.Query{{}, {Prefix: "c"}, {State: durable.Retrying}, {State: durable.Running}} {
		_, err = n.Find(ctx, q)
		check(t, err)
	}
	id, now, err := e.Join(ctx, "another", time.Hour)
	check(t, err)
	for _, fair := range []bool{false, true} {
		_, err = e.Claim(ctx, engine.ClaimRequest{By: id, Kinds: []string{"k"}, Until: now, Most: 1, Readable: 255, Fair: fair})
		check(t, err)
	}
	_, _, err = e.Confirm(ctx, id, []engine.Claim{{Key: "none"}}, time.Second)
	check(t, err)
	check(t, e.Release(ctx, id, []engine.Claim{{Key: "none"}}))
	_, err = e.Reap(ctx)
	check(t, err)
	check(t, e.Leave(ctx, id))
	_, err = e.Count(ctx)
	check(t, err)
	_, err = e.Health(ctx)
	check(t, err)
}
