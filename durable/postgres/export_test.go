// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"strings"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
)

// WriteTx makes the writes in a user's transaction, or returns the keys whose condition does not hold.
func WriteTx(ctx context.Context, e *Engine, tx pgx.Tx, writes ...engine.Write) (unmet []string, err error) {
	g := group{e: e, batches: []engine.Batch{writes}, results: make([]engine.Result, 1)}
	statement, args, _ := g.arguments([]int{0})
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 0"); err != nil {
		return nil, err
	}
	done, _, err := g.write(ctx, tx, statement, args)
	if err != nil {
		return nil, err
	}
	g.settle([]int{0}, done)
	return g.results[0].Unmet, nil
}

// WithNow uses the SQL as the engine's clock.
func WithNow(sql string) Option { return func(c *config) { c.now = sql } }

// WithServersClock gives the engine a clock that differs from the machine's by the server's setting chaos.clock, in
// nanoseconds, as if the server were on a machine with a wrong clock.
func WithServersClock() Option {
	return WithNow("(" + clock + " + coalesce(nullif(current_setting('chaos.clock', true), ''), '0')::bigint)")
}

// Text returns the SQL with the name of the schema, as in the engine's statements.
func (e *Engine) Text(sql string) string { return e.config.sql(sql) }

// JoinSQL returns the statement by which a member joins.
func JoinSQL(e *Engine) string { return e.sql.join }

// ClaimSQL returns the statement of a claim.
func ClaimSQL(e *Engine) string { return e.sql.claim }

// TurnsSQL returns the statement of a claim in turns.
func TurnsSQL(e *Engine) string { return e.sql.turns }

// DueSQL returns the statement of a page of a walk in due order.
func DueSQL(e *Engine) string { return e.sql.due }

// ConfirmSQL returns the statement of a confirmation.
func ConfirmSQL(e *Engine) string { return e.sql.confirm }

// SetSQL returns the statement that precedes it in its transaction.
func SetSQL(e *Engine) string { return e.sql.set }

// swap replaces a part of a statement.
func (e *Engine) swap(in *string, what, with string) {
	what, with = e.config.statement(what), e.config.statement(with)
	if !strings.Contains(*in, what) {
		panic("there is no " + what)
	}
	*in = strings.Replace(*in, what, with, 1)
}

const sinceSQL = "\n\t\tAND NOT $now - (SELECT since FROM $schema.version WHERE one) BETWEEN 0 AND lease"

const slowDead = "CASE WHEN (SELECT pg_sleep(0.01)::text = '') THEN until < $now END"

// Break removes a detail from the engine's statements, to check that the tests notice. Other names change nothing. The
// numbers refer to the details in the design of the cluster.
func (e *Engine) Break(detail string) {
	swap := e.swap
	switch detail {
	case "2 the fence checks neither owner nor lease":
		swap(&e.sql.confirm, "AND t.owner IS NOT DISTINCT FROM $1", "")
		swap(&e.sql.confirm, "WHERE (SELECT leased FROM me)", "WHERE $1::bigint > 0")
	case "6 a claim does not lock its member":
		swap(&e.sql.claim, "FOR KEY SHARE", "")
	case "the numbers of members come from a sequence":
		swap(&e.sql.join, "(t.now / 1000000000 % 4294967296 << 31) + $3::bigint AS id",
			"nextval(pg_get_serial_sequence("+quote(e.Text("$schema.member"))+", 'id')) + $3::bigint * 0 AS id")
	case "no look at all kinds at once":
		e.BeVersion7()
	case "a slow reaper": // some time passes after the snapshot of its first statement
		swap(&e.sql.markDead, "until < $now", slowDead)
	case "7 a slow reaper of one statement":
		e.sql.markDead = e.config.statement(`
WITH dead AS MATERIALIZED (
	SELECT id FROM $schema.member WHERE NOT gone AND ` + slowDead + ` ORDER BY id FOR UPDATE SKIP LOCKED),
freed AS (
	UPDATE $schema.task t SET owner = NULL, revision = $next FROM dead WHERE t.owner = dead.id)
DELETE FROM $schema.member m USING dead WHERE m.id = dead.id RETURNING m.name`)
	case "8 changes lock in any order":
		swap(&e.sql.commit, "grp, n) ORDER BY q.key", "grp, n)")
	case "8 adds lock in any order":
		swap(&e.sql.commit, "AND data IS NOT NULL ORDER BY key", "AND data IS NOT NULL")
	case "claims are joined, and not looked up one by one":
		swap(&e.sql.stillHeld, ", LATERAL (\n\tSELECT FROM $schema.task t WHERE t.key = q.key AND t.revision = q.revision "+
			"AND t.owner IS NOT DISTINCT FROM $1 LIMIT 1) t\nWHERE", " JOIN $schema.task t ON t.key = q.key "+
			"AND t.revision = q.revision AND t.owner IS NOT DISTINCT FROM $1 WHERE")
	case "the planner has all choices":
		e.sql.set = "SELECT"
	case "the greatest timeline is forgotten":
		*e.primary = primary{}
	case "10 reaping right after an outage":
		swap(&e.sql.markDead,
			"AND NOT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000000 BETWEEN 0 AND lease", "")
	case "reaping right after a promotion":
		swap(&e.sql.markDead, sinceSQL, "")
	case "started while the clock was ahead": // no detail is removed
		swap(&e.sql.markDead, "pg_postmaster_start_time()", "(clock_timestamp() + interval '1 year')")
	}
}

