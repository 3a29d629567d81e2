// SPDX-License-Identifier: MIT

package postgres

// writeSQL are the statements that write tasks and notes.
type writeSQL struct {
	commit, add, remove, commitNotes string
}

func (c config) writeSQL() writeSQL {
	sql := c.statement
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
	return writeSQL{
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
	}
}
