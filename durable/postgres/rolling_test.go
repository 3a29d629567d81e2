// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// openVersion1 opens an engine of a program of version 1 on a schema of that version. The tables of version 3, which a
// scheduler reads, are there too.
func openVersion1(t *testing.T, at postgres.Option) *postgres.Engine {
	t.Helper()
	e, err := postgres.OpenOld(t.Context(), server(t), postgres.Schema1+postgres.Settings, at)
	check(t, err)
	t.Cleanup(e.Close)
	e.BeVersion1()
	return e
}

// A migration needs locks that a user's transaction may delay for a long time. Meanwhile the nodes continue to work,
// and their leases do not expire. A transaction that takes its locks in another order than the migration does not make
// it fail.
func TestMigrate_whileATransactionIsOpen_holdsNobodyUp(t *testing.T) {
	at := schema()
	old := openVersion1(t, at)
	conn := connect(t, shared.URL())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id, _, err := old.Join(ctx, "old", time.Hour)
	check(t, err)
	tx, err := conn.Begin(ctx)
	check(t, err)
	check(t, old.AddTaskTx(ctx, tx, durable.Task{Key: "users", Kind: "kind", Delay: time.Hour}))
	opened := make(chan error, 1)
	go func() {
		e, err := postgres.Open(ctx, shared.URL(), at)
		if err == nil {
			e.Close()
		}
		opened <- err
	}()
	watch := connect(t, shared.URL())
	for i := range 3 {
		await(t, func() error { return waitsFor(watch, old.Text("$schema.task")) })
		_, _, err := old.Renew(ctx, id, nil)
		check(t, err)
		commit(t, old, id, add(fmt.Sprint("k", i), 1))
	}
	await(t, func() error { return waitsFor(watch, old.Text("$schema.task")) })
	exec(t, conn, old.Text("SELECT count(*) FROM $schema.member"))
	select {
	case err := <-opened:
		t.Errorf("the migration has ended before the transaction: %v", err)
	default:
	}
	check(t, tx.Commit(ctx))
	check(t, <-opened)
	if n := length(t, open(t, at)); n != 4 {
		t.Errorf("there are %d tasks, want 4", n)
	}
}

// waitsFor returns nil if a session waits for the exclusive lock of a table.
func waitsFor(conn *pgx.Conn, table string) error {
	var waits bool
	err := conn.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted "+
		"AND relation = $1::text::regclass AND mode = 'AccessExclusiveLock')", table).Scan(&waits)
	if err == nil && !waits {
		err = errors.New("nobody waits for the table")
	}
	return err
}

// Programs of version 1 run tasks while programs of this version migrate their schema and also run tasks. No added task
// is lost, and the parked tasks of both are counted.
func TestMigrate_underLoad_losesNothing(t *testing.T) {
	at := schema()
	var mu sync.Mutex
	runs := map[string]int{}  // of each key
	added := map[string]int{} // how often each must run at least
	fails := 0                // failing tasks
	by := map[string]int{}    // runs by node
	join := func(name string, e *postgres.Engine) *durable.Scheduler {
		t.Helper()
		s, err := durable.New(t.Context(), e, durable.WithNodeName(name), durable.WithPoolSize(8),
			durable.WithLogger(testkit.Quiet()))
		check(t, err)
		for kind, fail := range map[string]error{"work": nil, "fails": errors.New("as it is to")} {
			check(t, s.Handle(kind, func(_ context.Context, run durable.Run) error {
				mu.Lock()
				defer mu.Unlock()
				runs[run.Key]++
				by[name]++
				return fail
			}, durable.WithRetry(2, 10*time.Millisecond, 20*time.Millisecond)))
		}
		check(t, s.Start())
		return s
	}
	var nodes []*durable.Scheduler
	var load sync.WaitGroup
	var over atomic.Bool
	work := func(name string, e *postgres.Engine) {
		t.Helper()
		s := join(name, e)
		nodes = append(nodes, s)
		conn := connect(t, shared.URL())
		load.Go(func() {
			for i := 0; !over.Load(); i++ {
				delay := time.Duration(i%7*20+1) * time.Millisecond
				task := durable.Task{Key: fmt.Sprint(name, i), Kind: "work", Delay: delay}
				least, add := 1, s.AddTask
				switch i % 5 {
				case 1:
					task.Times, task.Interval, least = 3, 30*time.Millisecond, 3
				case 2:
					task.Kind, least = "fails", 2
				case 3:
					add = func(ctx context.Context, tasks ...durable.Task) error {
						return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return e.AddTaskTx(ctx, tx, tasks...) })
					}
				}
				err := add(t.Context(), task)
				if err == nil && i%5 == 4 {
					err = s.Reschedule(t.Context(), task.Key, time.Millisecond)
					if errors.Is(err, durable.ErrTaskKeyNotFound) { // it has run
						err = nil
					}
				}
				if err != nil {
					t.Errorf("%s: %v", task.Key, err)
					return
				}
				mu.Lock()
				added[task.Key] = least
				if task.Kind == "fails" {
					fails++
				}
				mu.Unlock()
			}
		})
	}
	ran := func(name string, more int) {
		t.Helper()
		mu.Lock()
		want := by[name] + more
		mu.Unlock()
		await(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if by[name] < want {
				return fmt.Errorf("%s has made %d runs, want %d", name, by[name], want)
			}
			return nil
		})
	}
	first := openVersion1(t, at)
	work("old-a/", first)
	ran("old-a/", 100)
	engines := make(chan *postgres.Engine, 3)
	for range cap(engines) {
		go func() {
			e, err := postgres.Open(t.Context(), shared.URL(), at)
			if err != nil {
				t.Error(err)
			}
			engines <- e
		}()
	}
	for i := range cap(engines) {
		e := <-engines
		if e == nil {
			t.FailNow()
		}
		t.Cleanup(e.Close)
		work(fmt.Sprintf("new-%d/", i), e)
	}
	ran("old-a/", 100)
	ran("new-0/", 100)
	over.Store(true)
	load.Wait()
	newest := nodes[len(nodes)-1]
	await(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		for key, least := range added {
			if runs[key] < least {
				return fmt.Errorf("%s has made %d runs of %d", key, runs[key], least)
			}
		}
		return nil
	})
	await(t, func() error {
		var is [4]int
		for _, kind := range censusOf(t, newest) {
			is[0], is[1], is[2] = is[0]+kind.Tasks, is[1]+kind.Failing, is[2]+kind.Parked
		}
		for _, err := range newest.All(t.Context()) {
			check(t, err)
			is[3]++
		}
		if want := [4]int{fails, fails, fails, fails}; is != want {
			return fmt.Errorf("tasks, failing, parked, walked over: %v, want %v", is, want)
		}
		return nil
	})
	t.Logf("%d tasks, %d of which fail; runs: %v", len(added), fails, by)
	for _, s := range nodes {
		check(t, s.Shutdown(t.Context()))
	}
}

