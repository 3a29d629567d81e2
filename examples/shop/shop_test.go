// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

// asProgram is set in the environment of a test program that must act as the shop.
const asProgram = "SHOP_AS_PROGRAM"

// TestMain lets the test program also act as the processes of the service: the driver starts itself.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The tests share a PostgreSQL. They are skipped where none is installed, unless POSTGRES_REQUIRED is set.
func TestShop(t *testing.T) {
	s, err := pgtest.Start()
	pgtest.Must(t, err)
	defer func() { check(t, s.Close()) }()
	t.Run("answers", func(t *testing.T) { serviceAnswers(t, s.URL()) })
	t.Run("balances while processes are killed", func(t *testing.T) { balances(t, s.URL()) })
	t.Run("balances while PostgreSQL is away", func(t *testing.T) { balancesWithTrouble(t, s) })
}

// The buttons stop the server and kill a process, each as soon as the previous trouble is over, and the stock still
// balances.
func balancesWithTrouble(t *testing.T, s *pgtest.Server) {
	c := config{
		db: s.URL(), window: time.Second, lease: time.Second / 2, work: 10 * time.Millisecond, processes: 2,
		callers: 4, kill: time.Hour, away: time.Second, rate: 100, stock: 100, seed: 1,
	}
	text := driven(t, c, s, killed, stopped, away, killed)
	for _, want := range []string{"PostgreSQL, for 1s", "PostgreSQL answers", killed, stopped, "to the unit"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q", want)
		}
	}
}

// driven causes the troubles with the buttons, ends the orders when one has been paid and one returned, and returns the
// output of the driver.
func driven(t *testing.T, c config, s *pgtest.Server, troubles ...string) string {
	t.Helper()
	c.duration = time.Hour
	r, w := io.Pipe()
	var reading, pressing sync.WaitGroup
	var text strings.Builder
	reading.Go(func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			fmt.Fprintln(&text, lines.Text())
			if address, found := strings.CutPrefix(lines.Text(), "to make trouble "); found {
				pressing.Go(func() {
					press(t, address, troubles...)
					awaitStates(t, c.db)
					press(t, address, ended)
				})
			}
		}
	})
	err := drive(t.Context(), c, s, w)
	_ = w.Close()
	reading.Wait()
	pressing.Wait()
	t.Logf("%s", text.String())
	check(t, err)
	return text.String()
}

