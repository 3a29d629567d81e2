// SPDX-License-Identifier: MIT

package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Of two members that renew at the same time at least one sees the other's report. So two nodes that join at the same
// time do not both take a whole limit.
func TestRenew_atTheSameTime_oneSeesTheOther(t *testing.T) {
	e := open(t)
	var ids [2]engine.MemberID
	for i := range ids {
		var err error
		ids[i], _, err = e.Join(t.Context(), "node", time.Hour)
		check(t, err)
	}
	for round := range 100 {
		report := fmt.Sprintf("%03d", round)
		var sees [2]bool
		var both sync.WaitGroup
		for i, id := range ids {
			both.Go(func() {
				members, _, err := e.Renew(t.Context(), id, []byte(report))
				if err != nil {
					t.Error(err)
				}
				for _, m := range members {
					sees[i] = sees[i] || m.ID != id && string(m.Report) == report
				}
			})
		}
		both.Wait()
		if !sees[0] && !sees[1] {
			t.Fatalf("in round %d neither member sees the other's report", round)
		}
	}
}

// The end of a run takes effect even if its start is confirmed again at the same time. A confirmation moves the task's
// row and keeps its revision.
func TestCommit_whileTheStartIsConfirmed_isDone(t *testing.T) {
	e := open(t)
	id, now, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	const tasks = 20
	for round := range 20 {
		var adds []engine.Write
		for i := range tasks {
			adds = append(adds, add(fmt.Sprint(round, " ", i), now))
		}
		commit(t, e, 0, adds...)
		var claims []engine.Claim
		var ends []engine.Batch
		for i, s := range claim(t, e, id, now, tasks) {
			claims = append(claims, engine.Claim{Key: s.Key, Revision: s.Revision})
			w := engine.Write{Record: engine.Record{Key: s.Key}, If: engine.IfUnchanged, Revision: s.Revision, Begun: s.Revision}
			if i%2 == 0 && round%2 == 0 {
				w.Due, w.Data, w.Kind = now+int64(time.Hour), []byte("data"), "kind"
			}
			ends = append(ends, engine.Batch{w})
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, _, err := e.Confirm(t.Context(), id, claims, time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		results, err := e.Commit(t.Context(), id, ends)
		all.Wait()
		check(t, err)
		for i, r := range results {
			if len(r.Unmet) > 0 || len(r.Written) != 1 && !r.Busy {
				t.Errorf("the end of %q is %+v", ends[i][0].Key, r)
			}
		}
	}
}

// A claim that finds nothing locks nothing, so an idle node writes only its renewals.
func TestClaim_ofNothing_locksNothing(t *testing.T) {
	e := open(t)
	id, now, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	conn := connect(t, shared.URL())
	locked := func() (is bool) {
		check(t, conn.QueryRow(t.Context(), e.Text("SELECT xmax <> 0 FROM $schema.member WHERE id = $1"), int64(id)).Scan(&is))
		return is
	}
	claim(t, e, id, now, 10)
	if locked() {
		t.Error("a claim of nothing has locked its member")
	}
	commit(t, e, 0, add("a", now))
	if claim(t, e, id, now, 10); !locked() {
		t.Error("a claim of a task has not locked its member")
	}
}

// A lease that was granted by a clock that was ahead is shorter after the next renewal, even if another renewal of the
// member shortens it at the same time.
func TestRenew_theServersClockWasSetBack(t *testing.T) {
	e := open(t)
	const ahead = int64(time.Hour)
	id, _, err := e.Join(t.Context(), "node", time.Second)
	check(t, err)
	conn, other := connect(t, shared.URL()), connect(t, shared.URL())
	until := e.Text("UPDATE $schema.member SET until = until + $1")
	renew := func() {
		t.Helper()
		members, now, err := e.Renew(t.Context(), id, nil)
		if err != nil || len(members) != 1 || now == 0 || members[0].Left <= 0 || members[0].Left > time.Second {
			t.Errorf("the renewal at %d returns %+v, %v", now, members, err)
		}
	}
	exec(t, conn, until, ahead)
	renew()

	exec(t, conn, until, ahead)
	exec(t, other, "BEGIN")
	exec(t, other, until, -ahead)
	done := make(chan struct{})
	go func() {
		defer close(done)
		renew()
	}()
	await(t, func() error {
		var waiting int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1",
			e.Text("%UPDATE $schema.member%")).Scan(&waiting)
		if err == nil && waiting == 0 {
			err = errors.New("the renewal does not wait")
		}
		return err
	})
	exec(t, other, "COMMIT")
	<-done
}

// The renewal of a member returns an error if the server does not change its row.
func TestRenew_theRowCannotBeChanged_isAnError(t *testing.T) {
	e := open(t)
	id, _, err := e.Join(t.Context(), "node", time.Hour)
	check(t, err)
	conn := connect(t, shared.URL())
	exec(t, conn, e.Text("CREATE FUNCTION $schema.never() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"))
	exec(t, conn, e.Text("CREATE TRIGGER never BEFORE UPDATE ON $schema.member FOR EACH ROW EXECUTE FUNCTION $schema.never()"))
	_, _, err = e.Renew(t.Context(), id, nil)
	if err == nil || errors.Is(err, engine.ErrMemberGone) || !strings.Contains(err.Error(), "does not update its row") {
		t.Errorf("the error is %v", err)
	}
}
