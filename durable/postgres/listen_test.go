// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// listener returns a connection that listens to the signals of a schema.
func listener(t *testing.T, schema string) *pgx.Conn {
	t.Helper()
	conn := connect(t, server(t))
	exec(t, conn, "LISTEN "+pgx.Identifier{schema}.Sanitize())
	return conn
}

// signals returns how many signals there are until none has come for a while.
func signals(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	for ; ; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		_, err := conn.WaitForNotification(ctx)
		cancel()
		if err != nil {
			if t.Context().Err() != nil || conn.IsClosed() {
				t.Fatal(err)
			}
			return n
		}
	}
}

// What makes a task free that is due within two seconds sends a signal, and nothing else does. So does a member that leaves.
func TestSignal_whatSendsOne(t *testing.T) {
	const name = `signals "of" a 'test'`
	e := open(t, postgres.WithSchema(name))
	quiet := open(t, postgres.WithSchema(name), postgres.WithoutSignals())
	conn := listener(t, name)
	id, now, err := e.Join(t.Context(), "a", time.Hour)
	check(t, err)
	other, _, err := e.Join(t.Context(), "b", time.Hour)
	check(t, err)
	hold := add("held", now)
	hold.Hold = true
	inTx := func(e *postgres.Engine, f func(tx pgx.Tx) error) func() {
		return func() {
			tx, err := connect(t, server(t)).Begin(t.Context())
			check(t, err)
			check(t, errors.Join(f(tx), tx.Commit(t.Context())))
		}
	}
	for _, c := range []struct {
		name string
		do   func()
		want bool
	}{
		{"a task that is due", func() { commit(t, e, 0, add("due", now)) }, true},
		{"many tasks that are due", func() {
			var batches []engine.Batch
			for i := range 200 {
				batches = append(batches, engine.Batch{add(fmt.Sprint("many", i), now)})
			}
			_, err := e.Commit(t.Context(), 0, batches)
			check(t, err)
		}, true},
		{"a task that is due soon", func() { commit(t, e, 0, add("soon", now+int64(1500*time.Millisecond))) }, true},
		{"a task that is due later", func() { commit(t, e, 0, add("later", now+int64(time.Hour))) }, false},
		{"a task that is held", func() { commit(t, e, id, hold) }, false},
		{"a removal", func() { commit(t, e, 0, remove("later")) }, false},
		{"a note", func() { commit(t, e, 0, note("n", "text")) }, false},
		{"a claim", func() { claim(t, e, id, now, 1) }, false},
		{"a release", func() {
			var claims []engine.Claim
			for s, err := range e.Walk(t.Context(), engine.Range{Order: engine.Held, By: id}) {
				check(t, err)
				claims = append(claims, engine.Claim{Key: s.Key, Revision: s.Revision, Starts: s.Starts})
			}
			check(t, e.Release(t.Context(), id, claims))
		}, true},
		{"a renewal", func() { _, _, err := e.Renew(t.Context(), id, nil); check(t, err) }, false},
		{"a member that leaves", func() { check(t, e.Leave(t.Context(), other)) }, true},
		{"a transaction with a task that is due", inTx(e, func(tx pgx.Tx) error { return e.AddTaskTx(t.Context(), tx, task("tx", 0)) }), true},
		{"a transaction with a task that is due later", inTx(e, func(tx pgx.Tx) error { return e.AddTaskTx(t.Context(), tx, task("tx2", time.Hour)) }), false},
		{"a transaction that moves a task to now", inTx(e, func(tx pgx.Tx) error { return e.RescheduleTx(t.Context(), tx, "tx2", 0) }), true},
		{"a transaction that moves a task far away", inTx(e, func(tx pgx.Tx) error { return e.RescheduleTx(t.Context(), tx, "tx2", time.Hour) }), false},
		{"a task that is due, without signals", func() { commit(t, quiet, 0, add("due2", now)) }, false},
		{"a transaction without signals", inTx(quiet, func(tx pgx.Tx) error { return quiet.AddTaskTx(t.Context(), tx, task("tx3", 0)) }), false},
	} {
		c.do()
		if n := signals(t, conn); n > 1 || (n == 1) != c.want {
			t.Errorf("%s: %d signals", c.name, n)
		}
	}
}

