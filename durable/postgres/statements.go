// SPDX-License-Identifier: MIT

package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The statements of an engine. In their texts $schema is its schema, $next the next revision, $row what scan
// reads of a task, $failing whether it is failing, and $now the server's time.
type statements struct {
	set            string
	setLockTimeout string
	setOrdered     string
	setNoSync      string

	commit  string
	get     string
	getMany string
	due     string
	byKey   string
	failing string
	census  string
	health  string

	join         string
	renew        string
	members      string
	anythingDead string
	markDead     string
	markLeft     string
	freeOfGone   string
	deleteGone   string

	claim     string
	claimed   string
	confirm   string
	release   string
	stillHeld string
	status    string

	settings    string
	setSettings string

	ask     string
	asked   string
	answer  string
	answers string
	forget  string

	now        string
	insertTx   string
	deleteAtTx string
	deleteTx   string
	getTx      string
	updateTx   string
}

// statement returns the statement of a text.
func (c config) statement(text string) string {
	return strings.NewReplacer(
		"$schema", pgx.Identifier{c.schema}.Sanitize(),
		"$next", "nextval("+quote(pgx.Identifier{c.schema, "revision"}.Sanitize())+")",
		"$now", c.now,
		"$failing", "(t.due = 9223372036854775807 OR t.failing = t.due)",
		"$tasks", quote(pgx.Identifier{c.schema, "task"}.Sanitize())+"::regclass",
		"$row", "t.key, t.due, t.data, t.kind, t.revision, coalesce(t.owner, 0), t.starts", // see scan
	).Replace(text)
}

