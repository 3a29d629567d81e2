// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// Groups that write the same keys in opposite order wait for each other, but never deadlock. Without the ordering of
// the keys some do.
func TestCommit_groupsInOppositeOrder_meetNoDeadlock(t *testing.T) {
	eachFound(t, 30, "deadlocks", []sabotage{ // a broken promise shows in most tries
		{"", false},
		{"8 changes lock in any order", true},
		{"8 adds lock in any order", true},
	}, deadlocks)
}

// deadlocks returns how many deadlocks there were when groups wrote the same keys in opposite order. The server detects
// them before a statement gives up waiting.
func deadlocks(t *testing.T, without string) (n int) {
	t.Helper()
	conn := connect(t, server(t))
	read := func() (n int) {
		check(t, conn.QueryRow(t.Context(), "SELECT sum(deadlocks) FROM pg_stat_database").Scan(&n))
		return n
	}
	before := read()
	e, err := postgres.Open(t.Context(), server(t)+"&deadlock_timeout=1ms&application_name=deadlocks", schema())
	check(t, err)
	e.Break(without)
	const keys, callers, rounds = 40, 4, 8
	for round := range rounds {
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for change := range 4 { // the first of them adds
					var batches []engine.Batch
					for i := range keys {
						w := put(fmt.Sprint(round, " ", i), int64(change), engine.Always)
						batches = append(batches, engine.Batch{w})
					}
					if caller%2 == 1 {
						slices.Reverse(batches)
					}
					results, err := e.Commit(context.Background(), 0, batches)
					if err != nil {
						t.Error(err)
						return
					}
					for _, r := range results {
						if !r.Busy && len(r.Written) != 1 {
							t.Errorf("the result is %+v", r)
						}
					}
				}
			})
		}
		all.Wait()
	}
	e.Close()
	await(t, func() error { // a connection reports its deadlocks at its end
		var open int
		const sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'deadlocks'"
		err := conn.QueryRow(t.Context(), sql).Scan(&open)
		if open > 0 {
			return fmt.Errorf("%d connections are open", open)
		}
		return err
	})
	return read() - before
}

// A claim reads no more after a forgotten transaction has held back vacuum while 200,000 tasks came and went. Their
// index entries precede those of the tasks due now.
func TestClaim_underAForgottenTransaction_readsNoMore(t *testing.T) {
	e := open(t)
	ctx := t.Context()
	const dead = 200000
	id, now, err := e.Join(ctx, "node", time.Hour)
	check(t, err)
	conn, forgotten := connect(t, shared.URL()), connect(t, shared.URL())
	fill := func(n int, due int64) {
		exec(t, conn, e.Text("INSERT INTO $schema.task (key, due, revision, kind, data) "+
			"SELECT convert_to($2::bigint || '.' || i, 'UTF8'), $2::bigint + i, i, 'kind', 'data' "+
			"FROM generate_series(1, $1::int) i"), n, due)
	}
	fill(1000, now) // the tasks to claim
	before := readsOfClaim(t, e, conn, id, now)
	exec(t, forgotten, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, forgotten, e.Text("SELECT count(*) FROM $schema.task"))
	fill(dead, now-int64(time.Hour))
	exec(t, conn, e.Text("DELETE FROM $schema.task WHERE due < $1"), now)
	exec(t, conn, e.Text("VACUUM ANALYZE $schema.task"))
	after := readsOfClaim(t, e, conn, id, now)
	t.Logf("a claim reads %d blocks, and %d after %d tasks came and went", before, after, dead)
	if after > 2*before {
		t.Errorf("a claim reads %d blocks, and %d after %d tasks came and went", before, after, dead)
	}
	// Detail 11: without the lower bound the claim reads dead entries.
	if all := readsOfClaim(t, e, conn, id, engine.None+1); all < 3*after {
		t.Errorf("a claim without a lower bound reads %d blocks, and one with it %d", all, after)
	}
}

