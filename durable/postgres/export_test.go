// SPDX-License-Identifier: MIT

package postgres

import (
	"context"
	"slices"
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
	return WithNow("(" + nowSQL + " + coalesce(nullif(current_setting('chaos.clock', true), ''), '0')::bigint)")
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
		e.sql.probe = e.config.statement("SELECT $now, EXISTS (SELECT FROM ($member) m WHERE NOT gone), " +
			"$2::bigint < $3::bigint")
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
		swap(&e.sql.commit, "grp, begun, n) ORDER BY q.key", "grp, begun, n)")
	case "8 adds lock in any order":
		swap(&e.sql.commit, "AND data IS NOT NULL ORDER BY key", "AND data IS NOT NULL")
		swap(&e.sql.add, "(SELECT FROM late) ORDER BY key", "(SELECT FROM late)")
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

// FailingSQL returns the statement of a walk over failing tasks.
func FailingSQL(e *Engine) string { return e.sql.failing }

// GetCalls makes Get call a function that returns a boolean.
func (e *Engine) GetCalls(function string) {
	e.swap(&e.sql.get, "WHERE ", "WHERE $schema."+function+" AND ")
}

// AsLater calls the function while this is a program of the next version, whose migration is the SQL.
func AsLater(migration string, f func()) {
	defer func(all []string) { migrations = all }(migrations)
	migrations = append(slices.Clip(migrations), migration)
	f()
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
		"commit": s.commit, "add": s.add, "remove": s.remove, "commitNotes": s.commitNotes, "get": s.get, "due": s.due, "byKey": s.byKey,
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
