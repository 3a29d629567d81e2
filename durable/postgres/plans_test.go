// SPDX-License-Identifier: MIT

package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// A statement on the tasks has the same plan whatever the server knows of the tables: nothing, that they are empty, that
// there are many tasks, or that there are few of what were many. So a plan that was made once remains a good one. None reads
// the whole table. The tables of the members and notes are small.
func TestStatements_haveOnePlan(t *testing.T) {
	e := open(t)
	conn := connect(t, shared.URL())
	exec(t, conn, postgres.SetSession(e))
	exec(t, conn, e.Text("ALTER TABLE $schema.task SET (autovacuum_enabled = off)"))
	statements := postgres.Statements(e)
	plan := func(name string) []string {
		t.Helper()
		exec(t, conn, "PREPARE planned AS "+statements[name])
		defer exec(t, conn, "DEALLOCATE planned")
		var n int
		const params = "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'planned'"
		check(t, conn.QueryRow(t.Context(), params).Scan(&n))
		args := ""
		if n > 0 {
			args = "(" + strings.Join(slices.Repeat([]string{"NULL"}, n), ", ") + ")"
		}
		rows, err := conn.Query(t.Context(), "EXPLAIN (COSTS OFF) EXECUTE planned"+args, pgx.QueryExecModeSimpleProtocol)
		check(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		check(t, err)
		return lines
	}
	first := make(map[string][]string)
	for _, table := range []struct{ name, sql string }{
		{"is new", "SELECT"},
		{"is empty and analyzed", "ANALYZE $schema.task, $schema.member, $schema.note"},
		{"is empty and vacuumed", "VACUUM ANALYZE $schema.task, $schema.member, $schema.note"},
		{"has grown since", "INSERT INTO $schema.task (key, due, revision, owner, kind, data, grp) " +
			"SELECT convert_to('k' || i, 'UTF8'), i, i, nullif(i % 100, i % 50), 'kind', 'data', nullif('g', left('g', i % 2))::bytea " +
			"FROM generate_series(1, 100000) i"},
		{"is large and vacuumed", "VACUUM ANALYZE $schema.task, $schema.member, $schema.note"},
		{"was large", "DELETE FROM $schema.task WHERE due > 3"},
		{"was large and is analyzed", "ANALYZE $schema.task, $schema.member, $schema.note"},
		{"was large and is vacuumed", "VACUUM ANALYZE $schema.task, $schema.member, $schema.note"},
	} {
		exec(t, conn, e.Text(table.sql))
		for name := range statements {
			got := plan(name)
			ofTasks := false
			for _, line := range got {
				ofTasks = ofTasks || strings.Contains(line, " on task ")
				if strings.Contains(line, "Seq Scan on task") {
					t.Errorf("%s reads the whole table when it %s: %s", name, table.name, line)
				}
			}
			if first[name] == nil {
				first[name] = got
			} else if want := first[name]; ofTasks && !slices.Equal(got, want) {
				t.Errorf("the plan of %s when the table %s is another:\n%s\n\nbefore:\n%s", name, table.name,
					strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}