func (c config) statements() statements {
	sql := c.statement
	return statements{
		// For the transaction, and so behind a pooler, too. Compiling a statement takes longer than running it. A
		// plan that is not made for the number of writes is slow for many. So is one that reads the whole table.
		set: sql(`SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
	set_config('plan_cache_mode', 'force_custom_plan', true)`),
		setLockTimeout: sql(fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true)", lockTimeout.Milliseconds())),
		// A table that was never analyzed looks to the planner as if few of its tasks had no owner. It would then
		// sort what an index has in order.
		setOrdered: sql(`SELECT set_config('enable_bitmapscan', 'off', true),
	set_config('enable_sort', 'off', true)`),
		setNoSync: sql(`SELECT set_config('synchronous_commit', 'off', true)`),

		// The conditions are those of durable.Condition: 1 absent, 2 present, 3 unchanged, 4 always,
		// 5 unstarted.
		//
		//	q     the writes
		//	me    the member, if its lease has not run out. It cannot be reaped before the end of the transaction
		//	old   the tasks that are to be there, locked in the order of the keys
		//	todo  the writes. Those of a batch with an unmet condition are refused
		//
		// Whether a task is absent shows as it is inserted, which waits if a transaction has removed the key and not
		// ended. A write with the condition always may find neither a task to update nor the key free: another
		// transaction has added the key since the statement began. Then the write is neither done nor unmet.
		//
		// Sets that the planner knows nothing about are joined once each, and by key.
		commit: sql(`
WITH q AS MATERIALIZED (
	SELECT * FROM unnest($1::bytea[], $2::int[], $3::int[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[],
		$8::bool[], $10::bool[]) WITH ORDINALITY
		AS q(key, batch, cond, revision, due, kind, data, hold, failing, n)
), me AS MATERIALIZED (
	SELECT id FROM $schema.member WHERE id = $9 AND until > $now FOR KEY SHARE
), old AS MATERIALIZED (
	SELECT t.key, t.revision, t.starts FROM q JOIN $schema.task t ON t.key = q.key WHERE q.cond <> 1
	ORDER BY t.key FOR UPDATE OF t
), todo AS MATERIALIZED (
	SELECT *, bool_or(unmet) OVER (PARTITION BY batch) AS refused FROM (
		SELECT q.*, old.key IS NOT NULL AS there, CASE q.cond
			WHEN 1 THEN q.data IS NULL AND (SELECT true FROM $schema.task t WHERE t.key = q.key) IS NOT NULL
			WHEN 2 THEN old.key IS NULL
			WHEN 3 THEN old.revision IS DISTINCT FROM q.revision
			WHEN 5 THEN old.revision IS DISTINCT FROM q.revision OR old.starts > 0
			ELSE false END AS unmet
		FROM q LEFT JOIN old ON old.key = q.key) c
), ins AS (
	INSERT INTO $schema.task (key, due, revision, owner, kind, data, failing)
	SELECT key, due, $next, CASE WHEN hold THEN (SELECT id FROM me) END, kind, data, CASE WHEN failing THEN due END
	FROM todo WHERE NOT refused AND NOT there AND data IS NOT NULL ORDER BY key
	ON CONFLICT (key) DO NOTHING RETURNING key, revision, owner
), upd AS (
	UPDATE $schema.task t SET due = todo.due, kind = todo.kind, data = todo.data, starts = 0,
		revision = $next, owner = CASE WHEN hold THEN (SELECT id FROM me) END,
		failing = CASE WHEN todo.failing THEN todo.due END
	FROM todo WHERE t.key = todo.key AND NOT refused AND there AND todo.data IS NOT NULL
	RETURNING t.key, t.revision, t.owner
), del AS (
	DELETE FROM $schema.task t USING todo WHERE t.key = todo.key AND NOT refused AND there AND todo.data IS NULL
	RETURNING t.key
), done AS (
	SELECT key, revision, owner FROM ins UNION ALL SELECT key, revision, owner FROM upd
	UNION ALL SELECT key, 0, NULL FROM del
	UNION ALL SELECT key, 0, NULL FROM todo WHERE NOT refused AND NOT there AND data IS NULL
)
SELECT todo.n, unmet OR cond = 1 AND done.key IS NULL
		AND (NOT refused OR (SELECT true FROM $schema.task t WHERE t.key = todo.key) IS NOT NULL),
	done.key IS NOT NULL, coalesce(done.revision, 0), done.owner IS NOT NULL, there
FROM todo LEFT JOIN done ON done.key = todo.key`),

		get:     sql(`SELECT $row FROM $schema.task t WHERE t.key = $1`),
		getMany: sql(`SELECT $row FROM $schema.task t WHERE t.key = ANY($1::bytea[])`),

		// The index has the tasks of each owner in order. The tasks with an owner are few.
		due: sql(`
SELECT $row FROM (
	(SELECT * FROM $schema.task WHERE owner IS NULL AND (due, key) > ($1, $2) AND due <= $3
	ORDER BY owner, due, key LIMIT $4)
	UNION ALL
	(SELECT * FROM $schema.task WHERE owner IS NOT NULL AND (due, key) > ($1, $2) AND due <= $3
	ORDER BY due, key LIMIT $4)
) t ORDER BY t.due, t.key LIMIT $4`),

		byKey: sql(`SELECT $row FROM $schema.task t WHERE t.key >= $1 ORDER BY t.key LIMIT $2`),

		// The condition is that of the index.
		failing: sql(`SELECT $row FROM $schema.task t WHERE $failing AND t.key >= $1 ORDER BY t.key LIMIT $2`),

		census: sql(`
SELECT t.kind, count(*), count(*) FILTER (WHERE $failing AND t.due <> 9223372036854775806),
	count(*) FILTER (WHERE t.due = 9223372036854775807), count(*) FILTER (WHERE t.due = 9223372036854775806)
FROM $schema.task t GROUP BY t.kind`),

		// A transaction holds back vacuum if it has written, or has a snapshot. A vacuum does not hold back another.
		health: sql(`
SELECT coalesce((SELECT (extract(epoch FROM max(clock_timestamp() - began)) * 1000000)::bigint FROM (
		SELECT xact_start AS began FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
			AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
		UNION ALL
		SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) t), 0),
	coalesce((SELECT n_dead_tup FROM pg_stat_all_tables WHERE relid = $tasks), 0),
	pg_total_relation_size($tasks)`),

		join: sql(`
INSERT INTO $schema.member (name, lease, until)
SELECT $1, $2::bigint, t.now + $2::bigint FROM (SELECT $now AS now) t RETURNING id, until - lease`),

		renew: sql(`
UPDATE $schema.member SET until = $now + lease, report = $2 WHERE id = $1 AND NOT gone
RETURNING until - lease, 1 + (SELECT count(*) FROM $schema.member WHERE until > $now AND id <> $1)`),

		members: sql(`
SELECT m.id, m.name, m.lease, m.until - $now, (SELECT count(*) FROM $schema.task t WHERE t.owner = m.id), m.report
FROM $schema.member m WHERE NOT m.gone`),

		anythingDead: sql(`SELECT EXISTS (SELECT FROM $schema.member WHERE until < $now)`),

		// No member is reaped before the server has been up for longer than its lease.
		markDead: sql(`
WITH dead AS MATERIALIZED (
	SELECT id FROM $schema.member WHERE NOT gone AND until < $now
		AND lease < extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000000
	ORDER BY id FOR UPDATE SKIP LOCKED)
UPDATE $schema.member m SET gone = true, until = 0 FROM dead WHERE m.id = dead.id RETURNING m.name`),

		markLeft: sql(`
WITH left_now AS MATERIALIZED (SELECT id FROM $schema.member WHERE id = $1 AND NOT gone FOR UPDATE)
UPDATE $schema.member m SET gone = true, until = 0 FROM left_now WHERE m.id = left_now.id RETURNING m.name`),

		// A statement of its own, and so with a later snapshot than that which has marked the members: it sees
		// every claim of theirs. What a user's transaction has locked is left to a later call.
		freeOfGone: sql(`
WITH free AS MATERIALIZED (
	SELECT t.key FROM $schema.task t JOIN $schema.member m ON m.id = t.owner AND m.gone
	ORDER BY t.key FOR NO KEY UPDATE OF t SKIP LOCKED)
UPDATE $schema.task t SET owner = NULL, revision = $next FROM free WHERE t.key = free.key`),

		deleteGone: sql(`
DELETE FROM $schema.member WHERE id IN (
	SELECT m.id FROM $schema.member m WHERE m.gone AND NOT EXISTS (SELECT FROM $schema.task t WHERE t.owner = m.id)
	ORDER BY m.id FOR UPDATE SKIP LOCKED)`),

		// The lower bound keeps the claim away from the index entries of tasks that are gone. The order begins with
		// the owner, who is the same, because the planner then finds it in the index.
		claim: sql(`
WITH me AS MATERIALIZED (
	SELECT id FROM $schema.member WHERE id = $1 AND until > $now FOR KEY SHARE
), free AS MATERIALIZED (
	SELECT t.key FROM $schema.task t
	WHERE t.owner IS NULL AND t.due > $3 AND t.due <= $4 AND t.kind = ANY($2::bytea[])
		AND substr(t.data, 1, 1) < $6 AND EXISTS (SELECT FROM me)
	ORDER BY t.owner, t.due, t.key LIMIT $5 FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE $schema.task t SET owner = me.id, revision = $next FROM free, me
WHERE t.key = free.key RETURNING $row`),

		claimed: sql(`SELECT $row FROM $schema.task t WHERE t.owner = $1 ORDER BY t.due, t.key`),

		// Each task is looked up by its key. As a plain join it may be found by its owner, or with a walk over all
		// keys: after many tasks since the last vacuum that reads the index entries of all of them.
		confirm: sql(`
WITH held AS MATERIALIZED (
	SELECT t.key, q.starts FROM unnest($2::bytea[], $3::bigint[], $4::int[]) q(key, revision, starts), LATERAL (
		SELECT t.key FROM $schema.task t
		WHERE t.key = q.key AND t.revision = q.revision AND t.owner IS NOT DISTINCT FROM $1
		LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) t
	WHERE EXISTS (SELECT FROM $schema.member WHERE id = $1 AND until > $now)
)
UPDATE $schema.task t SET starts = held.starts + 1 FROM held WHERE t.key = held.key
RETURNING t.key, t.revision, held.starts`),

		stillHeld: sql(`
SELECT t.key, t.revision, q.starts FROM unnest($2::bytea[], $3::bigint[], $4::int[]) q(key, revision, starts)
JOIN $schema.task t ON t.key = q.key AND t.revision = q.revision
WHERE t.owner IS NOT DISTINCT FROM $1 AND EXISTS (SELECT FROM $schema.member WHERE id = $1 AND until > $now)`),

		release: sql(`
WITH held AS MATERIALIZED (
	SELECT t.key FROM unnest($2::bytea[], $3::bigint[]) q(key, revision)
	JOIN $schema.task t ON t.key = q.key AND t.revision = q.revision WHERE t.owner IS NOT DISTINCT FROM $1
	ORDER BY t.key FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE $schema.task t SET owner = NULL, revision = $next FROM held WHERE t.key = held.key`),

		settings: sql(`SELECT data, revision FROM $schema.settings`),

		// Two that see no row insert one, and the second finds the revision of the first.
		setSettings: sql(`
INSERT INTO $schema.settings AS s (revision, data) SELECT 1, $1
	WHERE $2::bigint = 0 OR EXISTS (SELECT FROM $schema.settings)
ON CONFLICT (one) DO UPDATE SET revision = s.revision + 1, data = $1 WHERE s.revision = $2`),

		ask: sql(`
WITH old AS (DELETE FROM $schema.question WHERE asked < $now - 86400000000000),
one AS MATERIALIZED (SELECT $next AS id),
made AS (
	INSERT INTO $schema.question (id, member, asked, data)
	SELECT one.id, m.id, $now, $2 FROM one, $schema.member m WHERE NOT m.gone AND m.id <> $1
)
SELECT id FROM one`),
		asked: sql(`
SELECT q.id, q.data FROM $schema.question q JOIN $schema.member m ON m.id = q.member AND NOT m.gone
WHERE q.member = $1 AND NOT q.last ORDER BY q.id`),
		answer: sql(`UPDATE $schema.question SET answer = $3, last = $4 WHERE member = $1 AND id = $2`),
		answers: sql(`
SELECT m.name, q.answer, q.last FROM $schema.question q JOIN $schema.member m ON m.id = q.member AND NOT m.gone
WHERE q.id = $1`),
		forget: sql(`DELETE FROM $schema.question WHERE id = $1`),

		status: sql(`SELECT $now, EXISTS (SELECT FROM $schema.member WHERE id = $1 AND NOT gone)`),

		// In a transaction of the user. The arguments are bytes, int64 and strings alone, as every driver has them.
		now: sql(`SELECT $now`),
		insertTx: sql(`
INSERT INTO $schema.task (key, due, revision, kind, data) VALUES ($1, $2, $next, $3, $4)
ON CONFLICT (key) DO NOTHING RETURNING revision`),
		deleteAtTx: sql(`DELETE FROM $schema.task WHERE key = $1 AND revision = $2 RETURNING revision`),
		deleteTx:   sql(`DELETE FROM $schema.task WHERE key = $1 RETURNING revision`),
		getTx:      sql(`SELECT $row, $now FROM $schema.task t WHERE t.key = $1 FOR NO KEY UPDATE`),
		updateTx: sql(`
UPDATE $schema.task SET due = $3, data = $4, starts = 0, owner = NULL, revision = $next, failing = NULL
WHERE key = $1 AND revision = $2 RETURNING revision`),
	}
}