// A confirmation reads no more after a forgotten transaction has held back vacuum while its member ran 50,000 other
// tasks.
func TestConfirm_underAForgottenTransaction_readsNoMore(t *testing.T) {
	e := open(t)
	const dead, held = 50000, 50
	id, now, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	conn, forgotten := connect(t, shared.URL()), connect(t, shared.URL())
	fill := func(n int, due int64) {
		exec(t, conn, e.Text("INSERT INTO $schema.task (key, due, revision, owner, kind, data) "+
			"SELECT convert_to($2::bigint || '.' || i, 'UTF8'), $2::bigint + i, i, $3, 'kind', 'data' "+
			"FROM generate_series(1, $1::int) i"), n, due, int64(id))
	}
	fill(held, now)
	exec(t, conn, e.Text("VACUUM ANALYZE $schema.task"))
	var keys [][]byte
	var revisions []int64
	for i := range int64(held) {
		keys = append(keys, fmt.Appendf(nil, "%d.%d", now, i+1))
		revisions = append(revisions, i+1)
	}
	reads := func() int {
		return readsOf(t, e, conn, postgres.ConfirmSQL(e), int64(id), keys, revisions, make([]int32, held), int64(time.Second))
	}
	before := reads()
	exec(t, forgotten, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, forgotten, e.Text("SELECT count(*) FROM $schema.task"))
	fill(dead, now-int64(time.Hour))
	exec(t, conn, e.Text("DELETE FROM $schema.task WHERE due < $1"), now)
	exec(t, conn, e.Text("VACUUM ANALYZE $schema.task"))
	after := reads()
	t.Logf("a confirmation reads %d blocks, and %d after the member has run %d tasks", before, after, dead)
	if after > 3*before { // every path through a tree is one level longer
		t.Errorf("a confirmation reads %d blocks, and %d after the member has run %d tasks", before, after, dead)
	}
}

// readsOfClaim returns how many blocks a claim of 100 tasks reads. The claim is rolled back.
func readsOfClaim(t *testing.T, e *postgres.Engine, conn *pgx.Conn, id engine.MemberID, after int64) int {
	t.Helper()
	kinds := [][]byte{[]byte("kind")}
	return readsOf(t, e, conn, postgres.ClaimSQL(e), int64(id), kinds, after-1, int64(1)<<62, 100, []byte{255})
}

