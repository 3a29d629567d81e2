// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/internal/pgtest"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "checkout.exe")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func TestMain_withoutDatabase_saysHowToGetOne(t *testing.T) {
	out, err := exec.Command(build(t)).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "docker run") {
		t.Errorf("it ends with %v: %s", err, out)
	}
}

func TestCheckout(t *testing.T) {
	server, err := pgtest.Start()
	pgtest.Must(t, err)
	defer func() { check(t, server.Close()) }()
	db, err := pgx.Connect(t.Context(), server.URL())
	check(t, err)
	defer db.Close(t.Context())

	// Twice, because the tables remain.
	for _, first := range []int{1, 3} {
		var out strings.Builder
		check(t, run(t.Context(), server.URL(), &out))
		t.Log("\n" + out.String())
		want := fmt.Sprintf(`order %[1]d: 3 units
order %[1]d: paid
an order of a million units fails: sold out
order %[2]d: 2 units
order %[2]d: attempt 1 has returned the units, and fails before its commit
order %[2]d: a late payment fails: the order was paid before, or not in time
order %[1]d: state paid, returns 0, by attempt 0
order %[2]d: state returned, returns 1, by attempt 2
`, first, first+1)
		if !slices.Equal(sorted(out.String()), sorted(want)) { // a slow program may print its second order late
			t.Errorf("want:\n%s", want)
		}
	}
	balances(t, db, 2)

	// An interrupted program leaves its second order to a later one.
	ctx, interrupt := context.WithCancel(t.Context())
	check(t, run(ctx, server.URL(), writer(func(line string) {
		if strings.HasSuffix(line, ": 2 units\n") {
			interrupt()
		}
	})))

	// A process is killed during the first attempt for its own order or after it. Before, it may have returned the order
	// of the program that was interrupted. Later processes return the units.
	killed := exec.Command(build(t), "-db", server.URL())
	out, err := killed.StdoutPipe()
	check(t, err)
	check(t, killed.Start())
	own := "none:"
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), own+" attempt"); {
		if order, ok := strings.CutSuffix(lines.Text(), " 2 units"); ok {
			own = order
		}
	}
	check(t, killed.Process.Kill())
	_ = killed.Wait()
	starts := 4
	for open := 1; open > 0; starts++ {
		check(t, run(t.Context(), server.URL(), &strings.Builder{}))
		check(t, db.QueryRow(t.Context(), `SELECT count(*) FROM checkout.orders WHERE state = 'open'`).Scan(&open))
	}
	balances(t, db, starts)
}

// A writer is called with each line.
type writer func(line string)

func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}

func sorted(text string) []string { return slices.Sorted(strings.Lines(text)) }

// balances checks that after the starts each order that was not paid was returned once, that no unit is missing, and that
// no task and no connection of the program is left.
func balances(t *testing.T, db *pgx.Conn, starts int) {
	t.Helper()
	for _, c := range []struct {
		what, query string
		want        int
	}{
		{"orders", `SELECT count(*) FROM checkout.orders`, 2 * starts},
		{"returned orders", `SELECT count(*) FROM checkout.orders WHERE state = 'returned'`, starts},
		{"returns", `SELECT count(*) FROM checkout.returns`, starts},
		{"orders that were returned", `SELECT count(DISTINCT order_id) FROM checkout.returns`, starts},
		{"units", `SELECT units FROM checkout.stock`, (10 - 3) * starts},
	} {
		var got int
		check(t, db.QueryRow(t.Context(), c.query).Scan(&got))
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	engine, err := postgres.Open(t.Context(), db.Config().ConnString(), postgres.WithSchema("checkout_tasks"))
	check(t, err)
	tasks, err := durable.Connect(t.Context(), engine)
	check(t, err)
	for info, err := range tasks.All(t.Context()) {
		t.Errorf("a task is left: %v, %v", info, err)
	}
	check(t, tasks.Shutdown(t.Context()))
	engine.Close()
	for connections := 1; connections > 0; { // the server needs a moment to end them
		check(t, db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&connections))
	}
}
