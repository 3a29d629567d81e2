// SPDX-License-Identifier: MIT

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// One process of a shop. An order and its recheck are committed together; paying removes the recheck; the recheck
// returns the stock, exactly once.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://shop@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	engine, err := postgres.OpenPool(ctx, pool)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	s, err := durable.New(ctx, engine)
	if err != nil {
		log.Fatal(err)
	}
	err = s.Handle("order.recheck", func(ctx context.Context, run durable.Run) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE stock SET free = free + 3 WHERE item = $1", run.Payload); err != nil {
				return err
			}
			return engine.CompleteTx(ctx, tx, run) // an error rolls the transaction back
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}

	order := func(id int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, 'open')", id); err != nil {
				return err
			}
			return engine.AddTaskTx(ctx, tx, durable.Task{
				Key: fmt.Sprint("order:", id), Kind: "order.recheck", Payload: []byte("tea"), Delay: 30 * time.Minute,
			})
		})
	}
	later := func(id int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return engine.RescheduleTx(ctx, tx, fmt.Sprint("order:", id), time.Hour)
		})
	}
	pay := func(id int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET state = 'paid' WHERE id = $1", id); err != nil {
				return err
			}
			return engine.RemoveTaskTx(ctx, tx, fmt.Sprint("order:", id))
		})
	}
	if err := errors.Join(order(42), later(42), pay(42)); err != nil {
		log.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
}

// A primary and two standbys.
func ExampleOpen() {
	ctx := context.Background()
	engine, err := postgres.Open(ctx, "postgres://shop@db1,db2,db3/shop?target_session_attrs=read-write&connect_timeout=2")
	if errors.Is(err, postgres.ErrNotPrimary) {
		log.Fatal("all hosts that answer are standbys: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
	engine.Close()
}

// A transaction of package database/sql.
func ExampleSQL() {
	ctx := context.Background()
	var db *sql.DB              // of the program
	var engine *postgres.Engine // on the same database
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var in postgres.Tx = postgres.SQL(tx)
	err = engine.AddTaskTx(ctx, in, durable.Task{Key: "order:42", Kind: "order.recheck", Delay: time.Hour})
	if errors.Is(err, durable.ErrDuplicateTaskKey) {
		return // the transaction can still be used
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

// The schema is migrated manually, before the programs are started.
func ExampleMigrate() {
	ctx := context.Background()
	opts := []postgres.Option{postgres.WithSchema("shop_tasks"), postgres.WithCluster("shop, production")}
	conn, err := pgx.Connect(ctx, "postgres://owner@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	if err := postgres.Migrate(ctx, conn, opts...); err != nil {
		log.Fatal(err)
	}
	// Or with another tool:
	text, err := postgres.Schema(opts...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)

	opts = append(opts, postgres.WithoutMigration(), postgres.WithConnections(8), postgres.WithoutSignals())
	engine, err := postgres.Open(ctx, "postgres://shop@localhost/shop", opts...)
	switch {
	case errors.Is(err, postgres.ErrSchema):
		log.Fatal("the schema is missing, too old, or that of another cluster: ", err)
	case errors.Is(err, durable.ErrVersion):
		log.Fatal("a later version of this program has migrated the schema: ", err)
	case err != nil:
		log.Fatal(err)
	}
	engine.Close()
}
