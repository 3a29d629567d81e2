// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A driver sends orders to a fleet, causes trouble in the fleet, and records the responses to the clients in a ledger.
type driver struct {
	*fleet
	server *pgtest.Server // the database server, if trouble may stop it; nil if the program did not start the server
	asked  chan string    // trouble that a button has requested from disturb
	db     *pgxpool.Pool
	http   *http.Client
	began  time.Time
	sent   atomic.Int64 // number of requests
	again  atomic.Int64 // number of requests repeated because there was no response or an error

	mu     sync.Mutex // protects the fields below
	ledger map[string]*answers
	events []trouble
}

// An answers holds the responses to the client of an order.
type answers struct {
	order
	placed int // HTTP status of the order; 0 if there was no response
	paid   int
}

// A trouble records that a process was killed or stopped.
type trouble struct {
	at    time.Time // when the process was killed or stopped, on the database's clock
	after time.Duration
	what  string
	node  string
	held  []held // rechecks that the process held
}

// held is a recheck that a process held.
type held struct {
	id  string
	due int64
}

// The kinds of trouble that disturb causes.
const (
	killed  = "kill -9"
	stopped = "stop"
	away    = "away" // PostgreSQL is stopped
	ended   = "end"  // no further orders are sent
)

const (
	articles = 20
	payers   = 32 // maximum number of clients that pay at the same time
)

// patience is the time limit for each thing that must happen.
const patience = time.Minute

// drive runs the demo and prints a report. It returns an error if it finds a violation. When ctx is done, it sends no
// further orders and prints the report on the orders so far. server is the database server of the config, or nil if
// that server must not be stopped.
func drive(ctx context.Context, c config, server *pgtest.Server, out io.Writer) error {
	orders, ctx := ctx, context.WithoutCancel(ctx)
	d := &driver{
		fleet:  &fleet{config: c},
		server: server,
		asked:  make(chan string),
		http: &http.Client{
			Timeout:   5 * time.Second,
			Transport: &http.Transport{MaxIdleConnsPerHost: c.callers + payers},
		},
		ledger: make(map[string]*answers),
	}
	defer d.http.CloseIdleConnections()
	var err error
	if d.db, err = pgxpool.New(ctx, c.db); err != nil {
		return err
	}
	defer d.db.Close()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, `%d processes on one PostgreSQL, %d orders a second from %d goroutines for %v.
An order is to be paid within %v. The lease of a process is %v. Seed %d.

`, c.processes, c.rate, c.callers, c.duration, c.window, c.lease, c.seed)
	defer func() { _ = d.stopAll() }()
	for range c.processes {
		p, err := d.start()
		if err != nil {
			return err
		}
		p.print(out)
	}
	closeButtons, err := d.serveButtons(out)
	if err != nil {
		return err
	}
	defer closeButtons()
	fmt.Fprintln(out)
	d.began = time.Now()
	if err := d.load(orders, out); err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	if err := d.stopAll(); err != nil {
		return err
	}
	return d.report(ctx, out)
}

// prepare creates empty tables and the stock.
func (d *driver) prepare(ctx context.Context) error {
	if _, err := d.db.Exec(ctx, "DROP SCHEMA IF EXISTS timewheel CASCADE;"+tables); err != nil {
		return err
	}
	_, err := d.db.Exec(ctx, `INSERT INTO shop.stock SELECT n, $1 FROM generate_series(1, $2) n`,
		d.stock, articles)
	if err != nil {
		return err
	}
	engine, err := postgres.Open(ctx, d.config.db) // creates the schema
	if err != nil {
		return err
	}
	engine.Close()
	return nil
}

// load sends orders and payments and causes trouble. It continues for the configured time, or until a button or an
// interrupt ends it.
func (d *driver) load(ctx context.Context, out io.Writer) error {
	patient, end := context.WithTimeout(context.WithoutCancel(ctx), d.duration+d.window+patience)
	defer end()
	interrupted := ctx
	ctx, cancel := context.WithTimeout(ctx, d.duration)
	defer cancel()

	tw := timewheel.NewTimeWheel(5*time.Millisecond, 512, timewheel.WithPoolSize(payers))
	tw.Start()
	defer tw.Stop()
	var orders, payments sync.WaitGroup
	for caller := range d.callers {
		orders.Go(func() {
			rnd := rand.New(rand.NewPCG(d.seed, uint64(caller)))
			pace := time.NewTicker(time.Duration(d.callers) * time.Second / time.Duration(d.rate))
			defer pace.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				a := d.place(patient, rnd, fmt.Sprintf("%d-%d", caller, n))
				if a.placed == http.StatusOK && rnd.IntN(10) < 6 {
					// Some payments arrive at the very end of the window, or after it.
					payments.Add(1)
					tw.AfterFunc(draw(rnd, d.window+d.window/20), func() {
						defer payments.Done()
						status := d.post(patient, "/orders/"+a.ID+"/pay", nil)
						d.mu.Lock()
						a.paid = status
						d.mu.Unlock()
					})
				}
				select {
				case <-pace.C:
				case <-ctx.Done():
				}
			}
		})
	}
	err := d.disturb(ctx, out)
	cancel()
	if interrupted.Err() != nil {
		fmt.Fprintf(out, "%6.1f s  interrupted: no more orders are sent, and the report follows within about %v.\n"+
			"          Another interrupt ends the program at once.\n", time.Since(d.began).Seconds(), d.window)
	}
	orders.Wait()
	payments.Wait()
	return err
}