// A look renews the lease, and reads the members, the notes from a name on, and whether a free task of the kinds is due.
func TestLook(t *testing.T) {
	e := open(t, postgres.WithSchema("looks"))
	id, now, err := e.Join(t.Context(), "a", time.Hour)
	check(t, err)
	other, _, err := e.Join(t.Context(), "b", time.Hour)
	check(t, err)
	for i := range 205 {
		commit(t, e, 0, note(fmt.Sprintf("n%03d", i), "text"))
	}
	hold := add("held", now)
	hold.Hold = true
	commit(t, e, id, hold)
	commit(t, e, 0, add("later", now+int64(time.Hour)))
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprint("kind", i)
	}
	look := func(report string, r engine.LookRequest) engine.Looked {
		t.Helper()
		l, err := e.Look(t.Context(), id, []byte(report), r)
		check(t, err)
		return l
	}
	soon := now + int64(2*time.Second)
	for _, c := range []struct {
		name string
		r    engine.LookRequest
		due  bool
		add  string
	}{
		{"nothing is free and due", engine.LookRequest{Kinds: []string{"kind"}, Until: soon}, false, ""},
		{"the later task", engine.LookRequest{Kinds: []string{"kind"}, Until: soon + int64(time.Hour)}, true, ""},
		{"a task that is due", engine.LookRequest{Kinds: []string{"other", "kind"}, Until: soon}, true, "due"},
		{"of another kind", engine.LookRequest{Kinds: []string{"other"}, Until: soon}, false, ""},
		{"no kind", engine.LookRequest{Until: soon}, false, ""},
		{"many kinds", engine.LookRequest{Kinds: append(many, "kind"), Until: soon}, true, ""},
	} {
		if c.add != "" {
			commit(t, e, 0, add(c.add, now))
		}
		if l := look("1", c.r); l.Due != c.due {
			t.Errorf("%s: due is %v", c.name, l.Due)
		}
	}
	l := look("2", engine.LookRequest{Notes: "n003"})
	if len(l.Notes) != 202 || l.Notes[0].Key != "n003" || l.Notes[201].Key != "n204" || string(l.Notes[201].Data) != "text" {
		t.Errorf("%d notes from %q", len(l.Notes), l.Notes[0].Key)
	}
	if l := look("1", engine.LookRequest{Notes: "n204"}); len(l.Notes) != 1 || l.Now < now {
		t.Errorf("%d notes at %d, which is after %d", len(l.Notes), l.Now, now)
	}
	reports := make(map[engine.MemberID]string)
	for _, m := range l.Members {
		reports[m.ID] = string(m.Report)
	}
	if len(reports) != 2 || reports[id] != "2" || reports[other] != "" {
		t.Errorf("the reports of the members are %v", reports)
	}
	check(t, e.Leave(t.Context(), id))
	if _, err := e.Look(t.Context(), id, nil, engine.LookRequest{}); !errors.Is(err, engine.ErrMemberGone) {
		t.Errorf("a member that is gone: %v", err)
	}
}

// A process sends a signal every 50 ms at most, however much it adds.
func TestSignal_fewForMany(t *testing.T) {
	const name = "few signals"
	e := open(t, postgres.WithSchema(name))
	conn := listener(t, name)
	began := time.Now()
	for i := range 300 {
		commit(t, e, 0, add(fmt.Sprint(i), 1))
	}
	took := time.Since(began)
	if n, most := signals(t, conn), int(took/(50*time.Millisecond))+2; n < 1 || n > most {
		t.Errorf("%d signals in %v", n, took)
	}
}

// unheard returns an error unless the statistics and the health say why the node hears no signals, or that it does.
func unheard(s *durable.Scheduler, e *postgres.Engine, want string) func() error {
	return func() error {
		h, err := e.Health(context.Background())
		is := s.Stats().Node.Unheard
		if err != nil || (want == "") != (is == "") || !strings.Contains(is, want) || h.Unheard != is {
			return fmt.Errorf("the node says %q, the health %q, %v; want %q", is, h.Unheard, err, want)
		}
		return nil
	}
}

