// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const aboutHistory = `
It lists attempts, newest first, with how late they started and how long they took. A kind has a
history if its program asks for one (durable.WithHistory, or "history" in the configuration of
serve). It also has attempts of tasks that no longer exist. With a key, -limit 1 shows the last
attempt of its task.

The outcomes are succeeded, failed, parked, given up, cancelled, snoozed and expired. A cancelled
attempt that parked its task is found as parked and as cancelled.

  timewheel history order:42
  timewheel history -kind mail -outcome "parked,given up" -json | jq -r .failure | sort | uniq -c`

func defineHistory(p *program, f *flag.FlagSet) action {
	var at place
	var q durable.HistoryQuery
	var asJSON bool
	at.define(p, f)
	textFlag(f, &q.Prefix, "prefix", "attempts of tasks whose key begins with `TEXT`")
	textFlag(f, &q.Kind, "kind", "attempts of the `KIND`")
	textFlag(f, &q.Group, "group", "attempts of tasks of the `GROUP`, such as a tenant")
	textFlag(f, &q.Node, "node", "attempts on the `NODE`")
	f.Func("outcome", "attempts with one of the `OUTCOMES`", func(value string) error {
		q.Outcomes = strings.Split(value, ",")
		for _, name := range q.Outcomes {
			if !slices.Contains(durable.Outcomes(), name) {
				return fmt.Errorf("%q must be one of %s%s", name, strings.Join(durable.Outcomes(), ", "),
					didYouMean(name, durable.Outcomes()))
			}
		}
		return nil
	})
	f.Func("from", "attempts that ended at or after the `TIME`, as in 2006-01-02T15:04:05Z", func(value string) (err error) {
		q.From, err = time.Parse(time.RFC3339Nano, value)
		return err
	})
	f.Func("before", "attempts that ended before the `TIME`, as in 2006-01-02T15:04:05Z", func(value string) (err error) {
		q.Before, err = time.Parse(time.RFC3339Nano, value)
		return err
	})
	f.IntVar(&q.Limit, "limit", 50, "list at most `N` attempts")
	f.StringVar(&q.After, "after", "", "continue after the page that ended with `PLACE`")
	f.BoolVar(&asJSON, "json", false, "write JSON lines")
	return func(ctx context.Context, args []string) error {
		keys, err := keysOf(args)
		switch {
		case err != nil:
			return err
		case len(keys) > 1:
			return usagef("%q is one argument too many", args[1])
		case q.Limit < 1:
			return usagef("-limit %d is not positive", q.Limit)
		case len(keys) == 1:
			q.Key = keys[0]
		}
		return at.with(ctx, p, false, func(ctx context.Context, s scheduler) error {
			found, err := s.History(ctx, q)
			if err != nil {
				return err
			}
			return p.writeHistory(found, asJSON)
		})
	}
}

// A pastJSON is an attempt in JSON. Times are in UTC and in RFC 3339 format.
type pastJSON struct {
	Ended   time.Time `json:"ended"`
	Key     text      `json:"key"`
	Kind    text      `json:"kind"`
	Group   text      `json:"group,omitempty"`
	Outcome string    `json:"outcome"`
	Attempt int       `json:"attempt"`
	Due     time.Time `json:"due"`
	Late    seconds   `json:"late"` // from due to the start
	Took    seconds   `json:"took"`
	Node    text      `json:"node"`
	Token   text      `json:"token"`
	Failure string    `json:"failure,omitempty"`
	Note    string    `json:"note,omitempty"`
}

func (p *program) writeHistory(found durable.History, asJSON bool) error {
	if asJSON {
		for _, r := range found.Runs {
			err := writeJSON(p.out, pastJSON{
				Ended: r.Ended.UTC(), Key: text(r.Key), Kind: text(r.Kind), Group: text(r.Group), Outcome: r.Outcome(),
				Attempt: r.Attempt.Attempt, Due: r.Due.UTC(), Late: seconds(r.Started.Sub(r.Due)),
				Took: seconds(r.Ended.Sub(r.Started)), Node: text(r.Node), Token: text(r.Token.String()),
				Failure: r.Failure, Note: r.Note,
			})
			if err != nil {
				return err
			}
		}
	} else if len(found.Runs) == 0 {
		fmt.Fprintln(p.err, "No attempt in the history matches. Only kinds whose programs ask for it have a history.")
	} else {
		t := table{columns: []column{
			{title: "ENDED"}, {title: "KEY", least: 12}, {title: "KIND", least: 6}, {title: "OUTCOME"},
			{title: "ATTEMPT", right: true}, {title: "LATE", right: true}, {title: "TOOK", right: true},
			{title: "NODE", least: 6}, {title: "ERROR OR NOTE", least: 8},
		}}
		for _, r := range found.Runs {
			took, why := span(r.Ended.Sub(r.Started)), ""
			if r.Expired {
				took = "-"
			}
			if said := r.Failure + r.Note; said != "" {
				why = quoteText(said)
			}
			t.add(p.when(r.Ended), quoteText(r.Key), quoteText(r.Kind), r.Outcome(), number(r.Attempt.Attempt),
				span(max(r.Started.Sub(r.Due), 0)), took, quoteText(r.Node), why)
		}
		t.write(p.out, p.width)
	}
	if found.Next != "" {
		fmt.Fprintf(p.err, "There are more: -after %s continues.\n", found.Next)
	}
	return nil
}