// readsOf returns how many blocks a statement reads. The statement is rolled back.
func readsOf(t *testing.T, e *postgres.Engine, conn *pgx.Conn, sql string, args ...any) int {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	check(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	exec := func(sql string) {
		t.Helper()
		_, err := tx.Exec(t.Context(), sql)
		check(t, err)
	}
	exec(postgres.SetSQL(e))
	exec("PREPARE measured AS " + sql)
	defer exec("DEALLOCATE measured")
	explain := "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE measured"
	if len(args) > 0 {
		params := make([]string, len(args))
		for i := range args {
			params[i] = fmt.Sprintf("$%d", i+1)
		}
		explain += "(" + strings.Join(params, ", ") + ")"
	}
	var text []byte
	check(t, tx.QueryRow(t.Context(), explain, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&text))
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	check(t, json.Unmarshal(text, &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// newProxy returns a proxy of the server, which is closed with the test.
func newProxy(t *testing.T, to *pgtest.Server) *pgtest.Proxy {
	t.Helper()
	p, err := pgtest.NewProxy(to)
	check(t, err)
	t.Cleanup(p.Close)
	return p
}

// lose returns a disturbance that drops the answers to the messages for which is returns true.
func lose(is func(message []byte) bool) func(message []byte) (pgtest.Fault, time.Duration) {
	return func(message []byte) (pgtest.Fault, time.Duration) {
		if is(message) {
			return pgtest.Lose, 0
		}
		return pgtest.None, 0
	}
}

// A commit whose answer is lost returns an error, but has taken effect. So does a claim.
func TestCommit_answerIsLost_isAnErrorAndDone(t *testing.T) {
	server(t)
	p := newProxy(t, shared.Server)
	e, err := postgres.Open(t.Context(), p.URL(), schema())
	check(t, err)
	defer e.Close()
	ctx := t.Context()
	id, now, err := e.Join(ctx, "node", time.Hour)
	check(t, err)
	commit(t, e, 0, add("warm", now)) // the statements are described now
	_, err = e.Claim(ctx, engine.ClaimRequest{By: id, Kinds: []string{"none"}, Until: now, Most: 1})
	check(t, err)

	cut := func(word string) {
		p.Disturb(lose(func(sent []byte) bool { return strings.Contains(string(sent), word) }))
	}
	cut("lost-key")
	unknown := func(what string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, engine.ErrNotDone) {
			t.Errorf("%s without an answer returns %v", what, err)
		}
	}
	_, err = e.Commit(ctx, 0, []engine.Batch{{add("lost-key", now)}})
	unknown("a commit", err)
	_, err = e.Commit(ctx, 0, []engine.Batch{{add("lost-key-1", now), add("lost-key-2", now)}})
	if !errors.Is(err, engine.ErrNotDone) {
		t.Errorf("a transaction whose connection broke before its COMMIT: %v", err)
	}
	w := add("k", now)
	w.Kind = "lost-kind"
	p.Disturb(nil)
	commit(t, e, 0, w)
	looked := false
	p.Disturb(lose(func(sent []byte) bool { // a claim looks first
		if !strings.Contains(string(sent), "lost-kind") {
			return false
		}
		defer func() { looked = true }()
		return looked
	}))
	_, err = e.Claim(ctx, engine.ClaimRequest{By: id, Kinds: []string{"lost-kind"}, Until: now, Most: 10,
		Readable: math.MaxUint8})
	unknown("a claim", err)
	p.Disturb(nil)
	if get(t, e, "lost-key") == nil {
		t.Error("the commit without an answer is not done")
	}
	if get(t, e, "lost-key-1") != nil {
		t.Error("a transaction whose connection broke before its COMMIT is committed")
	}
	var held []string
	for s, err := range e.Walk(ctx, engine.Range{Order: engine.Held, By: id}) {
		check(t, err)
		held = append(held, s.Key)
	}
	if !slices.Equal(held, []string{"k"}) {
		t.Errorf("held is %q; want what was claimed without an answer", held)
	}
	cut("commit\x00") // of the transaction of a batch of several writes
	_, err = e.Commit(ctx, 0, []engine.Batch{{add("a", now), add("b", now)}})
	unknown("a commit of several writes", err)
	p.Disturb(nil)
	if get(t, e, "a") == nil || get(t, e, "b") == nil {
		t.Error("the commit without an answer is not done")
	}
}

// A commit that cannot be sent, or that the server refuses, has no effect, and its error says so.
func TestCommit_notDone_saysSo(t *testing.T) {
	server(t)
	p := newProxy(t, shared.Server)
	e, err := postgres.Open(t.Context(), p.URL(), schema())
	check(t, err)
	defer e.Close()
	refused := func(what string, ctx context.Context, batches ...engine.Batch) {
		t.Helper()
		if _, err := e.Commit(ctx, 0, batches); !errors.Is(err, engine.ErrNotDone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	commit(t, e, 0, add("locked", 1))
	conn := connect(t, shared.URL())
	tx, err := conn.Begin(t.Context())
	check(t, err)
	check(t, e.RemoveTaskTx(t.Context(), tx, "locked"))
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = e.Commit(brief, 0, []engine.Batch{{remove("locked")}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lock until the context is done: %v", err) // and mostly ErrNotDone, unless a try was in progress
	}
	check(t, tx.Rollback(t.Context()))

	exec(t, conn, e.Text("ALTER TABLE $schema.task RENAME TO hidden"))
	refused("an error of the server", t.Context(), engine.Batch{add("k", 1)})
	refused("an error of the server", t.Context(), engine.Batch{add("k", 1), add("l", 1)})
	exec(t, conn, e.Text("ALTER TABLE $schema.hidden RENAME TO task"))
	commit(t, e, 0, add("k", 1))

	p.Close()
	await(t, func() error { // the cut connections are noticed
		if _, err := e.Commit(t.Context(), 0, []engine.Batch{{add("k2", 1)}}); !errors.Is(err, engine.ErrNotDone) {
			return fmt.Errorf("a server that is away: %v", err)
		}
		return nil
	})
}

// A forgotten transaction holds back vacuum while two members renew their leases 50,000 times, which takes less than a
// day. After that no statement in the life of a task, and none that an idle node repeats, reads more.
func TestRenew_underAForgottenTransaction_nothingReadsMore(t *testing.T) {
	e := open(t)
	const renewals = 50000
	other, _, err := e.Join(t.Context(), "other", time.Hour)
	check(t, err)
	id, now, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	conn, forgotten := connect(t, shared.URL()), connect(t, shared.URL())
	exec(t, conn, e.Text("INSERT INTO $schema.task (key, due, revision, owner, kind, data, grp) SELECT convert_to('k' || i, 'UTF8'), "+
		"$1, i, CASE WHEN i <= 10 THEN $2::bigint END, 'kind', 'data', CASE WHEN i > 60 THEN 'group'::bytea END "+
		"FROM generate_series(1, 100) i"), now, int64(id))
	held, free, kinds := []byte("k1"), []byte("k11"), [][]byte{[]byte("kind")}
	by, all, until := int64(id), []byte{255}, int64(1)<<62
	claim := []any{by, [][]byte{held}, []int64{1}, []int32{0}}
	write := func(key []byte, cond engine.Condition, data []byte, hold bool) []any {
		return []any{[][]byte{key}, []int32{0}, []int32{int32(cond)}, []int64{0}, []int64{now}, kinds, [][]byte{data}, []bool{hold},
			by, []bool{false}, [][]byte{nil}, int64(math.MaxInt64), []int64{0}}
	}
	statements := postgres.Statements(e)
	reads := func() map[string]int {
		n := make(map[string]int)
		for _, s := range []struct {
			what, statement string
			args            []any
		}{
			{"the status", "status", []any{by}},
			{"what is held", "held", []any{by}},
			{"what is held of claims", "stillHeld", claim},
			{"the members", "members", nil},
			{"whether any is dead", "anythingDead", nil},
			{"a look", "look", []any{by, kinds, now - 1, until}},
			{"the notes", "notes", []any{[]byte(""), []byte{0xff}, false, 64}},
			{"a renewal", "renew", []any{by, []byte("report")}},
			{"an add", "commit", write([]byte("new"), engine.IfAbsent, []byte("data"), true)},
			{"a change", "commit", write(free, engine.IfPresent, []byte("data"), true)},
			{"the end of a run", "remove", []any{[][]byte{held}, []int32{int32(engine.IfUnchanged)}, []int64{1}, []int64{1}}},
			{"a removal", "remove", []any{[][]byte{free}, []int32{int32(engine.IfPresent)}, []int64{0}, []int64{0}}},
			{"a removal with a condition", "commit", write(free, engine.IfUnstarted, nil, false)},
			{"a claim", "claim", []any{by, kinds, now - 1, until, 10, all}},
			{"a claim in turns", "turns", []any{by, kinds, []byte(""), until, 10, all}},
			{"a confirmation", "confirm", append(slices.Clone(claim), int64(time.Second))},
			{"a release", "release", claim},
		} {
			n[s.what] = readsOf(t, e, conn, statements[s.statement], s.args...)
		}
		return n
	}
	before := reads()
	exec(t, forgotten, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, forgotten, e.Text("SELECT count(*) FROM $schema.task"))
	for _, member := range []engine.MemberID{id, other} { // each keeps track of its row, because finding it takes longer and longer
		exec(t, conn, e.Text(fmt.Sprintf("DO $do$ DECLARE at tid; BEGIN SELECT ctid INTO at FROM $schema.member WHERE id = %d; "+
			"FOR i IN 1..%d LOOP UPDATE $schema.member SET until = until + 1 WHERE ctid = at RETURNING ctid INTO at; END LOOP; "+
			"END $do$", member, renewals)))
	}
	exec(t, conn, e.Text("VACUUM ANALYZE $schema.member"))
	after := reads()
	check(t, e.Leave(t.Context(), other))
	gone := reads()
	for what, n := range after {
		t.Logf("%s reads %d blocks, %d after %d renewals, and %d when one of the members is gone", what, before[what], n, renewals,
			gone[what])
		if what != "the members" && what != "whether any is dead" { // they arrive through the remains of the member
			n = max(n, gone[what]-16) // the first call has left versions of the tasks
		}
		if n > 2*before[what]+8 { // every path through a tree is longer
			t.Errorf("%s reads %d blocks, and %d after %d renewals, or when a member is gone", what, before[what], n, renewals)
		}
	}
}

// A pooler may cancel the statement of another client than the one that asked for it. A statement that its caller still
// wants is repeated, also if a transaction has several. The number of repetitions is bounded.
func TestCanceled_byAnother_isRepeated(t *testing.T) {
	e := open(t)
	conn := connect(t, shared.URL())
	exec(t, conn, "CREATE SEQUENCE public.calls")
	defer exec(t, conn, "DROP SEQUENCE public.calls")
	exec(t, conn, e.Text("CREATE FUNCTION $schema.canceled() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN "+
		"IF nextval('public.calls') % 3 <> 0 THEN RAISE query_canceled; END IF; RETURN true; END$$"))
	exec(t, conn, e.Text("CREATE FUNCTION $schema.row() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "+
		"PERFORM $schema.canceled(); RETURN NEW; END$$"))
	exec(t, conn, e.Text("CREATE TRIGGER canceled BEFORE INSERT ON $schema.task FOR EACH STATEMENT EXECUTE FUNCTION $schema.row()"))
	commit(t, e, 0, add("one", 1))
	commit(t, e, 0, add("two", 1), add("three", 1))
	e.GetCalls("canceled()")
	if get(t, e, "one") == nil {
		t.Error("the task is not there")
	}
	exec(t, conn, "ALTER SEQUENCE public.calls INCREMENT BY 3 RESTART WITH 1") // each call is canceled
	if _, err := e.Get(t.Context(), "one"); !strings.Contains(fmt.Sprint(err), "57014") {
		t.Errorf("the error of Get is %v", err)
	}
	_, err := e.Commit(t.Context(), 0, []engine.Batch{{add("four", 1)}})
	if !errors.Is(err, engine.ErrNotDone) || !strings.Contains(err.Error(), "57014") {
		t.Errorf("the error of Commit is %v", err)
	}
	var calls int
	check(t, conn.QueryRow(t.Context(), "SELECT last_value FROM public.calls").Scan(&calls))
	if calls != 1+3*7 { // Get and Commit are each tried four times
		t.Errorf("the last call has the number %d", calls)
	}
}
