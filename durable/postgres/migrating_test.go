// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/testkit"
)

// These are, word for word, the right-hand columns of the sections of MIGRATING.md on PostgreSQL.
func TestMigrating_rightHandColumn_compilesAndRuns(t *testing.T) {
	for title, run := range map[string]func(t *testing.T, url string){
		"River":  migrateRiver,
		"gocron": migrateGocron,
		"a table that is polled with SKIP LOCKED": migrateTable,
		"a delayed queue in Redis":                migrateRedis,
	} {
		t.Run(title, func(t *testing.T) {
			testkit.Migrating(t, "../..", title, 7)
			run(t, database(t))
		})
	}
}

// database returns the URL of a new database.
func database(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("database%d", schemas.Add(1))
	_, err := connect(t, server(t)).Exec(t.Context(), "CREATE DATABASE "+name)
	check(t, err)
	return strings.Replace(server(t), "/postgres?", "/"+name+"?", 1)
}

func ignore(context.Context, durable.Run) error { return nil }

func migrateRiver(t *testing.T, url string) {
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, url)
	check(t, err)
	defer pool.Close()
	conn := connect(t, url)
	err = postgres.Migrate(ctx, conn)
	check(t, err)
	engine, err := postgres.OpenPool(ctx, pool)
	check(t, err)
	defer engine.Close()
	s, err := durable.New(ctx, engine)
	check(t, err)
	completed := make(chan error)
	recheck := func(ctx context.Context, run durable.Run) error {
		if run.Key != "order:42" {
			return nil
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		err = engine.CompleteTx(ctx, tx, run)
		if err == nil {
			err = tx.Commit(ctx)
		}
		completed <- err
		return err
	}
	err = s.Handle("recheck", recheck, durable.WithRetry(25, time.Second, time.Hour))
	check(t, err)
	err = s.Start()
	check(t, err)
	at := time.Now()
	add := func() {
		tx, err := pool.Begin(ctx)
		check(t, err)
		err = engine.AddTaskTx(ctx, tx, durable.Task{Key: "order:42", Kind: "recheck", At: at})
		check(t, err)
		check(t, tx.Commit(ctx))
	}
	add()
	check(t, <-completed)
	if _, ok, err := s.Get(ctx, "order:42"); ok || err != nil {
		t.Errorf("a completed task is there: %v, %v", ok, err)
	}
	at = at.Add(time.Hour)
	add()
	tx, err := pool.Begin(ctx)
	check(t, err)
	err = engine.RemoveTaskTx(ctx, tx, "order:42")
	check(t, err)
	check(t, tx.Commit(ctx))
	const build = 7
	r, err := s.Schedule(ctx, durable.TaskSet{Prefix: "cron/", Version: build, Tasks: []durable.Task{{Key: "cron/hourly", Kind: "recheck", Interval: time.Hour}}})
	check(t, err)
	if n := s.Len(); n != 1 || r.Added != 1 {
		t.Errorf("%d tasks, want the hourly one: %+v", n, r)
	}
	err = s.Shutdown(ctx)
	check(t, err)
}

