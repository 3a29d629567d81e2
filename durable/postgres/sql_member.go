// SPDX-License-Identifier: MIT

package postgres

// memberSQL are the statements about members and their leases.
type memberSQL struct {
	join, renew, members, anythingDead, noticeServer, advance, cutLeases, markDead, markLeft, freeOfGone, deleteGone string
}

func (c config) memberSQL() memberSQL {
	sql := c.statement
	return memberSQL{
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
	}
}
