// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A tally is a summary of the tables at the end of the demo.
type tally struct {
	placed, paid, returned   int
	unitsSold, unitsLeft     int
	repeated                 int           // number of returns that took more than one attempt
	half, most, worst, early time.Duration // lateness of the returns: median, 99th percentile, maximum and minimum
}

// report prints the results and returns an error if they do not balance.
func (d *driver) report(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "\nWhat the processes held that were killed or stopped, and which did it:\n\n"+
		"          what     process   held  paid     latest  done by")
	for _, t := range d.events {
		over, err := d.takeover(ctx, t)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%6.1f s  %-8s %-8s %5d  %s\n", t.after.Seconds(), t.what, t.node, len(t.held), over.line())
	}
	sum, wrong, err := d.audit(ctx)
	if err != nil {
		return err
	}
	refused := 0
	for _, a := range d.ledger {
		if a.placed == http.StatusConflict {
			refused++
		}
	}
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	fmt.Fprintf(out, `
orders     %d placed, %d paid, %d given back; %d refused, because the article was sold out
stock      %d units at first = %d sold + %d left
rechecks   %d given back; of these %d had more attempts than one: a process or PostgreSQL had ended
lateness   half began within %v, 99 %% within %v, and the last after %v
requests   %d, of them %d sent again, because a process had ended or PostgreSQL was away
processes  %d, of them %d killed or stopped
`, sum.placed, sum.paid, sum.returned, refused, d.stock*articles, sum.unitsSold, sum.unitsLeft, sum.returned,
		sum.repeated, ms(sum.half), ms(sum.most), ms(sum.worst), d.sent.Load(), d.again.Load(), d.started,
		len(d.events))
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\nshop: "))
	}
	fmt.Fprintln(out, "\nThe stock balances to the unit, each order was paid or given back exactly once, and no"+
		"\nrecheck was early.")
	return nil
}

// A takeover describes what happened to the rechecks that a process held when it was killed or stopped.
type takeover struct {
	by   map[string]int // number of rechecks run by each process
	paid int            // number of orders that were paid instead
	late time.Duration  // maximum delay from the due time or the end of the process, whichever is later
}

func (d *driver) takeover(ctx context.Context, t trouble) (over takeover, err error) {
	ids := make([]string, len(t.held))
	due := make(map[string]time.Time)
	for i, h := range t.held {
		ids[i], due[h.id] = h.id, time.Unix(0, h.due)
	}
	over.by = make(map[string]int)
	rows, err := d.db.Query(ctx, `SELECT id, what, node, at FROM shop.event
		WHERE id = ANY($1) AND what <> 'placed'`, ids)
	if err != nil {
		return over, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, what, node string
		var at time.Time
		if err := rows.Scan(&id, &what, &node, &at); err != nil {
			return over, err
		}
		if what == "paid" {
			over.paid++
			continue
		}
		over.by[node]++
		from := t.at
		if due[id].After(from) {
			from = due[id]
		}
		over.late = max(over.late, at.Sub(from))
	}
	return over, rows.Err()
}

// line returns the takeover as the last part of a line in the report.
func (t takeover) line() string {
	var by []string
	for _, node := range slices.Sorted(maps.Keys(t.by)) {
		by = append(by, fmt.Sprintf("%s %d", node, t.by[node]))
	}
	return fmt.Sprintf("%4d  %7.2f s  %s", t.paid, t.late.Seconds(), strings.Join(by, ", "))
}

// audit compares the tables with each other and with the clients' ledger, and returns the violations.
func (d *driver) audit(ctx context.Context) (t tally, wrong []string, err error) {
	fails := func(n int, format string, args ...any) {
		if n != 0 {
			wrong = append(wrong, fmt.Sprintf("%d ", n)+fmt.Sprintf(format, args...))
		}
	}
	var unbalanced, notOnce, tasks int
	err = d.db.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM shop.orders),
		(SELECT count(*) FROM shop.orders WHERE state = 'paid'),
		(SELECT count(*) FROM shop.orders WHERE state = 'returned'),
		(SELECT coalesce(sum(units), 0) FROM shop.orders WHERE state = 'paid'),
		(SELECT sum(units) FROM shop.stock),
		(SELECT count(*) FROM shop.stock s WHERE units <> $1 -
			(SELECT coalesce(sum(units), 0) FROM shop.orders o WHERE o.article = s.article AND state <> 'returned')),
		(SELECT count(*) FROM shop.orders o WHERE ARRAY['placed', o.state] IS DISTINCT FROM
			(SELECT array_agg(what ORDER BY at) FROM shop.event e WHERE e.id = o.id)),
		(SELECT count(*) FROM timewheel.task),
		(SELECT count(*) FROM shop.event WHERE attempt > 1)`, d.stock).Scan(
		&t.placed, &t.paid, &t.returned, &t.unitsSold, &t.unitsLeft, &unbalanced, &notOnce, &tasks, &t.repeated)
	if err != nil {
		return t, nil, err
	}
	err = d.db.QueryRow(ctx, `SELECT coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY late), '0'),
		coalesce(percentile_disc(0.99) WITHIN GROUP (ORDER BY late), '0'), coalesce(max(late), '0'),
		coalesce(min(late), '0') FROM shop.event`).Scan(&t.half, &t.most, &t.worst, &t.early)
	if err != nil {
		return t, nil, err
	}
	fails(unbalanced, "articles whose stock does not balance")
	fails(notOnce, "orders were not placed once, and paid or given back once")
	fails(tasks, "tasks are left")
	if t.early < 0 {
		wrong = append(wrong, fmt.Sprintf("a recheck began %v early", -t.early))
	}
	if want := d.stock * articles; t.unitsSold+t.unitsLeft != want {
		wrong = append(wrong, fmt.Sprintf("%d units are sold and %d left, of %d", t.unitsSold, t.unitsLeft, want))
	}

	states, err := d.states(ctx)
	if err != nil {
		return t, nil, err
	}
	contradicted, unanswered := 0, 0
	for id, a := range d.ledger {
		state := states[id]
		switch {
		case a.placed == http.StatusOK && state == "",
			a.placed == http.StatusConflict && state != "",
			a.paid == http.StatusOK && state != "paid",
			a.paid == http.StatusGone && state != "returned",
			a.paid == http.StatusNotFound,
			a.paid == 0 && a.placed == http.StatusOK && state == "paid":
			contradicted++
		case a.placed == 0:
			unanswered++
		}
		delete(states, id)
	}
	fails(contradicted, "orders are not as the client was answered")
	fails(unanswered, "orders were never answered")
	fails(len(states), "orders were never sent")
	return t, wrong, nil
}

// states returns the state of each order.
func (d *driver) states(ctx context.Context) (map[string]string, error) {
	rows, err := d.db.Query(ctx, `SELECT id, state FROM shop.orders`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	states := make(map[string]string)
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			return nil, err
		}
		states[id] = state
	}
	return states, rows.Err()
}