// draw returns a random duration from 0 up to the given maximum.
func draw(rnd *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(most)))
}

// place sends an order and records the response.
func (d *driver) place(ctx context.Context, rnd *rand.Rand, id string) *answers {
	a := &answers{order: order{ID: id, Article: 1 + rnd.IntN(articles), Units: 1 + rnd.IntN(3)}}
	body, err := json.Marshal(a.order)
	if err != nil {
		panic(err) // unreachable: an order can always be marshalled
	}
	d.mu.Lock()
	d.ledger[id] = a
	d.mu.Unlock()
	status := d.post(ctx, "/orders", body)
	d.mu.Lock()
	defer d.mu.Unlock()
	a.placed = status
	return a
}

// post sends a request to random processes until one responds without a server error, and returns the status. It
// returns 0 if ctx is done first.
func (d *driver) post(ctx context.Context, path string, body []byte) int {
	for ; ctx.Err() == nil; d.again.Add(1) {
		d.sent.Add(1)
		if p := d.any(); p != nil {
			resp, err := d.http.Post("http://"+p.addr+path, "application/json", bytes.NewReader(body))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode < http.StatusInternalServerError {
					return resp.StatusCode
				}
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0
}

// disturb causes trouble at random times and when a button is pressed, until ctx is done or a button ends the demo.
// When disturb returns nil, the database server is running.
func (d *driver) disturb(ctx context.Context, out io.Writer) error {
	rnd := rand.New(rand.NewPCG(d.seed, 1<<32))
	for {
		what := killed
		select {
		case <-time.After(d.config.kill/2 + draw(rnd, d.config.kill)):
			if rnd.IntN(4) == 0 {
				what = stopped
			}
		case what = <-d.asked:
		case <-ctx.Done():
			return nil
		}
		var err error
		switch what {
		case ended:
			return nil
		case away:
			err = d.takeAway(ctx, out)
		default:
			err = d.replace(d.pick(rnd.IntN(1<<20)), what, out)
		}
		if err != nil {
			return err
		}
	}
}

// replace kills or stops the process, and starts another.
func (d *driver) replace(p *process, what string, out io.Writer) error {
	t := trouble{after: time.Since(d.began), node: p.name, what: what}
	var err error
	if what == stopped {
		t.held, t.at, err = d.holds(p.name)
		err = errors.Join(err, d.stop(p))
	} else {
		d.fleet.kill(p)
		t.held, t.at, err = d.holds(p.name)
	}
	if err != nil {
		return err
	}
	next, err := d.start()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%6.1f s  %-8s %s, which held %d rechecks; %s takes its place\n",
		t.after.Seconds(), t.what, t.node, len(t.held), next.name)
	next.print(out)
	d.events = append(d.events, t)
	return nil
}

// takeAway stops the database server as in a crash, and restarts it after a while, or earlier if ctx is done.
func (d *driver) takeAway(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "%6.1f s  %-8s PostgreSQL, for %v\n", time.Since(d.began).Seconds(), away, d.config.away)
	if err := d.server.Stop(pgtest.Immediate); err != nil {
		return err
	}
	select {
	case <-time.After(d.config.away):
	case <-ctx.Done():
	}
	d.db.Reset() // the pool's connections are broken
	if err := d.server.Restart(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%6.1f s  %-8s PostgreSQL answers\n", time.Since(d.began).Seconds(), "back")
	return nil
}

// holds returns the rechecks that the process holds according to the engine's tables, and the database's time.
func (d *driver) holds(name string) (all []held, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rows, err := d.db.Query(ctx, `SELECT convert_from(t.key, 'UTF8'), t.due FROM timewheel.task t
		JOIN timewheel.member m ON m.id = t.owner WHERE m.name = $1`, name)
	if err != nil {
		return nil, now, err
	}
	defer rows.Close()
	for rows.Next() {
		var h held
		if err := rows.Scan(&h.id, &h.due); err != nil {
			return nil, now, err
		}
		h.id = strings.TrimPrefix(h.id, key(""))
		all = append(all, h)
	}
	if err := rows.Err(); err != nil {
		return nil, now, err
	}
	return all, now, d.db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
}

// settle waits until no orders are held and no tasks are left.
func (d *driver) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.window+patience)
	defer cancel()
	for {
		var orders, tasks int
		err := d.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM shop.orders WHERE state = 'held'),
			(SELECT count(*) FROM timewheel.task)`).Scan(&orders, &tasks)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("orders are still held, or tasks left, %v after the last order", d.window+patience)
		case err != nil:
			return err
		case orders == 0 && tasks == 0:
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}