// Schema1 is the SQL that makes the schema of version 1.
var Schema1 = "CREATE SCHEMA $schema;" + head + migrations[0] + "INSERT INTO $schema.version VALUES (true, 1, '');"

// Schema2 is the SQL that makes the schema of version 2.
var Schema2 = Schema1 + migrations[1] + "UPDATE $schema.version SET version = 2;"

// Text returns SQL with the name of the schema.
func Text(sql string, opts ...Option) string {
	c, err := newConfig(opts)
	if err != nil {
		panic(err)
	}
	return c.sql(sql)
}

// FailingSQL returns the statement of a walk over failing tasks.
func FailingSQL(e *Engine) string { return e.sql.failing }

// CommitSQL returns the statement of a commit.
func CommitSQL(e *Engine) string { return e.sql.commit }

// Schema3 is the SQL that makes the schema of version 3.
var Schema3 = Schema2 + Settings + "UPDATE $schema.version SET version = 3;"

// Settings is the SQL that makes the tables of version 3.
var Settings = migrations[2]

// Schema4 is the SQL that makes the schema of version 4.
var Schema4 = Schema3 + migrations[3] + "UPDATE $schema.version SET version = 4;"

// Schema5 is the SQL that makes the schema of version 5.
var Schema5 = Schema4 + migrations[4] + "UPDATE $schema.version SET version = 5;"

// GetCalls makes Get call a function that returns a boolean.
func (e *Engine) GetCalls(function string) {
	e.swap(&e.sql.get, "WHERE ", "WHERE $schema."+function+" AND ")
}

// BeVersion6 makes the engine behave like version 6, which looks up a member by its id alone and does not know since
// when the server has been the primary.
func (e *Engine) BeVersion6() {
	e.BeVersion7()
	for _, in := range []*string{&e.sql.probe, &e.sql.look, &e.sql.claim, &e.sql.turns, &e.sql.confirm, &e.sql.stillHeld, &e.sql.status} {
		e.swap(in, "($member", "(SELECT * FROM $schema.member WHERE id = $1")
	}
	e.swap(&e.sql.commit, "ORDER BY until DESC LIMIT 1 ", "")
	e.swap(&e.sql.renew, "\nWHERE id = $1 AND until >= (SELECT until FROM ($member) m)", " WHERE id = $1")
	e.sql.members = e.config.statement("SELECT id, name, lease, until, report FROM $schema.member WHERE NOT gone")
	e.sql.noticeServer = "SELECT"
	e.swap(&e.sql.markDead, sinceSQL, "")
	e.sql.anythingDead = e.config.statement("SELECT EXISTS (SELECT FROM $schema.member WHERE until < $now)")
}

// BeVersion5 makes the engine behave like version 5, which reads the note of the pauses and no other.
func (e *Engine) BeVersion5() {
	e.BeVersion6()
	note, rest, found := strings.Cut(e.sql.notes, "UNION ALL\n")
	if !found || !strings.Contains(note, e.Text("$schema.note")) {
		panic("the statement is another")
	}
	e.sql.notes = strings.Replace(rest, "'pauses'", "'pauses'::bytea AS name", 1)
}

