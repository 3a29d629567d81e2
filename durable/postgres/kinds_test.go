// SPDX-License-Identifier: MIT

package postgres_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// While nothing is due, a claim of 1,000 kinds makes at most twice the index scans of a claim of one kind, whether the
// tasks of the kinds are stored or not.
func TestClaim_ofManyKindsAtRest_costsWhatOneCosts(t *testing.T) {
	eachFound(t, 1, "more than twice the index scans of one kind", []sabotage{
		{"", false}, {"no look at all kinds at once", true},
	}, func(t *testing.T, without string) (more int) {
		e := open(t)
		e.Break(without)
		kinds := manyKinds()
		for _, stored := range []int{0, 5000} {
			store(t, e, stored, 1<<62)
			one, all := scans(t, e, kinds[:1]), scans(t, e, kinds)
			t.Logf("with %d tasks stored, %d claims make %d index scans for one kind, and %d for %d", stored, claimsOfScans,
				one, all, len(kinds))
			more += max(all-2*one, 0)
		}
		return more
	})
}

// A claim of many kinds takes the due tasks of each, and no task of another kind.
func TestClaim_ofManyKinds(t *testing.T) {
	e := open(t)
	id, now, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	commit(t, e, 0, add("of another kind", now))
	r := engine.ClaimRequest{By: id, Kinds: manyKinds(), Until: now, Most: 5000, Readable: math.MaxUint8}
	for _, want := range []int{0, 3000} {
		store(t, e, want, now)
		if got, err := e.Claim(t.Context(), r); err != nil || len(got.Tasks) != want || got.Now < now {
			t.Errorf("claimed are %d tasks at %d, %v, want %d", len(got.Tasks), got.Now, err, want)
		}
	}
}

func manyKinds() (kinds []string) {
	for i := range 1000 {
		kinds = append(kinds, fmt.Sprint("kind ", i))
	}
	return kinds
}

// store adds tasks of many kinds.
func store(t *testing.T, e *postgres.Engine, tasks int, due int64) {
	t.Helper()
	exec(t, connect(t, shared.URL()), e.Text("INSERT INTO $schema.task (key, due, revision, kind, data) SELECT "+
		"convert_to('k' || i, 'UTF8'), $2, i, convert_to('kind ' || i % 1000, 'UTF8'), 'data' FROM generate_series(1, $1::int) i"),
		tasks, due)
}

const claimsOfScans = 10

// scans returns how many index scans some claims make.
func scans(t *testing.T, e *postgres.Engine, kinds []string) (n int) {
	t.Helper()
	id, now, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	conn := connect(t, shared.URL())
	read := func(index string) (n int) {
		check(t, conn.QueryRow(t.Context(), "SELECT coalesce(sum(idx_scan), 0)::int FROM pg_stat_all_indexes WHERE relid IN "+
			"(to_regclass($1), to_regclass($2)) AND indexrelname LIKE $3", e.Text("$schema.task"), e.Text("$schema.member"), index).
			Scan(&n))
		return n
	}
	members, before := read("member_lease"), read("%")
	for range claimsOfScans {
		_, err := e.Claim(t.Context(), engine.ClaimRequest{By: id, Kinds: kinds, Until: now, Most: 100, Readable: math.MaxUint8})
		check(t, err)
	}
	e.Reconnect() // a session that ends reports its scans
	await(t, func() error {
		if n := read("member_lease") - members; n < claimsOfScans {
			return fmt.Errorf("%d scans of the members are reported", n)
		}
		return nil
	})
	return read("%") - before
}
