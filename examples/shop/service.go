// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

const (
	articles = 20
	stock    = 500                 // units of each article at the start
	recheck  = "order.recheck"     // kind of the tasks; the key of a task is the ID of its order
	page     = "/debug/timewheel/" // path of the dashboard
)

// An order comes from a client. The client chooses its ID, so that it can send the order again if the answer is lost.
type order struct {
	ID      string `json:"id"`
	Article int    `json:"article"`
	Units   int    `json:"units"`
}

// The states of an order.
const (
	held     = "held"     // its units have left the stock, and it is to be paid
	paid     = "paid"     // its units are sold
	returned = "returned" // its units are back in the stock
)

// An entry of the books says that an order is in a state.
type entry struct {
	order
	State string `json:"state"`
	Gone  int    `json:"gone"` // units of its article that are held or sold
}

// A refusal is the HTTP status of an answer. After any other error, a client sends its request again.
type refusal int

const (
	errInvalid refusal = http.StatusBadRequest // an order without an ID, an article or units
	errSoldOut refusal = http.StatusConflict
	errExpired refusal = http.StatusGone // the order was not paid in time, or there was none
)

func (r refusal) Error() string { return http.StatusText(int(r)) }

// A book keeps the orders and the stock. Its methods may be called again after a failure: an order is placed, paid and
// returned at most once.
type book interface {
	open(ctx context.Context, tasks *durable.Scheduler) error // before the other methods
	place(ctx context.Context, o order) error
	pay(ctx context.Context, id string) error
	giveBack(ctx context.Context, run durable.Run) error // the handler of the rechecks
}

// serve runs a process of the service until ctx is done. It prints its URL.
func serve(ctx context.Context, c config, e engine.Engine, b book, out io.Writer) (err error) {
	attempts := dashboard.NewAttemptRecorder()
	// A process that dies loses its tasks to the others after the lease, a second.
	tasks, err := durable.New(ctx, e, durable.WithNodeName(c.name), durable.WithLease(time.Second), attempts.Option())
	if err != nil {
		return err
	}
	mux := routes(b)
	mux.Handle(page, dashboard.Handler([]dashboard.Source{dashboard.Scheduler("shop", tasks, attempts)}))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, tasks.Shutdown(last)) // first, so that the other processes take over the tasks at once
		_ = web.Shutdown(last)                       // fails if a browser shows the dashboard
	}()
	err = tasks.Handle(recheck, func(ctx context.Context, run durable.Run) error {
		time.Sleep(50 * time.Millisecond) // for example, it asks the payment provider
		return b.giveBack(ctx, run)
	})
	if err = errors.Join(err, b.open(ctx, tasks)); err != nil {
		return err
	}
	if err := tasks.Start(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	fmt.Fprintf(out, "http://%v\n", listener.Addr())
	if err := web.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

func routes(b book) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o order
		err := json.NewDecoder(r.Body).Decode(&o)
		if err != nil || o.ID == "" || o.Units < 1 || o.Article < 1 || o.Article > articles {
			answer(w, errInvalid)
			return
		}
		answer(w, b.place(r.Context(), o))
	})
	mux.HandleFunc("POST /orders/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
		answer(w, b.pay(r.Context(), r.PathValue("id")))
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	var r refusal
	if errors.As(err, &r) {
		http.Error(w, r.Error(), int(r))
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// tables has the stock and the orders. The driver starts one process after the other, so the first creates them.
var tables = fmt.Sprintf(`
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.stock (article int PRIMARY KEY, units int NOT NULL CHECK (units >= 0));
INSERT INTO shop.stock SELECT n, %d FROM generate_series(1, %d) n ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS shop.orders (
	id      text PRIMARY KEY,
	article int  NOT NULL REFERENCES shop.stock,
	units   int  NOT NULL CHECK (units > 0),
	state   text NOT NULL DEFAULT 'held' CHECK (state IN ('held', 'paid', 'returned'))
)`, stock, articles)

// A database is a book in PostgreSQL, which any number of processes share. An order and its recheck change in one
// transaction, so a recheck exists exactly while its order is held.
type database struct {
	config
	db     *pgxpool.Pool
	engine *postgres.Engine
}

func servePostgres(ctx context.Context, c config, out io.Writer) error {
	db, err := pgxpool.New(ctx, c.url)
	if err != nil {
		return err
	}
	defer db.Close()
	engine, err := postgres.OpenPool(ctx, db)
	if err != nil {
		return err
	}
	defer engine.Close()
	return serve(ctx, c, engine, &database{c, db, engine}, out)
}

func (b *database) open(ctx context.Context, _ *durable.Scheduler) error {
	_, err := b.db.Exec(ctx, tables)
	return err
}

// place writes the order, takes its units from the stock and adds its recheck, in one transaction.
func (b *database) place(ctx context.Context, o order) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO shop.orders (id, article, units) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, o.ID, o.Article, o.Units)
		if err != nil || tag.RowsAffected() == 0 {
			return err // nil if the order was already placed and the answer was lost
		}
		tag, err = tx.Exec(ctx, `UPDATE shop.stock SET units = units - $2 WHERE article = $1 AND units >= $2`,
			o.Article, o.Units)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errSoldOut
		}
		return b.engine.AddTaskTx(ctx, tx, durable.Task{Key: o.ID, Kind: recheck, Delay: b.window})
	})
}

// pay marks the order as paid and removes its recheck, in one transaction.
func (b *database) pay(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE shop.orders SET state = 'paid' WHERE id = $1 AND state <> 'returned'`, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errExpired
		}
		err = b.engine.RemoveTaskTx(ctx, tx, id)
		if errors.Is(err, durable.ErrTaskKeyNotFound) {
			return nil // the order was already paid and the answer was lost
		}
		return err
	})
}

// giveBack returns the units of an order to the stock and completes its own run, in one transaction. So this happens
// exactly once, even if this process is killed and another one repeats the run.
func (b *database) giveBack(ctx context.Context, run durable.Run) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH o AS (
				UPDATE shop.orders SET state = 'returned' WHERE id = $1 AND state = 'held' RETURNING article, units
			) UPDATE shop.stock s SET units = s.units + o.units FROM o WHERE s.article = o.article`, run.Key)
		if err != nil {
			return err
		}
		return b.engine.CompleteTx(ctx, tx, run)
	})
}

// readTables returns the books.
func readTables(ctx context.Context, url string) ([]entry, error) {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(ctx) }()
	rows, _ := db.Query(ctx, `SELECT o.id, article, o.units, state, $1 - s.units
		FROM shop.orders o JOIN shop.stock s USING (article)`, stock) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
}