// BeVersion4 makes the engine behave like version 4, which does not know when a start was confirmed.
func (e *Engine) BeVersion4() {
	e.BeVersion5()
	for _, in := range []*string{&e.sql.claim, &e.sql.turns, &e.sql.due, &e.sql.get, &e.sql.byKey, &e.sql.failing,
		&e.sql.held, &e.sql.getTx} {
		e.swap(in, startedSQL, "0::bigint")
	}
	e.swap(&e.sql.confirm, ", started = $now", "")
}

// BeVersion3 makes the engine behave like version 3, which knows no groups, and so has no fair claims.
func (e *Engine) BeVersion3() {
	sql := e.config.statement
	e.sql.claim = sql(`
WITH me AS MATERIALIZED (
	SELECT id FROM $schema.member WHERE id = $1 AND until > $now FOR KEY SHARE
), free AS MATERIALIZED (
	SELECT t.key FROM $schema.task t
	WHERE t.owner IS NULL AND t.due > $3 AND t.due <= $4 AND t.kind = ANY($2::bytea[])
		AND substr(t.data, 1, 1) <= $6 AND EXISTS (SELECT FROM me)
	ORDER BY t.owner, t.due, t.key LIMIT $5 FOR NO KEY UPDATE OF t SKIP LOCKED
), given AS (
	UPDATE $schema.task t SET owner = me.id, revision = $next FROM free, me
	WHERE t.key = free.key RETURNING $row
)
SELECT * FROM given UNION ALL SELECT '', $now, '', '', 0, $isMember, 0, '', 0`)
	e.sql.due = sql(`
SELECT $row FROM (
	(SELECT * FROM $schema.task WHERE owner IS NULL AND (due, key) > ($1, $2) AND due <= $3
	ORDER BY owner, due, key LIMIT $4)
	UNION ALL
	(SELECT * FROM $schema.task WHERE owner IS NOT NULL AND (due, key) > ($1, $2) AND due <= $3
	ORDER BY due, key LIMIT $4)
) t ORDER BY t.due, t.key LIMIT $4`)
	e.BeVersion4()
	for _, in := range []*string{&e.sql.claim, &e.sql.due, &e.sql.get, &e.sql.byKey, &e.sql.failing, &e.sql.held,
		&e.sql.getTx} {
		e.swap(in, "coalesce(t.grp, '')", "''::bytea")
	}
	e.swap(&e.sql.commit, "failing, grp)\n", "failing)\n")
	e.swap(&e.sql.commit, ",\n\t\tnullif(grp, '')", "")
	e.swap(&e.sql.commit, ", grp = nullif(todo.grp, '')", "")
	e.swap(&e.sql.insertTx, ", grp)\nVALUES ($1, $2, $next, $3, $4, "+
		"CASE WHEN pg_catalog.octet_length($5::bytea) OPERATOR(pg_catalog.>) 0 THEN $5::bytea END)",
		") SELECT $1, $2, $next, $3, $4 WHERE $5::bytea IS NOT NULL")
}

// BeVersion1 makes the engine behave like version 1.
func (e *Engine) BeVersion1() {
	e.swap(&e.sql.commit, "data, failing)\n", "data)\n")
	e.swap(&e.sql.commit, ", CASE WHEN failing THEN due END", "")
	e.swap(&e.sql.commit, ",\n\t\tfailing = CASE WHEN todo.failing THEN todo.due END", "")
	e.swap(&e.sql.renew, ", report = greatest(report, $2) WHERE", " WHERE $2::bytea IS DISTINCT FROM '' AND")
	e.swap(&e.sql.members, "report FROM", "NULL::bytea FROM")
	e.swap(&e.sql.updateTx, ", failing = NULL", "")
}

// OpenOld opens an engine of a program of version 3 on a schema that it makes with the SQL.
func OpenOld(ctx context.Context, url, sql string, opts ...Option) (*Engine, error) {
	return openOld(ctx, url, sql, (*Engine).BeVersion3, opts...)
}

// OpenVersion4 opens an engine of a program of version 4 on a schema that it makes.
func OpenVersion4(ctx context.Context, url string, opts ...Option) (*Engine, error) {
	return openOld(ctx, url, Schema4, (*Engine).BeVersion4, opts...)
}

