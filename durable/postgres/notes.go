// SPDX-License-Identifier: MIT

package postgres

import (
	"bytes"
	"context"
	"iter"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// commitNotesSQL is the statement that commits notes. It has the same common table expressions as the statement that
// commits tasks, and this additional one:
//
//	old  the existing notes, locked in name order. As in the other statements, each is looked up by its name,
//	     because there may be many notes
const commitNotesSQL = `
WITH q AS MATERIALIZED (
	SELECT * FROM unnest($1::bytea[], $2::int[], $3::int[], $4::bigint[], $5::bytea[]) WITH ORDINALITY
		AS q(name, batch, cond, revision, data, n)
), old AS MATERIALIZED (
	SELECT t.name, t.revision FROM (SELECT name FROM q ORDER BY name) q CROSS JOIN LATERAL (
		SELECT t.name, t.revision FROM $schema.note t WHERE t.name = q.name LIMIT 1 FOR UPDATE) t
), todo AS MATERIALIZED (
	SELECT *, bool_or(unmet) OVER (PARTITION BY batch) AS refused FROM (
		SELECT q.*, old.name IS NOT NULL AS there, CASE
			WHEN q.cond = 1 THEN old.name IS NOT NULL
			WHEN q.cond = 2 THEN old.name IS NULL
			WHEN q.cond IN (3, 5) THEN old.revision IS DISTINCT FROM q.revision
			ELSE false END AS unmet
		FROM q LEFT JOIN old ON old.name = q.name) c
), ins AS (
	INSERT INTO $schema.note (name, revision, data) SELECT name, $next, data FROM todo
	WHERE NOT refused AND NOT there AND data IS NOT NULL ORDER BY name
	ON CONFLICT (name) DO NOTHING RETURNING name, revision
), upd AS (
	UPDATE $schema.note t SET revision = $next, data = (SELECT todo.data FROM todo WHERE todo.name = t.name)
	WHERE t.name = ANY(ARRAY(SELECT name FROM todo WHERE NOT refused AND there AND data IS NOT NULL))
	RETURNING t.name, t.revision
), del AS (
	DELETE FROM $schema.note t
	WHERE t.name = ANY(ARRAY(SELECT name FROM todo WHERE NOT refused AND there AND data IS NULL)) RETURNING t.name
), done AS (
	SELECT * FROM ins UNION ALL SELECT * FROM upd UNION ALL SELECT name, 0 FROM del
	UNION ALL SELECT name, 0 FROM todo WHERE NOT refused AND NOT there AND data IS NULL
)
SELECT todo.n, unmet OR cond = 1 AND NOT refused AND done.name IS NULL, done.name IS NOT NULL,
	coalesce(done.revision, 0), false, there, 0::bigint
FROM todo LEFT JOIN done ON done.name = todo.name`

// notesSQL is the statement that reads one page in a walk over the notes from the name $1 to the name $2, without their
// data if $3 is set. It has the columns of $row.
const notesSQL = `
SELECT t.name, 0::bigint AS due, CASE WHEN $3 THEN '' ELSE t.data END, ''::bytea AS kind, t.revision, 0::bigint, 0,
	''::bytea, 0::bigint
FROM $schema.note t WHERE t.name >= $1 AND t.name < $2 ORDER BY t.name LIMIT $4`

// afterNames is greater than the name of any note.
var afterNames = bytes.Repeat([]byte{0xff}, engine.MaxNoteName+1)

// walkNotes reads notes. The starts of runs wait for the pauses, so a walk without an end, which reads these, is on the
// connections for control.
func (e *Engine) walkNotes(ctx context.Context, over engine.Range) iter.Seq2[engine.Stored, error] {
	on, to := e.control, afterNames
	if over.To != "" {
		on, to = e.verbs, []byte(over.To)
	}
	return e.walk(ctx, on, e.sql.notes, []any{[]byte(over.From), to, over.Bare}, func(last engine.Stored) []any {
		return []any{[]byte(last.Key + "\x00"), to, over.Bare}
	})
}