// A node hears signals, and says so. If its connection is lost, it says why, tasks still run, and it hears signals again
// on another connection. With an option it hears none.
func TestListen_connectionThatIsLost(t *testing.T) {
	const name = "listening"
	e := open(t, postgres.WithSchema(name))
	ran := make(chan string, 100)
	node := func(e *postgres.Engine) *durable.Scheduler {
		s, err := durable.New(t.Context(), e, durable.WithLogger(testkit.Quiet()))
		check(t, err)
		t.Cleanup(func() { check(t, s.Shutdown(context.Background())) })
		check(t, s.Handle("kind", func(_ context.Context, r durable.Run) error { ran <- r.Key; return nil }))
		check(t, s.Start())
		return s
	}
	s := node(e)
	client, err := durable.Connect(t.Context(), open(t, postgres.WithSchema(name)), durable.WithLogger(testkit.Quiet()))
	check(t, err)
	t.Cleanup(func() { check(t, client.Shutdown(context.Background())) })
	check(t, client.Declare("kind"))
	runs := func(key string) {
		t.Helper()
		check(t, client.AddTask(t.Context(), durable.Task{Key: key, Kind: "kind"}))
		if is := <-ran; is != key {
			t.Errorf("%q has run, and %q was added", is, key)
		}
	}
	await(t, unheard(s, e, ""))
	runs("heard")
	conn := connect(t, server(t))
	var ended int
	check(t, conn.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'LISTEN \"listening\"'").Scan(&ended))
	if ended != 1 {
		t.Errorf("%d connections listen", ended)
	}
	await(t, unheard(s, e, "terminating connection"))
	runs("unheard")
	await(t, unheard(s, e, ""))
	runs("heard again")

	silent := open(t, postgres.WithSchema(name), postgres.WithoutSignals())
	await(t, unheard(node(silent), silent, "WithoutSignals"))
}

// A pooler may take the session away, so a node behind one does not listen.
func TestListen_behindAPooler(t *testing.T) {
	p, _ := pgbouncer(t)
	e, err := postgres.Open(t.Context(), p.URL(), schema())
	check(t, err)
	defer e.Close()
	var why error
	e.Listen(t.Context(), func(bool) {}, func(err error) { why = err })
	if why == nil || !strings.Contains(why.Error(), "pooler") {
		t.Errorf("behind a pooler the node says %v", why)
	}
}

// Close sends the last signal: a program may add a task and end at once, and a node that leaves has freed its tasks.
func TestSignal_thatIsSentByClose(t *testing.T) {
	const name = "closes"
	open(t, postgres.WithSchema(name))
	conn := listener(t, name)
	for i := range 4 {
		e, err := postgres.Open(t.Context(), server(t), postgres.WithSchema(name))
		check(t, err)
		commit(t, e, 0, add(fmt.Sprint(i), 1))
		if i%2 == 1 { // just after the first one
			commit(t, e, 0, add(fmt.Sprint("too", i), 1))
		}
		e.Close()
		if n := signals(t, conn); n < 1 {
			t.Errorf("%d signals of %d commits", n, 1+i%2)
		}
	}
}

// The pool of a program may have a function for its own notifications. It does not get the signals.
func TestListen_poolWithNotifications(t *testing.T) {
	cfg, err := pgxpool.ParseConfig(server(t))
	check(t, err)
	cfg.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { t.Error("it gets a signal") }
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	check(t, err)
	defer pool.Close()
	e, err := postgres.OpenPool(t.Context(), pool, schema())
	check(t, err)
	defer e.Close()
	woken, ctx := make(chan struct{}, 10), t.Context()
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() { e.Listen(ctx, func(bool) { woken <- struct{}{} }, func(error) {}) })
	<-woken // it listens
	commit(t, e, 0, add("k", 1))
	<-woken
}
