// SPDX-License-Identifier: MIT

// Checkout shows durable tasks in the transactions of a shop. It is for programs that have their own tables in
// PostgreSQL. An order takes units from the stock. If it is not paid in time, its recheck returns them:
//
//   - An order and its recheck are added in one transaction (AddTaskTx).
//   - A payment and the removal of the recheck are one transaction (RemoveTaskTx).
//   - The handler of the recheck returns the units and completes its run in one transaction (CompleteTx), so the units
//     return exactly once.
//
// The first attempt of each recheck fails after its writes. The table checkout.returns has a row for each return of an
// order, and shows that the failed attempts left nothing.
//
//	go run ./examples/checkout -db postgres://postgres:secret@localhost/postgres
//
// It takes about three seconds. The program uses the schemas checkout and checkout_tasks of the database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

const usage = `checkout needs a PostgreSQL database. To start one:

  docker run --rm -p 5432:5432 -e POSTGRES_PASSWORD=secret postgres

Then, in another terminal:

  go run ./examples/checkout -db postgres://postgres:secret@localhost/postgres
`

const tables = `
CREATE SCHEMA IF NOT EXISTS checkout;
CREATE TABLE IF NOT EXISTS checkout.stock (item text PRIMARY KEY, units int NOT NULL CHECK (units >= 0));
CREATE TABLE IF NOT EXISTS checkout.orders (
	id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	item  text NOT NULL REFERENCES checkout.stock,
	units int  NOT NULL,
	state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'paid', 'returned'))
);
CREATE TABLE IF NOT EXISTS checkout.returns (order_id bigint NOT NULL REFERENCES checkout.orders, attempt int NOT NULL);
INSERT INTO checkout.stock AS s VALUES ('tea', 10) ON CONFLICT (item) DO UPDATE SET units = s.units + 10;
`

var (
	errSoldOut = errors.New("sold out")
	errTooLate = errors.New("the order was paid before, or not in time")
)

func main() {
	db := flag.String("db", "", "the `URL` of a PostgreSQL database")
	flag.Parse()
	if *db == "" {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, *db, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

type shop struct {
	db       *pgxpool.Pool
	engine   *postgres.Engine
	rechecks durable.Kind[int64] // the payload is the number of the order
	out      *log.Logger
}

func run(ctx context.Context, url string, w io.Writer) (err error) {
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, tables); err != nil {
		return err
	}
	engine, err := postgres.OpenPool(ctx, db, postgres.WithSchema("checkout_tasks"))
	if err != nil {
		return err
	}
	defer engine.Close()
	tasks, err := durable.New(ctx, engine)
	if err != nil {
		return err
	}
	defer func() {
		// Runs in progress have ten seconds to end, also after an interrupt, when ctx is done.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, tasks.Shutdown(last))
	}()
	s := &shop{db: db, engine: engine, out: log.New(w, "", 0)}
	if s.rechecks, err = durable.KindOf(tasks, "recheck", s.recheck); err != nil {
		return err
	}
	if err := tasks.Start(); err != nil {
		return err
	}
	return s.demonstrate(ctx)
}

// place takes units from the stock, and adds an order and its recheck, which is due after window. If it fails, it changes
// nothing.
func (s *shop) place(ctx context.Context, item string, units int, window time.Duration) (id int64, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE checkout.stock SET units = units - $2 WHERE item = $1 AND units >= $2`, item, units)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errSoldOut
		}
		err = tx.QueryRow(ctx, `INSERT INTO checkout.orders (item, units) VALUES ($1, $2) RETURNING id`, item, units).Scan(&id)
		if err != nil {
			return err
		}
		task, err := s.rechecks.Task(key(id), id, durable.In(window))
		if err != nil {
			return err
		}
		return s.engine.AddTaskTx(ctx, tx, task)
	})
	return id, err
}

// pay marks an order as paid and removes its recheck. A recheck that is running holds the row of the order, so pay waits
// for it and then finds that the order is no longer open.
func (s *shop) pay(ctx context.Context, id int64) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE checkout.orders SET state = 'paid' WHERE id = $1 AND state = 'open'`, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errTooLate
		}
		return s.engine.RemoveTaskTx(ctx, tx, key(id))
	})
}

// recheck is the handler of the rechecks. It may be called more than once for an order, here and on other machines, but
// only one call commits.
func (s *shop) recheck(ctx context.Context, run durable.Run, id int64) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var item string
		var units int
		err := tx.QueryRow(ctx, `UPDATE checkout.orders SET state = 'returned' WHERE id = $1 AND state = 'open'
			RETURNING item, units`, id).Scan(&item, &units)
		if err != nil {
			return err // pgx.ErrNoRows: it was just paid, so its task is removed, and this run no longer counts
		}
		_, err = tx.Exec(ctx, `UPDATE checkout.stock SET units = units + $2 WHERE item = $1`, item, units)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO checkout.returns (order_id, attempt) VALUES ($1, $2)`, id, run.Attempt)
		if err != nil {
			return err
		}
		if run.Attempt == 1 {
			s.out.Printf("order %d: attempt 1 has returned the units, and fails before its commit", id)
			return errors.New("the first attempt fails")
		}
		return s.engine.CompleteTx(ctx, tx, run) // an error, such as durable.ErrFenced, rolls everything back
	})
}

func key(id int64) string { return fmt.Sprintf("order:%d", id) }

// demonstrate places two orders, pays one, and waits until the other is returned.
func (s *shop) demonstrate(ctx context.Context) error {
	paid, err := s.place(ctx, "tea", 3, time.Hour)
	if err != nil {
		return err
	}
	s.out.Printf("order %d: 3 units", paid)
	if err := s.pay(ctx, paid); err != nil {
		return err
	}
	s.out.Printf("order %d: paid", paid)
	_, err = s.place(ctx, "tea", 1_000_000, time.Hour)
	s.out.Printf("an order of a million units fails: %v", err)
	unpaid, err := s.place(ctx, "tea", 2, 2*time.Second)
	if err != nil {
		return err
	}
	s.out.Printf("order %d: 2 units", unpaid)
	for state := ""; state != "returned"; {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil // the recheck remains, and runs when the program is started again
		}
		err := s.db.QueryRow(ctx, `SELECT state FROM checkout.orders WHERE id = $1`, unpaid).Scan(&state)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	s.out.Printf("order %d: a late payment fails: %v", unpaid, s.pay(ctx, unpaid))
	return s.report(ctx, paid, unpaid)
}

// report prints how often each order was returned.
func (s *shop) report(ctx context.Context, ids ...int64) error {
	for _, id := range ids {
		var state string
		var returns, attempt int
		err := s.db.QueryRow(ctx, `SELECT state, count(attempt), coalesce(max(attempt), 0) FROM checkout.orders
			LEFT JOIN checkout.returns ON order_id = id WHERE id = $1 GROUP BY state`, id).Scan(&state, &returns, &attempt)
		if err != nil {
			return err
		}
		s.out.Printf("order %d: state %s, returns %d, by attempt %d", id, state, returns, attempt)
	}
	return nil
}
