// SPDX-License-Identifier: MIT

package postgres

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements holds the SQL statements of an engine. Their texts contain these placeholders:
//
//	$schema      the engine's schema
//	$tasks       the table of the tasks, as a regclass
//	$next        the next revision
//	$revision    the sequence of the revisions, as a regclass
//	$advance     moves the sequence up to the server's time, if it is behind. See floorSQL
//	$may         whether the role may move the sequence
//	$lock        the lock of the sessions that move the sequence
//	$=           the operator = of two values, in the user's own session
//	$row         the columns that scan reads
//	$failing     whether the task t is failing
//	$wait        how long a run of the task t may still begin. See engine.Result
//	$now         the server's time
//	$server      the server's identity
//	$inRange     whether the task t is in the range r
//	$rangeOrder  the order of the tasks in the index of ranges
//	$inGroup     whether the task t is free and has the kind and group of r
//	$groupOrder  the order of the tasks in the index of groups
//	$unlogged    whether a table of the schema is UNLOGGED: a crash empties it, and no standby has it
//	$before      how many bytes the tasks before t have in the window w, without reading them
//	$pageBytes   pageBytes
//	$member      the row of the member $1
//	$isMember    the number of the member $1, or 0 if the member is gone
//
// A range consists of the free tasks of one kind, either those with a group or those without. A renewal creates a new
// version of the member's row, and an open transaction keeps the old versions alive. The index lists the newest version
// first, and LIMIT ends the search there.
//
// Each statement is planned once per connection, for any arguments and any number of tasks. Therefore no statement
// leaves the planner a choice that is good only for a small number of tasks. The settings rule out whole-table scans.
// They also rule out sorting where an index provides the order. LATERAL with LIMIT looks up each key separately.
//
// A task is updated at the row location (ctid) where it was locked. If another transaction has changed the task since
// the statement began, that location is not in the statement's snapshot. The task is then left unchanged, as if it were
// still locked.
type statements struct {
	sessionSQL
	writeSQL
	readSQL
	memberSQL
	startSQL
	txSQL
}

// statement returns the text with its placeholders replaced.
func (c config) statement(text string) string {
	member := c.sql("SELECT * FROM $schema.member WHERE id = $1 ORDER BY until DESC LIMIT 1")
	tasks := quote(pgx.Identifier{c.schema, "task"}.Sanitize()) + "::regclass"
	revision := quote(pgx.Identifier{c.schema, "revision"}.Sanitize())
	text = strings.ReplaceAll(text, "$advance", strings.ReplaceAll(floorSQL, "$behind", behindSQL))
	text = strings.ReplaceAll(text, "$may",
		"(has_sequence_privilege($revision, 'UPDATE') AND has_sequence_privilege($revision, 'USAGE'))")
	text = strings.ReplaceAll(text, "$lock", "hashtextextended($name, 0)")
	return strings.NewReplacer(
		"$schema", pgx.Identifier{c.schema}.Sanitize(),
		"$next", "pg_catalog.nextval("+revision+")",
		"$revision", revision+"::regclass",
		"$name", revision,
		"$now", c.now,
		"$=", "OPERATOR(pg_catalog.=)",
		"$server", c.server,
		"$wait", "CASE WHEN (t.until OPERATOR(pg_catalog.>) "+c.now+") AND ("+c.now+" OPERATOR(pg_catalog.>=) (t.started OPERATOR(pg_catalog.-) 1000000000)) "+
			"THEN t.until OPERATOR(pg_catalog.-) greatest("+c.now+", t.started) ELSE 0 END",
		"$failing", "(t.due = 9223372036854775807 OR t.failing = t.due)",
		"$tasks", tasks,
		"$row", rowSQL, // see scan
		"$inRange", "t.owner IS NULL AND t.kind = r.kind AND (t.grp IS NULL) = r.plain",
		"$rangeOrder", "t.kind, t.grp IS NULL, t.due, t.key",
		"$inGroup", "t.owner IS NULL AND t.kind = r.kind AND t.grp IS NOT NULL AND t.grp = r.grp",
		"$groupOrder", "t.kind, t.grp, t.due, t.key",
		"$unlogged", "EXISTS (SELECT FROM pg_class c WHERE c.relkind = 'r' AND c.relpersistence = 'u' "+
			"AND c.relnamespace = (SELECT t.relnamespace FROM pg_class t WHERE t.oid = "+tasks+"))",
		"$before", "sum(octet_length(t.data)) OVER w - octet_length(t.data) AS before",
		"$pageBytes", strconv.Itoa(pageBytes),
		"$member", member,
		"$isMember", "coalesce((SELECT id FROM me), (SELECT id FROM ("+member+") m WHERE NOT gone), 0)",
	).Replace(text)
}

const rowSQL = "t.key, t.due, t.data, t.kind, t.revision, coalesce(t.owner, 0), t.starts, coalesce(t.grp, ''), " +
	"CASE WHEN t.starts OPERATOR(pg_catalog.>) 0 THEN t.started ELSE 0 END"

// floorSQL keeps the revisions rising if the database is replaced by an older state. A backup and a lagging standby have
// an older state of the sequence, and a logical replica has none. So the sequence follows the microseconds since 1970,
// which pass faster than revisions are assigned. It is moved when a member joins or renews its lease, because without
// that no task is claimed in an older state.
//
// The lock keeps two sessions from moving the sequence at the same time. A session moves it by a second at least, so
// that it does not overtake the revisions that others take meanwhile. A role without the right to do so leaves the
// sequence as it is.
const (
	floorSQL = `CASE WHEN $may THEN CASE WHEN $behind THEN CASE WHEN pg_try_advisory_xact_lock($lock) THEN
	CASE WHEN $behind THEN setval($revision, $now / 1000) END END END END`
	behindSQL = "coalesce(pg_sequence_last_value($revision), 0) < $now / 1000 - 1000000"
)

// planning holds the planner settings for every statement, by name. It turns jit off, because compiling a statement
// takes longer than running it.
var planning = map[string]string{
	"jit": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "enable_sort": "off",
	"plan_cache_mode": "force_generic_plan",
}

// setSQL returns the statement that applies the planner settings to one transaction.
func setSQL() string {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(planning)) {
		calls = append(calls, fmt.Sprintf("set_config('%s', '%s', true)", name, planning[name]))
	}
	return "SELECT " + strings.Join(calls, ", ")
}

func (c config) statements() statements {
	return statements{c.sessionSQL(), c.writeSQL(), c.readSQL(), c.memberSQL(), c.startSQL(), c.txSQL()}
}

// sessionSQL are the statements about signals and about the settings of a transaction.
type sessionSQL struct {
	listen, notify, set, setLockTimeout string
}

func (c config) sessionSQL() sessionSQL {
	return sessionSQL{
		listen: "LISTEN " + pgx.Identifier{c.schema}.Sanitize(),
		notify: "SELECT pg_catalog.set_config('synchronous_commit', 'off', true), " + c.signal("$1::text"), // need not reach the disk

		set:            setSQL(), // for one transaction, so that it works behind a pooler
		setLockTimeout: fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true)", lockTimeout.Milliseconds()),
	}
}

// signal returns the call that notifies of a payload. The channel has the name of the schema.
func (c config) signal(payload string) string {
	return "pg_catalog.pg_notify(" + quote(c.schema) + ", " + payload + ")"
}
