// SPDX-License-Identifier: MIT

package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// A statement on the tasks has the same plan whatever the server knows about the tables: nothing, that they are empty,
// that there are many tasks, or that few of many are left. So a cached plan stays good. No statement reads the whole
// table, and each note is looked up by its name or range. The table of the members is small. With a detail removed some
// plans depend on the tables.
func TestStatements_haveOnePlan(t *testing.T) {
	eachFound(t, 1, "plans that depend on the tables, or read all of one", []sabotage{
		{"", false},
		{"claims are joined, and not looked up one by one", true},
		{"the planner has all choices", true},
	}, flippedPlans)
}

// flippedPlans returns how many plans change, or read the whole table, when the statistics of the tables change.
func flippedPlans(t *testing.T, without string) (n int) {
	t.Helper()
	e := open(t)
	e.Break(without)
	conn := connect(t, shared.URL())
	exec(t, conn, postgres.SetSession(e))
	exec(t, conn, e.Text("ALTER TABLE $schema.task SET (autovacuum_enabled = off)"))
	statements := postgres.Statements(e)
	plan := func(name string) []string {
		t.Helper()
		exec(t, conn, "PREPARE planned AS "+statements[name])
		defer exec(t, conn, "DEALLOCATE planned")
		var args string
		var params int
		const paramsSQL = "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'planned'"
		check(t, conn.QueryRow(t.Context(), paramsSQL).Scan(&params))
		if params > 0 {
			args = "(" + strings.Join(slices.Repeat([]string{"NULL"}, params), ", ") + ")"
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
		{"has many notes", "INSERT INTO $schema.note (name, revision, data) " +
			"SELECT convert_to('history/' || i, 'UTF8'), i, 'data' FROM generate_series(1, 50000) i"},
		{"is large and vacuumed", "VACUUM ANALYZE $schema.task, $schema.member, $schema.note"},
		{"was large", "DELETE FROM $schema.task WHERE due > 3"},
		{"was large and is analyzed", "ANALYZE $schema.task, $schema.member, $schema.note"},
		{"was large and is vacuumed", "VACUUM ANALYZE $schema.task, $schema.member, $schema.note"},
	} {
		exec(t, conn, e.Text(table.sql))
		for name := range statements {
			got := plan(name)
			ofTasks := false
			for i, line := range got {
				ofTasks = ofTasks || strings.Contains(line, " on task ")
				if strings.Contains(line, "Scan") && strings.Contains(line, " on note ") && !strings.Contains(strings.Join(got[i:min(i+2, len(got))], ""), "Index Cond: ") {
					n++
					t.Logf("%s reads all notes when the table %s:\n%s", name, table.name, strings.Join(got, "\n"))
				}
				if strings.Contains(line, "Seq Scan on task") {
					n++
					t.Logf("%s reads the whole table when it %s: %s", name, table.name, line)
				}
			}
			if first[name] == nil {
				first[name] = got
			} else if want := first[name]; ofTasks && !slices.Equal(got, want) {
				n++
				t.Logf("the plan of %s when the table %s is another:\n%s\n\nbefore:\n%s", name, table.name,
					strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	return n
}
