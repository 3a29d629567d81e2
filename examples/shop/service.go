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
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

// tables creates the shop's tables. The table event is for the final check: it has one row for every change to an
// order.
const tables = `
DROP SCHEMA IF EXISTS shop CASCADE;
CREATE SCHEMA shop;
CREATE TABLE shop.stock (article int PRIMARY KEY, units int NOT NULL CHECK (units >= 0));
CREATE TABLE shop.orders (
	id      text PRIMARY KEY,
	article int  NOT NULL REFERENCES shop.stock,
	units   int  NOT NULL CHECK (units > 0),
	state   text NOT NULL DEFAULT 'held' CHECK (state IN ('held', 'paid', 'returned'))
);
CREATE TABLE shop.event (
	id      text NOT NULL REFERENCES shop.orders,
	what    text NOT NULL, -- placed, paid or returned
	node    text NOT NULL, -- the process that did it
	attempt int,           -- of a return: which attempt of the run it was
	late    interval,      -- of a return: how late its handler began
	at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
`

// A service is one process of the shop.
type service struct {
	config
	db     *pgxpool.Pool
	engine *postgres.Engine
	tasks  *durable.Scheduler
}

// An order is an order from a client. The client chooses its ID, so that it can send the order again if the response is
// lost.
type order struct {
	ID      string `json:"id"`
	Article int    `json:"article"`
	Units   int    `json:"units"`
}

// These errors are outcomes that a client must be able to distinguish from failures.
var (
	errSoldOut = errors.New("sold out")
	errNoOrder = errors.New("no such order")
	errExpired = errors.New("the order was not paid in time")
)

const recheck = "order.recheck" // kind of the tasks

const page = "/debug/timewheel/" // path of the dashboard in each process

func key(id string) string { return "order:" + id }

// place inserts the order, takes its units from the stock and adds its recheck, in one transaction.
func (s *service) place(ctx context.Context, o order) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO shop.orders (id, article, units) VALUES ($1, $2, $3)
			ON CONFLICT DO NOTHING`, o.ID, o.Article, o.Units)
		if err != nil || tag.RowsAffected() == 0 {
			return err // nil if the order was already placed and the response was lost
		}
		tag, err = tx.Exec(ctx, `UPDATE shop.stock SET units = units - $2 WHERE article = $1 AND units >= $2`,
			o.Article, o.Units)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errSoldOut
		}
		if err := s.happens(ctx, tx, o.ID, "placed"); err != nil {
			return err
		}
		return s.engine.AddTaskTx(ctx, tx, durable.Task{Key: key(o.ID), Kind: recheck, Delay: s.window})
	})
}

// pay marks the order as paid and removes its recheck, in one transaction.
func (s *service) pay(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var state string
		err := tx.QueryRow(ctx, `SELECT state FROM shop.orders WHERE id = $1 FOR UPDATE`, id).Scan(&state)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return errNoOrder
		case err != nil || state == "paid": // already paid, and the response was lost
			return err
		case state == "returned":
			return errExpired
		}
		if _, err := tx.Exec(ctx, `UPDATE shop.orders SET state = 'paid' WHERE id = $1`, id); err != nil {
			return err
		}
		if err := s.happens(ctx, tx, id, "paid"); err != nil {
			return err
		}
		return s.engine.RemoveTaskTx(ctx, tx, key(id))
	})
}

// giveBack is the handler for rechecks. In one transaction, it returns the units of an order to the stock and completes
// its own run. This happens exactly once, even if this process is killed and another process starts the same run again.
func (s *service) giveBack(ctx context.Context, run durable.Run) error {
	late := run.Lateness()
	id := strings.TrimPrefix(run.Key, key(""))
	select {
	case <-time.After(s.work): // for example, a call to the payment provider
	case <-ctx.Done():
		return ctx.Err()
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH o AS (
				UPDATE shop.orders SET state = 'returned' WHERE id = $1 AND state = 'held' RETURNING article, units
			) UPDATE shop.stock s SET units = s.units + o.units FROM o WHERE s.article = o.article`, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO shop.event (id, what, node, attempt, late)
			VALUES ($1, 'returned', $2, $3, $4)`, id, s.name, run.Attempt, late)
		if err != nil {
			return err
		}
		return s.engine.CompleteTx(ctx, tx, run)
	})
}

// happens records a change to an order.
func (s *service) happens(ctx context.Context, tx pgx.Tx, id, what string) error {
	_, err := tx.Exec(ctx, `INSERT INTO shop.event (id, what, node) VALUES ($1, $2, $3)`, id, what, s.name)
	return err
}

// serve runs the service until ctx is done. It prints the service's address.
func serve(ctx context.Context, c config) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.untilEOF {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	if c.name == "" {
		host, _ := os.Hostname()
		c.name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	s := &service{config: c}
	if s.db, err = pgxpool.New(ctx, c.db); err != nil {
		return err
	}
	defer s.db.Close()
	if s.engine, err = postgres.Open(ctx, c.db); err != nil {
		return err
	}
	defer s.engine.Close()
	attempts := dashboard.NewAttemptRecorder()
	s.tasks, err = durable.New(ctx, s.engine, durable.WithNodeName(c.name), durable.WithLease(c.lease), attempts.Option())
	if err != nil {
		return err
	}
	if err := s.tasks.Handle(recheck, s.giveBack); err != nil {
		return err
	}
	if err := s.tasks.Start(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("/", s.routes())
	mux.Handle(page, dashboard.Handler([]dashboard.Source{dashboard.Scheduler("shop", s.tasks, attempts)}))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, s.tasks.Shutdown(last)) // first, so that the other processes take over the tasks at once
	return errors.Join(err, web.Shutdown(last))
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ID == "" || o.Units < 1 {
			http.Error(w, "an order has an id, an article and units", http.StatusBadRequest)
			return
		}
		answer(w, s.place(r.Context(), o))
	})
	mux.HandleFunc("POST /orders/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.pay(r.Context(), r.PathValue("id")))
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case err == nil:
		return
	case errors.Is(err, errSoldOut):
		status = http.StatusConflict
	case errors.Is(err, errNoOrder):
		status = http.StatusNotFound
	case errors.Is(err, errExpired):
		status = http.StatusGone
	}
	http.Error(w, err.Error(), status)
}
