// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

const aboutTune = `
It sets numbers in place of those in the code, while the programs run: the limits of a kind, how
many handlers run at once on each node (-pool-size), and how many overdue tasks start per second
(-catch-up). All processes know it within two seconds. It survives restarts and deployments, until
-reset. A kind gets no limit that its code does not have. Without a number or -reset it lists the
numbers that are set, by whom, and why.

  timewheel tune -kind mail -cluster-concurrency 20 -why "the new relay bears it"
  timewheel tune -kind mail -reset
  timewheel tune -catch-up 500`

func defineTune(p *program, f *flag.FlagSet) action {
	var at place
	var l durable.KindLimits
	var pool, catchUp int
	var reset, asJSON bool
	at.define(p, f)
	f.StringVar(&l.Kind, "kind", "", "the `KIND` whose limits to set")
	for name, of := range map[string]*durable.Limit{"": &l.Here, "cluster-": &l.Cluster} {
		where := map[string]string{"": "on each node", "cluster-": "on all nodes together"}[name]
		f.IntVar(&of.Concurrency, name+"concurrency", 0, "the greatest number of runs at once "+where+"``") // no placeholder: the line would be too long
		f.Func(name+"rate", "the greatest `N/TIME` of starts "+where+", such as 100/1m", func(text string) error {
			return parseRate(of, text)
		})
	}
	f.IntVar(&pool, "pool-size", 0, "the greatest `NUMBER` of handlers at once on each node")
	f.IntVar(&catchUp, "catch-up", 0, "the greatest `NUMBER` of overdue tasks that start per second on all nodes")
	f.BoolVar(&reset, "reset", false, "go back to the numbers of the code; with -kind, -pool-size 0 or -catch-up 0")
	why := f.String("why", "", "the `REASON`, for the page and the other commands")
	f.BoolVar(&asJSON, "json", false, "write one line of JSON with the numbers that are set")
	return noArgs(func(ctx context.Context) error {
		given := make(map[string]bool)
		f.Visit(func(f *flag.Flag) { given[f.Name] = true })
		limits := l.Here != (durable.Limit{}) || l.Cluster != (durable.Limit{})
		switch {
		case limits && l.Kind == "":
			return usagef("the limits of which kind? Give -kind")
		case limits && reset:
			return usagef("give numbers or -reset, not both")
		case l.Kind != "" && !limits && !reset:
			return usagef("which limit of kind %s? Give it, or -reset", quoteText(l.Kind))
		case reset && l.Kind == "" && !given["pool-size"] && !given["catch-up"]:
			return usagef("reset what? Give -kind, -pool-size 0 or -catch-up 0")
		case !reset && (given["pool-size"] && pool == 0 || given["catch-up"] && catchUp == 0):
			return usagef("0 is no number of workers or starts; -reset goes back to that of the code")
		case reset && (pool != 0 || catchUp != 0):
			return usagef("with -reset, give -pool-size 0 or -catch-up 0")
		}
		by := durable.By(p.who, *why)
		return at.with(ctx, p, false, func(ctx context.Context, s scheduler) (err error) {
			if l.Kind != "" {
				err = s.TuneLimits(ctx, l, by)
			}
			if err == nil && given["pool-size"] {
				err = s.TunePoolSize(ctx, pool, by)
			}
			if err == nil && given["catch-up"] {
				err = s.TuneCatchUp(ctx, catchUp, by)
			}
			if err != nil {
				return err
			}
			t, err := s.Tuned(ctx)
			switch {
			case err != nil:
			case asJSON:
				err = writeJSON(p.out, newTuningJSON(t))
			case t.PoolSize+t.CatchUp+len(t.Limits) == 0:
				fmt.Fprintln(p.out, "Every number is that of the code.")
			default:
				p.writeTuning(t)
			}
			return err
		})
	})
}

// parseRate sets the rate of a limit from a text such as 100/1m.
func parseRate(l *durable.Limit, text string) error {
	number, period, ok := strings.Cut(text, "/")
	n, err := strconv.Atoi(number)
	per, wrong := time.ParseDuration(period)
	if !ok || err != nil || wrong != nil || n <= 0 || per <= 0 {
		return fmt.Errorf("%q is not a rate such as 100/1m", text)
	}
	l.Rate, l.Per = n, per
	return nil
}

// writeTuning writes what operators have set, if anything.
func (p *program) writeTuning(t durable.Tuning) {
	line := func(key, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if by, known := t.By[key]; known {
			text += ", set " + when(by.At, p.now()) + reason(by, " by ")
		}
		fmt.Fprintf(p.out, "%s.\n", text)
	}
	for _, l := range t.Limits {
		line("kind "+l.Kind, "Kind %s: %s", quoteText(l.Kind), l)
	}
	if t.PoolSize > 0 {
		line("pool size", "Each node runs %s at once", count(t.PoolSize, "handler"))
	}
	if t.CatchUp > 0 {
		line("catch-up", "Of the overdue tasks %s a second start", number(t.CatchUp))
	}
}

type tuningJSON struct {
	PoolSize int              `json:"pool_size,omitempty"`
	CatchUp  int              `json:"catch_up,omitempty"`
	Limits   []tunedKindJSON  `json:"limits"`
	By       map[text]setJSON `json:"by"`
}

type tunedKindJSON struct {
	Kind    text          `json:"kind"`
	Here    durable.Limit `json:"here,omitzero"`
	Cluster durable.Limit `json:"cluster,omitzero"`
}

type setJSON struct {
	At  time.Time `json:"at"`
	Who string    `json:"who,omitempty"`
	Why string    `json:"why,omitempty"`
}

func newTuningJSON(t durable.Tuning) tuningJSON {
	j := tuningJSON{PoolSize: t.PoolSize, CatchUp: t.CatchUp, Limits: []tunedKindJSON{}, By: make(map[text]setJSON)}
	for _, l := range t.Limits {
		j.Limits = append(j.Limits, tunedKindJSON{text(l.Kind), l.Here, l.Cluster})
	}
	for key, by := range t.By {
		j.By[text(key)] = setJSON{by.At.UTC(), by.Who, by.Why}
	}
	return j
}
