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
	listen   string
	notify   string
	notifyTx string

	set            string
	setLockTimeout string

	commit      string
	add         string
	remove      string
	commitNotes string
	get         string
	due         string
	byKey       string
	failing     string
	held        string
	notes       string
	count       string
	health      string

	join         string
	renew        string
	members      string
	anythingDead string
	noticeServer string
	advance      string
	cutLeases    string
	markDead     string
	markLeft     string
	freeOfGone   string
	deleteGone   string

	probe     string
	look      string
	claim     string
	turns     string
	confirm   string
	release   string
	stillHeld string
	status    string

	now        string
	insertTx   string
	deleteAtTx string
	deleteTx   string
	getTx      string
	updateTx   string
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
	sql := c.statement
	signal := func(payload string) string { // the channel has the name of the schema
		return "pg_catalog.pg_notify(" + quote(c.schema) + ", " + payload + ")"
	}
	// commit and add begin alike:
	//
	//	late  the time, if the writes were sent too long ago; then nothing else is done
	//	me    the member, if its lease has not expired. It cannot be reaped before the end of the transaction
	writes := func(member, latest string) string {
		return `
WITH late AS MATERIALIZED (
	SELECT now FROM (SELECT $now AS now) t WHERE now > ` + latest + `::bigint
), me AS MATERIALIZED (
	SELECT id FROM (SELECT * FROM $schema.member WHERE id = ` + member + ` ORDER BY until DESC LIMIT 1 FOR KEY SHARE) m
	WHERE until > $now
), `
	}
	return statements{
		listen:   "LISTEN " + pgx.Identifier{c.schema}.Sanitize(),
		notify:   "SELECT pg_catalog.set_config('synchronous_commit', 'off', true), " + signal("$1::text"), // need not reach the disk
		notifyTx: "SELECT " + signal("''") + "::text",

		set:            setSQL(), // for one transaction, so that it works behind a pooler
		setLockTimeout: fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true)", lockTimeout.Milliseconds()),

		// The conditions are those of engine.Condition: 1 absent, 2 present, 3 unchanged, 4 always, 5 unstarted.
		//
		//	todo  the writes, with the existing tasks that they change, locked in key order. All writes of a batch
		//	      are refused if one has an unmet condition, or a task whose run may begin
		//	done  the writes that were done
		//
		// The INSERT shows whether a task is absent. It waits if an open transaction has removed the key. A write may
		// be neither done nor unmet if another transaction has added the key or changed the task since the statement
		// began.
		commit: sql(writes("$9", "$12") + `todo AS MATERIALIZED (
	SELECT *, bool_or(unmet OR wait > 0) OVER (PARTITION BY batch) AS refused FROM (
		SELECT q.*, old.at, coalesce(old.wait, 0) AS wait, CASE q.cond
			WHEN 1 THEN q.data IS NULL AND (SELECT true FROM $schema.task t WHERE t.key = q.key) IS NOT NULL
			WHEN 2 THEN old.at IS NULL
			WHEN 3 THEN old.revision IS DISTINCT FROM q.revision
			WHEN 5 THEN old.revision IS DISTINCT FROM q.revision OR old.starts > 0
			ELSE false END AS unmet
		FROM (SELECT * FROM unnest($1::bytea[], $2::int[], $3::int[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[],
			$8::bool[], $10::bool[], $11::bytea[], $13::bigint[]) WITH ORDINALITY
			AS q(key, batch, cond, revision, due, kind, data, hold, failing, grp, begun, n) ORDER BY q.key) q
		LEFT JOIN LATERAL (
			SELECT t.ctid AS at, t.revision, t.starts, CASE WHEN t.revision = q.begun THEN 0 ELSE $wait END AS wait
			FROM $schema.task t WHERE t.key = q.key AND q.cond <> 1 LIMIT 1 FOR UPDATE OF t) old ON true) c
	WHERE NOT EXISTS (SELECT FROM late)
), ins AS (
	INSERT INTO $schema.task (key, due, revision, owner, kind, data, failing, grp)
	SELECT key, due, $next, CASE WHEN hold THEN (SELECT id FROM me) END, kind, data, CASE WHEN failing THEN due END,
		nullif(grp, '')
	FROM todo WHERE NOT refused AND at IS NULL AND data IS NOT NULL ORDER BY key
	ON CONFLICT (key) DO NOTHING RETURNING key, revision, owner
), upd AS (
	UPDATE $schema.task t SET due = todo.due, kind = todo.kind, data = todo.data, starts = 0,
		revision = $next, owner = CASE WHEN hold THEN (SELECT id FROM me) END,
		failing = CASE WHEN todo.failing THEN todo.due END, grp = nullif(todo.grp, ''),
		until = NULL
	FROM todo WHERE t.ctid = todo.at AND NOT refused AND todo.data IS NOT NULL
	RETURNING t.key, t.revision, t.owner
), del AS (
	DELETE FROM $schema.task t USING todo WHERE t.ctid = todo.at AND NOT refused AND todo.data IS NULL
	RETURNING t.key
), done AS (
	SELECT key, revision, owner FROM ins UNION ALL SELECT key, revision, owner FROM upd
	UNION ALL SELECT key, 0, NULL FROM del
	UNION ALL SELECT key, 0, NULL FROM todo WHERE NOT refused AND at IS NULL AND data IS NULL
)
SELECT n, unmet OR absent AND NOT done
		AND (NOT refused OR (SELECT true FROM $schema.task t WHERE t.key = write.key) IS NOT NULL),
	done, coalesce(revision, 0), owner IS NOT NULL, there, wait
FROM (
	SELECT key, max(n) AS n, bool_or(unmet) AS unmet, bool_or(absent) AS absent, bool_or(refused) AS refused,
		bool_or(done) AS done, max(revision) AS revision, max(owner) AS owner, bool_or(there) AS there, max(wait) AS wait
	FROM (
		SELECT key, n, unmet, cond = 1 AS absent, refused, at IS NOT NULL AS there, false AS done, NULL::bigint AS revision,
			NULL::bigint AS owner, wait FROM todo
		UNION ALL
		SELECT key, NULL, NULL, NULL, NULL, NULL, true, revision, owner, 0 FROM done) part
	GROUP BY key) write
UNION ALL SELECT 0, false, false, now, false, false, 0 FROM late`),

		// This statement handles a commit of additions only, where each batch is one task with the condition absent. It
		// is shorter, because ON CONFLICT finds out whether the task exists. It returns rows as commit does.
		add: sql(writes("$7", "$8") + `q AS MATERIALIZED (
	SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bool[], $6::bytea[]) WITH ORDINALITY
		AS q(key, due, kind, data, hold, grp, n)
), ins AS (
	INSERT INTO $schema.task (key, due, revision, owner, kind, data, grp)
	SELECT key, due, $next, CASE WHEN hold THEN (SELECT id FROM me) END, kind, data, nullif(grp, '')
	FROM q WHERE NOT EXISTS (SELECT FROM late) ORDER BY key
	ON CONFLICT (key) DO NOTHING RETURNING key, revision, owner
)
SELECT n, ins.key IS NULL, ins.key IS NOT NULL, coalesce(revision, 0), owner IS NOT NULL, false, 0::bigint
FROM q LEFT JOIN ins ON ins.key = q.key
UNION ALL SELECT 0, false, false, now, false, false, 0 FROM late`),

		// This statement handles a commit of removals only, where each batch is one removal with the condition
		// unchanged or present. Most runs end with this statement, which takes half the time of a general commit. It
		// returns a row for each write, and another row for each write that is done.
		remove: sql(`
WITH old AS MATERIALIZED (
	SELECT q.n, t.at, t.wait FROM (SELECT * FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
		AS q(key, cond, revision, begun, n) ORDER BY q.key) q
	LEFT JOIN LATERAL (
		SELECT t.ctid AS at, CASE WHEN t.revision = q.begun THEN 0 ELSE $wait END AS wait
		FROM $schema.task t WHERE t.key = q.key AND (q.cond = 2 OR t.revision = q.revision)
		LIMIT 1 FOR UPDATE OF t) t ON true
), del AS (
	DELETE FROM $schema.task t USING old WHERE t.ctid = old.at AND wait = 0 RETURNING old.n
)
SELECT n, at IS NULL, false, 0::bigint, false, true, coalesce(wait, 0) FROM old
UNION ALL SELECT n, false, true, 0, false, true, 0 FROM del`),

		commitNotes: sql(commitNotesSQL),
		notes:       sql(notesSQL),

		get: sql(`SELECT $row FROM $schema.task t WHERE t.key = ANY($1::bytea[])`),

		// The index contains the tasks of each range in order. There are few ranges and few held tasks.
		//
		//	r     the ranges that contain a task
		//	page  the first tasks of all ranges, and of the held tasks
		due: sql(`
WITH RECURSIVE r(kind, plain) AS (
	(SELECT t.kind, t.grp IS NULL FROM $schema.task t WHERE t.owner IS NULL ORDER BY $rangeOrder LIMIT 1)
	UNION ALL
	SELECT n.* FROM r, LATERAL (
		SELECT t.kind, t.grp IS NULL FROM $schema.task t
		WHERE t.owner IS NULL AND (t.kind, t.grp IS NULL) > (r.kind, r.plain) ORDER BY $rangeOrder LIMIT 1) n
), page AS MATERIALIZED (
	SELECT due, key, at FROM (
		SELECT t.* FROM r, LATERAL (
			SELECT t.due, t.key, t.ctid AS at FROM $schema.task t WHERE $inRange AND (t.due, t.key) > ($1, $2) AND t.due <= $3
			ORDER BY $rangeOrder LIMIT $4) t
		UNION ALL
		SELECT due, key, ctid FROM $schema.task WHERE owner IS NOT NULL AND (due, key) > ($1, $2) AND due <= $3) t
	ORDER BY due, key LIMIT $4
)
SELECT $row FROM (
	SELECT t.*, $before FROM page p JOIN $schema.task t ON t.ctid = p.at WINDOW w AS (ORDER BY p.due, p.key ROWS UNBOUNDED PRECEDING)) t
WHERE t.before < $pageBytes ORDER BY t.due, t.key`),

		byKey: sql(`
SELECT $row FROM (
	SELECT t.*, $before FROM (SELECT * FROM $schema.task t WHERE t.key >= $1 ORDER BY t.key LIMIT $2) t
	WINDOW w AS (ORDER BY t.key ROWS UNBOUNDED PRECEDING)) t
WHERE t.before < $pageBytes ORDER BY t.key`),

		// The condition matches that of the index.
		failing: sql(`
SELECT $row FROM (
	SELECT t.*, $before FROM (SELECT * FROM $schema.task t WHERE $failing AND t.key >= $1 ORDER BY t.key LIMIT $2) t
	WINDOW w AS (ORDER BY t.key ROWS UNBOUNDED PRECEDING)) t
WHERE t.before < $pageBytes ORDER BY t.key`),

		held: sql(`SELECT $row FROM $schema.task t WHERE t.owner = $1 ORDER BY t.due, t.key`),

		count: sql(`
SELECT t.kind, count(*), count(*) FILTER (WHERE $failing AND t.due <> 9223372036854775806),
	count(*) FILTER (WHERE t.due = 9223372036854775807), count(*) FILTER (WHERE t.due = 9223372036854775806)
FROM $schema.task t GROUP BY t.kind`),

		// A transaction holds back vacuum if it has written or has a snapshot. A vacuum does not hold back another
		// vacuum. Without a synchronous standby, a server acknowledges no further commits, and earlier commits may
		// exist only on that server. A role that may not see the state of a standby can still see that the standby
		// exists.
		health: sql(`
SELECT coalesce((SELECT (extract(epoch FROM max(clock_timestamp() - began)) * 1000000)::bigint FROM (
		SELECT xact_start AS began FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
			AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
		UNION ALL
		SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) t), 0),
	coalesce((SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = $tasks), 0),
	CASE WHEN 'off' IN (current_setting('autovacuum'), current_setting('track_counts')) THEN 'on this server'
		WHEN EXISTS (SELECT FROM pg_class, unnest(reloptions) o WHERE oid = $tasks
			AND CASE WHEN o LIKE 'autovacuum_enabled=%' THEN NOT split_part(o, '=', 2)::boolean ELSE FALSE END) THEN 'for the table of the tasks'
		ELSE '' END,
	pg_total_relation_size($tasks),
	'off' IN (current_setting('synchronous_commit'), current_setting('fsync')) OR $unlogged,
	NOT $unlogged AND current_setting('synchronous_commit') NOT IN ('off', 'local') AND current_setting('synchronous_standby_names') <> ''
		AND EXISTS (SELECT FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum')),
	(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`),

		join: sql(`
INSERT INTO $schema.member (id, name, lease, until) OVERRIDING SYSTEM VALUE
SELECT n.id, $1, $2::bigint, t.now + $2::bigint
FROM (SELECT $now AS now) t, LATERAL (SELECT (t.now / 1000000000 % 4294967296 << 31) + $3::bigint AS id) n
WHERE NOT EXISTS (SELECT FROM $schema.member m WHERE m.id = n.id)
RETURNING id, until - lease, $advance`),

		renew: sql(`
UPDATE $schema.member SET until = $now + lease, report = greatest(report, $2)
WHERE id = $1 AND until >= (SELECT until FROM ($member) m) AND NOT gone
RETURNING until - lease, $advance`),

		// The walk goes from one member to the next and reads the newest version of each row.
		members: sql(`
WITH RECURSIVE m AS (
	(SELECT * FROM $schema.member ORDER BY id DESC, until DESC LIMIT 1)
	UNION ALL
	SELECT n.* FROM m, LATERAL (
		SELECT * FROM $schema.member WHERE id < m.id ORDER BY id DESC, until DESC LIMIT 1) n
)
SELECT id, name, lease, until, report FROM m WHERE NOT gone`),

		// The walk goes from one member to the next and reads the newest version of each row.
		anythingDead: sql(`
WITH RECURSIVE m AS (
	(SELECT id, until, lease FROM $schema.member ORDER BY id DESC, until DESC LIMIT 1)
	UNION ALL
	SELECT n.* FROM m, LATERAL (
		SELECT id, until, lease FROM $schema.member WHERE id < m.id ORDER BY id DESC, until DESC LIMIT 1) n
)
SELECT EXISTS (SELECT FROM m WHERE until < $now OR until - lease > $now + 60000000000)
	OR (SELECT server IS DISTINCT FROM $server FROM $schema.version WHERE one)`),

		// This statement records a new primary and the time at which it was first seen. It runs separately before
		// markDead, so that markDead sees the record even if another engine wrote it at the same time. The new primary
		// may lack the last commits of the old one, and its clock may be behind. So it skips a million revisions.
		noticeServer: sql(`
WITH new AS (
	UPDATE $schema.version SET server = $server, since = $now WHERE one AND server IS DISTINCT FROM $server RETURNING one
), alone AS MATERIALIZED (
	SELECT pg_advisory_xact_lock($lock) FROM new, $schema.version was WHERE was.server IS NOT NULL AND $may
)
SELECT setval($revision, greatest(pg_sequence_last_value($revision), $now / 1000) + 1000000) FROM alone`),

		advance: sql("SELECT $advance"),

		// If the clock was ahead when a lease was last renewed, the lease expires one lease from now.
		cutLeases: sql(`
UPDATE $schema.member SET until = $now + lease WHERE NOT gone AND until - lease > $now + 60000000000`),

		// A member is reaped only after the server has been up, and known to be the primary, for longer than the
		// member's lease. A time after the present is from a clock that was ahead, and says nothing.
		markDead: sql(`
WITH dead AS MATERIALIZED (
	SELECT id FROM $schema.member WHERE NOT gone AND until < $now
		AND NOT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000000 BETWEEN 0 AND lease
		AND NOT $now - (SELECT since FROM $schema.version WHERE one) BETWEEN 0 AND lease
	ORDER BY id FOR UPDATE SKIP LOCKED)
UPDATE $schema.member m SET gone = true, until = 0 FROM dead WHERE m.id = dead.id RETURNING m.name`),

		markLeft: sql(`
WITH left_now AS MATERIALIZED (SELECT id FROM $schema.member WHERE id = $1 AND NOT gone FOR UPDATE)
UPDATE $schema.member m SET gone = true, until = 0 FROM left_now WHERE m.id = left_now.id RETURNING m.name`),

		// This statement is separate from the one that marked the members. Its snapshot is later, so it sees all of
		// their claims. It leaves tasks that a user's transaction has locked to a later call.
		freeOfGone: sql(`
WITH free AS MATERIALIZED (
	SELECT t.at FROM $schema.member m, LATERAL (
		SELECT t.ctid AS at FROM $schema.task t WHERE t.owner = m.id
		ORDER BY t.due, t.key FOR NO KEY UPDATE SKIP LOCKED) t
	WHERE m.gone)
UPDATE $schema.task t SET owner = NULL, revision = $next FROM free WHERE t.ctid = free.at`),

		deleteGone: sql(`
WITH done AS MATERIALIZED (
	SELECT m.ctid AS at FROM $schema.member m WHERE m.gone
		AND (SELECT true FROM $schema.task t WHERE t.owner = m.id ORDER BY t.due, t.key LIMIT 1) IS NULL
	ORDER BY m.id FOR UPDATE SKIP LOCKED)
DELETE FROM $schema.member m USING done WHERE m.ctid = done.at`),

		// This statement comes before look if there are many kinds, because look reads the index once per range. It costs
		// as much as a look for one kind, and has the same columns. The index task_due has the sums.
		probe: sql(`
SELECT $now, EXISTS (SELECT FROM ($member) m WHERE NOT gone), EXISTS (
	SELECT FROM $schema.task t WHERE t.owner IS NULL AND t.due + 0 > $2 AND t.due + 0 <= $3 ORDER BY t.due + 0 LIMIT 1)`),

		// This statement checks whether there is anything to claim. Most claims find nothing, and this check takes a
		// third of the time of a claim, because it is small and neither locks nor writes anything. It returns the time,
		// whether the member exists, and whether there is a range with a due task.
		look: sql(`
SELECT $now, EXISTS (SELECT FROM ($member) m WHERE NOT gone), EXISTS (
	SELECT FROM (SELECT * FROM unnest($2::bytea[]) k(kind), (VALUES (true), (false)) p(plain)) r, LATERAL (
		SELECT FROM $schema.task t WHERE $inRange AND t.due > $3 AND t.due <= $4 ORDER BY $rangeOrder LIMIT 1) t)`),

		// Each range is read separately, because no index contains several ranges in due order. The ORDER BY begins
		// with columns that are constant within a range, so that the planner recognizes the order of the index. The
		// lower bound keeps the claim away from the index entries of removed tasks. The statement locks no more tasks
		// than it claims, because a lock writes to the row of the task.
		//
		// The last row is not a task and has no revision. Its due time is the current time, and its owner is the
		// member, or 0 if the member is gone.
		//
		//	me       the member, as in commit, locked before the tasks
		//	r        the ranges that contain a due task
		//	share    how many of the first due tasks each range contributes; a single range contributes all of them
		//	free     that number of tasks from each range, locked. Tasks locked by another transaction are skipped
		//	missing  how many more tasks to claim, because a range has too few unlocked tasks
		//	more     that number of other tasks, locked
		claim: sql(`
WITH me AS MATERIALIZED (
	SELECT id FROM ($member FOR KEY SHARE) m WHERE until > $now
), r AS MATERIALIZED (
	SELECT r.* FROM me, (SELECT * FROM unnest($2::bytea[]) k(kind), (VALUES (true), (false)) p(plain)) r, LATERAL (
		SELECT FROM $schema.task t WHERE $inRange AND t.due > $3 AND t.due <= $4 ORDER BY $rangeOrder LIMIT 1) t
), share AS MATERIALIZED (
	SELECT kind, plain, $5::bigint AS n FROM r WHERE (SELECT count(*) FROM r) = 1
	UNION ALL
	SELECT kind, plain, count(*) FROM (
		SELECT r.* FROM r, LATERAL (
			SELECT t.due, t.key FROM $schema.task t
			WHERE $inRange AND t.due > $3 AND t.due <= $4 AND substr(t.data, 1, 1) <= $6
			ORDER BY $rangeOrder LIMIT $5) t
		WHERE (SELECT count(*) FROM r) > 1 ORDER BY t.due, t.key LIMIT $5) first
	GROUP BY kind, plain
), free AS MATERIALIZED (
	SELECT t.key, t.at FROM share r, LATERAL (
		SELECT t.key, t.ctid AS at FROM $schema.task t
		WHERE $inRange AND t.due > $3 AND t.due <= $4 AND substr(t.data, 1, 1) <= $6
		ORDER BY $rangeOrder LIMIT r.n FOR NO KEY UPDATE SKIP LOCKED) t
), missing AS MATERIALIZED (
	SELECT sum(n) - (SELECT count(*) FROM free) AS n FROM share WHERE (SELECT count(*) FROM r) > 1
), more AS MATERIALIZED (
	SELECT t.at FROM r, LATERAL (
		SELECT t.ctid AS at FROM $schema.task t
		WHERE $inRange AND t.due > $3 AND t.due <= $4 AND substr(t.data, 1, 1) <= $6
			AND t.key NOT IN (SELECT key FROM free)
		ORDER BY $rangeOrder LIMIT (SELECT n FROM missing) FOR NO KEY UPDATE SKIP LOCKED) t
	LIMIT (SELECT coalesce(n, 0) FROM missing)
), given AS (
	UPDATE $schema.task t SET owner = $1, revision = $next
	FROM (SELECT at FROM free UNION ALL SELECT at FROM more) c WHERE t.ctid = c.at RETURNING $row
)
SELECT * FROM given UNION ALL SELECT '', $now, '', '', 0, $isMember, 0, '', 0`),

		// The key of the last row is the last group that the walk reached, or $3 if the member's lease has expired.
		//
		//	walk  a row for each group: its name, or NULL for the tasks without a group, which form the last group;
		//	      the kinds with a due task in the group, the earliest first; the number of groups examined; and
		//	      the number of those groups that have a due task
		//	last  the last group that the walk reached, and how many tasks to claim from each group
		//	free  the tasks to claim, locked
		turns: sql(`
WITH RECURSIVE me AS MATERIALIZED (
	SELECT id FROM ($member FOR KEY SHARE) m WHERE until > $now
), walk(grp, kinds, looked, found) AS (
	SELECT $3::bytea, '{}'::bytea[], 0, 0 FROM me WHERE $5 > 0
	UNION ALL
	SELECT n.grp, d.kinds, looked + 1, found + (d.kinds <> '{}')::int FROM walk w, LATERAL (
		SELECT (SELECT t.grp FROM unnest($2::bytea[]) k(kind), LATERAL (
			SELECT t.grp FROM $schema.task t
			WHERE t.owner IS NULL AND t.kind = k.kind AND t.grp IS NOT NULL AND t.grp > w.grp
			ORDER BY $groupOrder LIMIT 1) t ORDER BY t.grp LIMIT 1) OFFSET 0) n(grp), LATERAL (
		SELECT ARRAY(SELECT r.kind FROM (SELECT kind, n.grp, true AS plain FROM unnest($2::bytea[]) kind) r, LATERAL (
			(SELECT t.due, t.key FROM $schema.task t
			WHERE $inGroup AND t.due <= $4 AND substr(t.data, 1, 1) <= $6 ORDER BY $groupOrder LIMIT 1)
			UNION ALL
			(SELECT t.due, t.key FROM $schema.task t
			WHERE r.grp IS NULL AND $inRange AND t.due <= $4 AND substr(t.data, 1, 1) <= $6
			ORDER BY $rangeOrder LIMIT 1)
		) t ORDER BY t.due, t.key) AS kinds OFFSET 0) d
	WHERE w.grp IS NOT NULL AND looked < 1024 AND found < $5
), last AS MATERIALIZED (
	SELECT grp, CASE WHEN $3::bytea = '' AND grp IS NULL THEN greatest($5 / greatest(found, 1), 1) ELSE 1 END AS n
	FROM walk ORDER BY looked DESC LIMIT 1
), free AS MATERIALIZED (
	SELECT t.at FROM walk, LATERAL (
		SELECT t.at FROM (SELECT kind, grp, true AS plain FROM unnest(walk.kinds) k(kind)) r, LATERAL (
			SELECT * FROM (
				SELECT t.ctid AS at FROM $schema.task t
				WHERE $inGroup AND t.due <= $4 AND substr(t.data, 1, 1) <= $6
				ORDER BY $groupOrder LIMIT (SELECT n FROM last) FOR NO KEY UPDATE SKIP LOCKED) t
			UNION ALL
			SELECT * FROM (
				SELECT t.ctid AS at FROM $schema.task t
				WHERE r.grp IS NULL AND $inRange AND t.due <= $4 AND substr(t.data, 1, 1) <= $6
				ORDER BY $rangeOrder LIMIT (SELECT n FROM last) FOR NO KEY UPDATE SKIP LOCKED) t) t
		LIMIT (SELECT n FROM last)) t
), given AS (
	UPDATE $schema.task t SET owner = $1, revision = $next FROM free WHERE t.ctid = free.at RETURNING $row
)
SELECT * FROM given
UNION ALL SELECT coalesce((SELECT coalesce(grp, '') FROM last), $3), $now, '', '', 0, $isMember, 0, '', 0`),

		// This statement does not wait for the disk; see Confirm.
		//
		//	me    whether the member's lease is still valid; empty if the member is gone
		//	held  the claimed tasks that the member still holds, locked
		//
		// The last row has no key. It contains the time, and 1 if the member exists or 0 if it does not.
		confirm: sql(`
WITH me AS MATERIALIZED (
	SELECT until > $now AS leased FROM ($member) m WHERE NOT gone
), held AS MATERIALIZED (
	SELECT t.at, q.starts FROM unnest($2::bytea[], $3::bigint[], $4::int[]) q(key, revision, starts), LATERAL (
		SELECT t.ctid AS at FROM $schema.task t
		WHERE t.key = q.key AND t.revision = q.revision AND t.owner IS NOT DISTINCT FROM $1
		LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) t
	WHERE (SELECT leased FROM me)
), started AS (
	UPDATE $schema.task t SET starts = held.starts + 1, started = $now,
		until = greatest($now + $5::bigint, CASE WHEN t.started <= $now + 1000000000 THEN t.until END)
	FROM held WHERE t.ctid = held.at
	RETURNING t.key, t.revision, held.starts
)
SELECT * FROM started
UNION ALL SELECT NULL, $now, (SELECT count(*) FROM me)::int FROM set_config('synchronous_commit', 'off', true)`),

		stillHeld: sql(`
SELECT q.key, q.revision, q.starts FROM unnest($2::bytea[], $3::bigint[], $4::int[]) q(key, revision, starts), LATERAL (
	SELECT FROM $schema.task t WHERE t.key = q.key AND t.revision = q.revision AND t.owner IS NOT DISTINCT FROM $1 LIMIT 1) t
WHERE EXISTS (SELECT FROM ($member) m WHERE until > $now)`),

		release: sql(`
WITH held AS MATERIALIZED (
	SELECT t.at FROM unnest($2::bytea[], $3::bigint[], $4::int[]) q(key, revision, starts), LATERAL (
		SELECT t.ctid AS at FROM $schema.task t
		WHERE t.key = q.key AND t.revision = q.revision AND t.starts = q.starts AND t.owner IS NOT DISTINCT FROM $1
		LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) t
)
UPDATE $schema.task t SET owner = NULL, revision = $next FROM held WHERE t.ctid = held.at`),

		status: sql(`SELECT $now, EXISTS (SELECT FROM ($member) m WHERE NOT gone)`),

		// These statements run in the user's transaction. Their arguments are only bytes, int64 values and strings,
		// which every driver supports.
		now: sql(`SELECT $now`),
		insertTx: sql(`
INSERT INTO $schema.task (key, due, revision, kind, data, grp)
VALUES ($1, $2, $next, $3, $4, CASE WHEN pg_catalog.octet_length($5::bytea) OPERATOR(pg_catalog.>) 0 THEN $5::bytea END)
ON CONFLICT (key) DO NOTHING RETURNING revision, $now`),
		deleteAtTx: sql(`DELETE FROM $schema.task WHERE key $= $1 AND revision $= $2 RETURNING revision`),
		deleteTx:   sql(`DELETE FROM $schema.task t WHERE t.key $= $1 RETURNING $wait`),
		getTx:      sql(`SELECT $row, $now, $wait FROM $schema.task t WHERE t.key $= $1 FOR NO KEY UPDATE`),
		updateTx: sql(`
UPDATE $schema.task SET due = $3::bigint, data = $4, starts = 0, owner = NULL, revision = $next, failing = CASE WHEN $5::bigint $= 1 THEN $3::bigint END,
	until = NULL
WHERE key $= $1 AND revision $= $2 RETURNING revision`),
	}
}
