// SPDX-License-Identifier: MIT

package postgres

// startSQL are the statements that claim tasks, confirm their starts and release them.
type startSQL struct {
	probe, look, claim, turns, confirm, stillHeld, release, status string
}

func (c config) startSQL() startSQL {
	sql := c.statement
	return startSQL{
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
	}
}