func censusOf(t *testing.T, s *durable.Scheduler) []durable.KindCounts {
	t.Helper()
	c, err := s.Counts(t.Context())
	check(t, err)
	return c.Kinds
}

// The creation of a migration's indexes may wait for a user's transaction. Meanwhile programs of the previous version
// continue to work. A program that dies during the creation leaves an invalid index, and the next one creates it again.
func TestMigrate_whileIndexesAreMade_holdsNobodyUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := schema()
	watch := connect(t, server(t))
	text := func(sql string) string { return postgres.Text(sql, at) }
	old, err := postgres.OpenOld(ctx, server(t), postgres.Schema3, at)
	check(t, err)
	defer old.Close()
	// The default isolation of the database must not matter.
	url := server(t) + "&default_transaction_isolation=serializable"
	migrate := func() chan error {
		migrated := make(chan error, 1)
		go func() {
			conn, err := pgx.Connect(ctx, url)
			if err == nil {
				err = errors.Join(postgres.Migrate(ctx, conn, at), conn.Close(context.Background()))
			}
			migrated <- err
		}()
		return migrated
	}
	index := func(name string) (there, valid bool) {
		t.Helper()
		check(t, watch.QueryRow(ctx, "SELECT count(*) > 0, coalesce(bool_and(indisvalid), false) FROM pg_index "+
			"WHERE indexrelid = to_regclass($1)", text("$schema."+name)).Scan(&there, &valid))
		return there, valid
	}
	const first = "task_free"
	await1 := func() {
		t.Helper()
		await(t, func() error {
			if there, valid := index(first); !there || valid {
				return fmt.Errorf("the index is there: %v, and valid: %v; want one that is not valid", there, valid)
			}
			return nil
		})
	}
	user := connect(t, shared.URL())
	exec(t, user, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, user, "SELECT count(*) FROM pg_class")
	dies := migrate()
	await1()
	id, now, err := old.Join(ctx, "old", time.Hour)
	check(t, err)
	works := func(key string) {
		t.Helper()
		_, _, err := old.Renew(ctx, id, nil)
		check(t, err)
		_, err = old.Commit(ctx, 0, []engine.Batch{{add(key, now)}})
		check(t, err)
		if got := claim(t, old, id, now, 10); len(got) != 1 {
			t.Errorf("claimed are %v", got)
		}
	}
	works("a")
	migrated := []chan error{migrate(), migrate()}
	exec(t, watch, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%'")
	if err := <-dies; err == nil {
		t.Error("a migration whose session was ended returns nil")
	}
	works("b")
	exec(t, user, "ROLLBACK")
	for _, m := range migrated {
		check(t, <-m)
	}
	for name, want := range map[string]bool{first: true, "task_group": true, "task_owner_due_key": false} {
		if there, valid := index(name); there != want || valid != want {
			t.Errorf("the index %s is there: %v, and valid: %v", name, there, valid)
		}
	}
	works("c")
	if n := length(t, open(t, at, postgres.WithoutMigration())); n != 3 {
		t.Errorf("there are %d tasks, want 3", n)
	}
}