func migrateGocron(t *testing.T, url string) {
	ctx := t.Context()
	engine, err := postgres.Open(ctx, url)
	check(t, err)
	defer engine.Close()
	s, err := durable.New(ctx, engine)
	check(t, err)
	alert := func(key, failure string) { t.Errorf("%s has run: %s", key, failure) }
	observe := durable.WithObserver(func(a durable.Attempt) { alert(a.Key, a.Failure) })
	observed, err := durable.New(ctx, engine, observe)
	check(t, err)
	check(t, observed.Shutdown(ctx))
	report, mail := ignore, ignore
	err = s.Handle("report", report)
	check(t, err)
	err = s.Handle("mail", mail, durable.WithConcurrency(5))
	check(t, err)
	const build = 7
	hourly := durable.Task{Key: "cron/hourly", Kind: "report", Interval: time.Hour}
	nightly := durable.Task{Key: "cron/nightly", Kind: "report", Cron: "CRON_TZ=Europe/Berlin 30 2 * * *"}
	daily := durable.Task{Key: "cron/daily", Kind: "report", Cron: "0 9 * * *"}
	weekly := durable.Task{Key: "cron/weekly", Kind: "report", Cron: "0 9 * * MON"}
	r, err := s.Schedule(ctx, durable.TaskSet{Prefix: "cron/", Version: build, Tasks: []durable.Task{hourly, nightly, daily, weekly}})
	check(t, err)
	if r.Added != 4 {
		t.Errorf("%+v", r)
	}
	err = s.Start()
	check(t, err)
	at := time.Now().Add(time.Hour)
	err = s.AddTask(ctx, durable.Task{Key: "acme/once", Kind: "report", At: at})
	check(t, err)
	err = s.AddTask(ctx, durable.Task{Key: "acme/thrice", Kind: "report", Interval: time.Hour, Times: 3})
	check(t, err)
	err = s.SetTask(ctx, durable.Task{Key: "acme/thrice", Kind: "report", Interval: time.Minute, Times: 3})
	check(t, err)
	info, ok, err := s.Get(ctx, "cron/hourly")
	check(t, err)
	if !ok || time.Until(info.Next) < 50*time.Minute {
		t.Errorf("the task is %v", info)
	}
	err = s.PauseAll(ctx)
	check(t, err)
	err = s.Reschedule(ctx, "cron/hourly", 0)
	check(t, err)
	err = s.RemoveTask(ctx, "acme/once")
	check(t, err)
	n, err := s.RemovePrefix(ctx, "acme/")
	check(t, err)
	if n != 1 || s.Len() != 4 {
		t.Errorf("%d tasks of acme are removed, and %d are left", n, s.Len())
	}
	err = s.Shutdown(ctx)
	check(t, err)
}

func migrateTable(t *testing.T, url string) {
	ctx := t.Context()
	db, err := sql.Open("pgx", url)
	check(t, err)
	defer db.Close()
	engine, err := postgres.Open(ctx, url, postgres.WithSchema("tasks"))
	check(t, err)
	defer engine.Close()
	s, err := durable.New(ctx, engine, durable.WithLease(5*time.Second))
	check(t, err)
	recheck := ignore
	err = s.Handle("recheck", recheck)
	check(t, err)
	err = s.Start()
	check(t, err)
	tx, err := db.BeginTx(ctx, nil)
	check(t, err)
	err = engine.AddTaskTx(ctx, postgres.SQL(tx), durable.Task{Key: "order:42", Kind: "recheck", Delay: 30 * time.Minute})
	check(t, err)
	err = engine.RescheduleTx(ctx, postgres.SQL(tx), "order:42", time.Hour)
	check(t, err)
	check(t, tx.Commit())
	if info, ok, err := s.Get(ctx, "order:42"); !ok || err != nil || time.Until(info.Next) < 31*time.Minute {
		t.Errorf("the task is %+v, %v, %v", info, ok, err)
	}
	tx, err = db.BeginTx(ctx, nil)
	check(t, err)
	err = engine.RemoveTaskTx(ctx, postgres.SQL(tx), "order:42")
	check(t, err)
	check(t, tx.Commit())
	if n := s.Len(); n != 0 {
		t.Errorf("%d tasks, want none", n)
	}
	check(t, s.Shutdown(ctx))
}

func migrateRedis(t *testing.T, url string) {
	ctx := t.Context()
	engine, err := postgres.Open(ctx, url)
	check(t, err)
	defer engine.Close()
	s, err := durable.New(ctx, engine)
	check(t, err)
	recheck := ignore
	err = s.Handle("recheck", recheck)
	check(t, err)
	err = s.SetTask(ctx, durable.Task{Key: "order:42", Kind: "recheck", Delay: 30 * time.Minute})
	check(t, err)
	err = s.AddTask(ctx, durable.Task{Key: "order:43", Kind: "recheck", Delay: 30 * time.Minute})
	check(t, err)
	err = s.RemoveTask(ctx, "order:42")
	check(t, err)
	info, ok, err := s.Get(ctx, "order:43")
	check(t, err)
	if !ok || info.Key != "order:43" || s.Len() != 1 {
		t.Errorf("the task is %+v, %v, of %d", info, ok, s.Len())
	}
	check(t, s.Shutdown(ctx))
}
