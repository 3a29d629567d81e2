// SPDX-License-Identifier: MIT

package postgres

// readSQL are the statements that read tasks and notes, and the state of the server.
type readSQL struct {
	notes, get, due, byKey, failing, held, count, health string
}

func (c config) readSQL() readSQL {
	sql := c.statement
	return readSQL{
		notes: sql(notesSQL),

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
	}
}
