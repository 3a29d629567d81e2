// SPDX-License-Identifier: MIT

package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/internal/suite"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

func TestOperate(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			e := open(t)
			suite.TestOperate(t, func(t *testing.T, opts ...durable.Option) (all []*durable.Scheduler) {
				for i := range nodes {
					s, err := durable.New(t.Context(), e, append(opts, durable.WithLogger(testkit.Quiet()),
						durable.WithNodeName(fmt.Sprint("node ", i)))...)
					check(t, err)
					all = append(all, s)
				}
				return all
			})
		})
	}
}

// failing returns the keys of failing tasks, and how many are counted.
func failing(t *testing.T, e *postgres.Engine) (keys []string, n int) {
	t.Helper()
	for s, err := range e.Walk(t.Context(), engine.Range{Order: engine.Failing}) {
		check(t, err)
		keys = append(keys, s.Key)
	}
	kinds, err := e.Count(t.Context())
	check(t, err)
	for _, k := range kinds {
		n += k.Failing
	}
	return keys, n
}

// Tasks that do not fail cost nothing: they are not in the index, and the walk over failing tasks does not pass over
// them.
func TestFailing_othersCostNothing(t *testing.T) {
	e := open(t)
	conn := connect(t, shared.URL())
	exec(t, conn, e.Text("INSERT INTO $schema.task (key, due, revision, kind, data) SELECT convert_to('k' || i, 'UTF8'), "+
		"$1::bigint + i, i, 'kind', 'data' FROM generate_series(1, 50000) i"), time.Now().UnixNano())
	size := func() (n int) {
		check(t, conn.QueryRow(t.Context(), "SELECT pg_relation_size($1::text::regclass)",
			e.Text("$schema.task_failing")).Scan(&n))
		return n
	}
	id, _, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	got := claim(t, e, id, 1<<62, 1000)
	var batch engine.Batch
	for _, s := range got {
		batch = append(batch, remove(s.Key))
	}
	commit(t, e, id, batch...)
	before := size()
	if before > 8192 {
		t.Errorf("without a failing task their index takes %d bytes", before)
	}
	reads := func() int { return readsOf(t, e, conn, postgres.FailingSQL(e), []byte(""), 64) }
	if n := reads(); n > 16 {
		t.Errorf("to find nothing %d blocks are read", n)
	}
	w := put("k7", 5, engine.Always)
	w.Failing = true
	commit(t, e, 0, w)
	if n := reads(); n > 16 {
		t.Errorf("to find one task %d blocks are read", n)
	}
	if keys, n := failing(t, e); len(keys) != 1 || n != 1 {
		t.Errorf("failing are %q, and %d are counted", keys, n)
	}
}