// awaitStates waits until one order has been paid and another returned.
func awaitStates(t *testing.T, url string) {
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	for states := 0; states < 2; time.Sleep(20 * time.Millisecond) {
		err := db.QueryRow(t.Context(), `SELECT count(DISTINCT state) FROM shop.orders
			WHERE state IN ('paid', 'returned')`).Scan(&states)
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// press presses the buttons of the page, each until it is accepted.
func press(t *testing.T, address string, all ...string) {
	for _, what := range all {
		for {
			resp, err := http.PostForm(address, url.Values{"make": {what}})
			if err != nil {
				t.Errorf("%s was not made: %v", what, err)
				return
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				if !strings.Contains(string(body), page) {
					t.Errorf("%v: no dashboard is on the page:\n%s", err, body)
				}
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// A button is refused while another trouble is in progress, and so is a value without a button.
func TestPress_refused(t *testing.T) {
	own := &driver{asked: make(chan string), server: new(pgtest.Server)}
	foreign := &driver{asked: make(chan string, 1)}
	for _, c := range []struct {
		d          *driver
		what, want string
	}{
		{own, killed, "not over"},
		{own, away, "not over"},
		{own, "nothing", `no trouble "nothing"`},
		{foreign, away, "not taken away"},
		{foreign, killed, ""},
	} {
		err := c.d.press(c.what)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s returns %v, want %q", c.what, err, c.want)
		}
	}
}

// A small version of the demo. Its report is checked against the tables, and then the tables are falsified: the check
// finds it.
func balances(t *testing.T, url string) {
	c := config{
		db: url, window: time.Second, lease: time.Second / 2, work: 10 * time.Millisecond, processes: 2, callers: 4,
		kill: time.Second, rate: 100, stock: 100, seed: 1,
	}
	text := driven(t, c, nil, killed)
	if !strings.Contains(text, "kill -9") || !strings.Contains(text, "balances to the unit") {
		t.Error("no process was killed, or the report does not say that the stock balances")
	}

	db, err := pgxpool.New(t.Context(), c.db)
	check(t, err)
	defer db.Close()
	d := &driver{fleet: &fleet{config: c}, db: db, ledger: make(map[string]*answers)}
	states, err := d.states(t.Context())
	check(t, err)
	for id := range states {
		d.ledger[id] = &answers{order: order{ID: id}, placed: http.StatusOK, paid: status(states[id])}
	}
	wrong := func() string {
		t.Helper()
		_, wrong, err := d.audit(t.Context())
		check(t, err)
		return strings.Join(wrong, "; ")
	}
	if got := wrong(); got != "" {
		t.Errorf("before anything is falsified, wrong are %s", got)
	}
	for _, f := range []struct{ what, do, undo, want string }{
		{
			"a unit too many", `UPDATE shop.stock SET units = units + 1 WHERE article = 1`,
			`UPDATE shop.stock SET units = units - 1 WHERE article = 1`, "1 articles",
		}, {
			"an order given back twice",
			`INSERT INTO shop.event (id, what, node)
				SELECT id, 'returned', 'x' FROM shop.orders WHERE state = 'returned' LIMIT 1`,
			`DELETE FROM shop.event WHERE node = 'x'`, "1 orders were not placed once",
		}, {
			"a paid order given back",
			`INSERT INTO shop.event (id, what, node)
				SELECT id, 'returned', 'x' FROM shop.orders WHERE state = 'paid' LIMIT 1`,
			`DELETE FROM shop.event WHERE node = 'x'`, "1 orders were not placed once",
		}, {
			"a task that is left",
			`INSERT INTO timewheel.task (key, due, revision, kind, data) VALUES ('x', 1, 1, 'x', 'x')`,
			`DELETE FROM timewheel.task`, "1 tasks are left",
		}, {
			"an early recheck",
			`INSERT INTO shop.event (id, what, node, late) SELECT id, 'x', 'x', '-1 ms' FROM shop.orders LIMIT 1`,
			`DELETE FROM shop.event WHERE node = 'x'`, "began 1ms early",
		}, {
			"an order that was not sent",
			`INSERT INTO shop.orders (id, article, units, state) VALUES ('x', 1, 1, 'held')`,
			`DELETE FROM shop.orders WHERE id = 'x'`, "1 orders were never sent",
		},
	} {
		_, err := db.Exec(t.Context(), f.do)
		check(t, err)
		if got := wrong(); !strings.Contains(got, f.want) {
			t.Errorf("%s: wrong are %q, want %q", f.what, got, f.want)
		}
		_, err = db.Exec(t.Context(), f.undo)
		check(t, err)
	}
	for _, a := range d.ledger {
		a.paid = http.StatusOK + http.StatusGone - status(states[a.ID]) // the other answer
		if got := wrong(); !strings.Contains(got, "1 orders are not as the client was answered") {
			t.Errorf("a false answer: wrong are %q", got)
		}
		break
	}
}

// status returns the answer to a payment of an order in this state.
func status(state string) int {
	if state == "paid" {
		return http.StatusOK
	}
	return http.StatusGone
}

// The answers to a client, from a service that runs no task.
func serviceAnswers(t *testing.T, url string) {
	d := &driver{fleet: &fleet{config: config{db: url, stock: 3}}}
	var err error
	d.db, err = pgxpool.New(t.Context(), url)
	check(t, err)
	defer d.db.Close()
	check(t, d.prepare(t.Context()))
	s := &service{config: config{name: "test", window: time.Hour}, db: d.db}
	s.engine, err = postgres.Open(t.Context(), url)
	check(t, err)
	defer s.engine.Close()
	web := s.routes()
	post := func(path, body string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		web.ServeHTTP(w, r)
		return w.Code
	}
	expire := func() { // as the handler does, with a run that this process does not hold
		err := s.giveBack(t.Context(), durable.Run{Token: durable.Token{Key: key("b")}})
		if !errors.Is(err, durable.ErrFenced) {
			t.Errorf("the completion of a run that is not held returns %v", err)
		}
	}
	for i, c := range []struct {
		path, body string
		want       int
		units      int // remaining units of the article
		tasks      int
	}{
		{"/orders", `{"id": "a", "article": 1, "units": 2}`, http.StatusOK, 1, 1},
		{"/orders", `{"id": "a", "article": 1, "units": 2}`, http.StatusOK, 1, 1}, // sent again
		{"/orders", `{"id": "b", "article": 1, "units": 1}`, http.StatusOK, 0, 2},
		{"/orders", `{"id": "c", "article": 1, "units": 1}`, http.StatusConflict, 0, 2},
		{"/orders", `{"id": "", "article": 1, "units": 1}`, http.StatusBadRequest, 0, 2},
		{"/orders", `{"id": "d", "article": 1, "units": -1}`, http.StatusBadRequest, 0, 2},
		{"/orders", `{`, http.StatusBadRequest, 0, 2},
		{"/orders/c/pay", "", http.StatusNotFound, 0, 2},
		{"/orders/a/pay", "", http.StatusOK, 0, 1},
		{"/orders/a/pay", "", http.StatusOK, 0, 1}, // sent again
	} {
		if got := post(c.path, c.body); got != c.want {
			t.Errorf("request %d: the status is %d, want %d", i, got, c.want)
		}
		if c.units == 0 {
			expire()
		}
		var units, tasks int
		check(t, d.db.QueryRow(t.Context(), `SELECT units FROM shop.stock WHERE article = 1`).Scan(&units))
		kinds, err := s.engine.Count(t.Context())
		check(t, err)
		for _, k := range kinds {
			tasks += k.Tasks
		}
		if units != c.units || tasks != c.tasks {
			t.Errorf("request %d: %d units and %d tasks are left, want %d and %d", i, units, tasks, c.units, c.tasks)
		}
	}
	_, err = d.db.Exec(context.Background(), `UPDATE shop.orders SET state = 'returned' WHERE id = 'b'`)
	check(t, err)
	if got := post("/orders/b/pay", ""); got != http.StatusGone {
		t.Errorf("the payment of an order that was given back has the status %d", got)
	}
}
