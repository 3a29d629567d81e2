// SPDX-License-Identifier: MIT

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

// A rule is an alert and its expression.
type rule struct{ alert, expr string }

// readRules reads the alerting rules.
func readRules(name string) (all []rule, err error) {
	groups, errs := rulefmt.ParseFile(name, false)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all = append(all, rule{r.Alert, r.Expr})
		}
	}
	return all, nil
}

// A scraper keeps the metrics of the processes, as Prometheus would.
type scraper struct {
	db     *tsdb.DB
	engine *promql.Engine
	rules  []rule
}

// scrapeEvery is the pause between two scrapes. A process that has not been scraped for the duration stale counts as
// gone.
const (
	scrapeEvery = time.Second
	stale       = 4 * time.Second
)

func newScraper(dir string, rules []rule) (*scraper, error) {
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	return &scraper{db, promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: stale,
	}), rules}, err
}

// metricsOf returns the metrics of the process at the address, and their content type.
func metricsOf(ctx context.Context, client *http.Client, addr string) (text []byte, form string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	return text, resp.Header.Get("Content-Type"), err
}

// scrape appends the metrics of the process at the address.
func (s *scraper) scrape(ctx context.Context, client *http.Client, addr, instance string) error {
	text, form, err := metricsOf(ctx, client, addr)
	if err != nil {
		return err
	}
	parser, err := textparse.New(text, form, "text/plain", false, false, false,
		labels.NewSymbolTable())
	if err != nil {
		return err
	}
	app, now := s.db.Appender(ctx), time.Now().UnixMilli()
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return app.Commit()
		}
		if err != nil {
			return errors.Join(err, app.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var exported labels.Labels
		parser.Labels(&exported)
		_, _, value := parser.Series()
		full := labels.NewBuilder(exported).Set("job", source).Set("instance", instance).Labels()
		if _, err := app.Append(0, full, now, value); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
}

// holds reports whether the expression has a result now.
func (s *scraper) holds(ctx context.Context, expr string) (bool, error) {
	q, err := s.engine.NewInstantQuery(ctx, s.db, nil, expr, time.Now())
	if err != nil {
		return false, fmt.Errorf("%s: %w", expr, err)
	}
	defer q.Close()
	got, err := q.Exec(ctx).Vector()
	return len(got) > 0, err
}

// alerts returns the alerts whose expression has a result now. For some alerts it must persist for a while before they
// fire.
func (s *scraper) alerts(ctx context.Context) (all []string, err error) {
	for _, r := range s.rules {
		is, err := s.holds(ctx, r.expr)
		if err != nil {
			return nil, err
		}
		if is {
			all = append(all, r.alert)
		}
	}
	return all, nil
}