// OpenVersion5 opens an engine of a program of version 5 on a schema that it makes.
func OpenVersion5(ctx context.Context, url string, opts ...Option) (*Engine, error) {
	return openOld(ctx, url, Schema5, (*Engine).BeVersion5, opts...)
}

// Schema6 is the SQL that makes the schema of version 6.
var Schema6 = Schema5 + migrations[5] + "UPDATE $schema.version SET version = 6;"

// OpenVersion6 opens an engine of a program of version 6 on a schema that it makes.
func OpenVersion6(ctx context.Context, url string, opts ...Option) (*Engine, error) {
	return openOld(ctx, url, Schema6, (*Engine).BeVersion6, opts...)
}

// Schema7 is the SQL that makes the schema of version 7.
var Schema7 = Schema6 + migrations[6] + "UPDATE $schema.version SET version = 7;"

// BeVersion7 makes the engine behave like version 7, which looks into each kind.
func (e *Engine) BeVersion7() {
	e.sql.probe = e.config.statement("SELECT $now, EXISTS (SELECT FROM ($member) m WHERE NOT gone), " +
		"$2::bigint < $3::bigint")
}

// Version returns the version of the schema that this program needs.
func Version() int { return len(migrations) }

// Check returns the version of the schema, or the error of a program of the given version.
func Check(ctx context.Context, conn *pgx.Conn, version int, opts ...Option) (have int, err error) {
	err = as(version, opts, func(c config) error {
		have, err = c.check(ctx, conn)
		return err
	})
	return have, err
}

// MigrateTo migrates the schema as a program of the given version does.
func MigrateTo(ctx context.Context, conn *pgx.Conn, version int, opts ...Option) error {
	return as(version, opts, func(c config) error { return c.migrateOn(ctx, conn) })
}

// as calls the function while this is a program of the given version.
func as(version int, opts []Option, f func(config) error) error {
	defer func(all []string) { migrations = all }(migrations)
	migrations = migrations[:version]
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	return f(c)
}

// OpenVersion7 opens an engine of a program of version 7 on a schema that it makes.
func OpenVersion7(ctx context.Context, url string, opts ...Option) (*Engine, error) {
	return openOld(ctx, url, Schema7, (*Engine).BeVersion7, opts...)
}

func openOld(ctx context.Context, url, sql string, be func(*Engine), opts ...Option) (*Engine, error) {
	e, err := Open(ctx, url, opts...)
	if err != nil {
		return nil, err
	}
	be(e)
	_, err = e.verbs.Exec(ctx, e.Text("DROP SCHEMA $schema CASCADE; "+sql), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// NotesSQL returns the statement of a page of a walk over the notes.
func NotesSQL(e *Engine) string { return e.sql.notes }

// Session reads the row of a statement on a connection for commits.
func Session(ctx context.Context, e *Engine, sql string, into ...any) error {
	return e.verbs.QueryRow(ctx, sql, pgx.QueryExecModeExec).Scan(into...)
}

// Statements returns the statements by name.
func Statements(e *Engine) map[string]string {
	s := &e.sql
	return map[string]string{
		"commit": s.commit, "remove": s.remove, "commitNotes": s.commitNotes, "get": s.get, "due": s.due, "byKey": s.byKey,
		"failing": s.failing, "held": s.held, "notes": s.notes, "join": s.join, "renew": s.renew, "members": s.members,
		"anythingDead": s.anythingDead, "noticeServer": s.noticeServer, "markDead": s.markDead, "markLeft": s.markLeft, "freeOfGone": s.freeOfGone,
		"deleteGone": s.deleteGone, "probe": s.probe, "look": s.look, "claim": s.claim, "turns": s.turns, "confirm": s.confirm, "release": s.release,
		"stillHeld": s.stillHeld, "status": s.status,
	}
}

// SetSession returns the settings of a direct connection, as a statement.
func SetSession(e *Engine) string { return strings.ReplaceAll(e.sql.set, "true", "false") }

// Reconnect forces the engine to open new connections.
func (e *Engine) Reconnect() {
	e.control.Reset()
	e.verbs.Reset()
}

// Transaction reads the row of a statement in one of the engine's transactions for commits.
func Transaction(ctx context.Context, e *Engine, sql string, into ...any) error {
	b := e.batch()
	b.Queue(sql).QueryRow(func(row pgx.Row) error { return row.Scan(into...) })
	return e.verbs.SendBatch(ctx, b).Close()
}
