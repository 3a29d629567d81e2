// SPDX-License-Identifier: MIT

// Package grafana tests the Grafana dashboard and the alert rules of package metrics. It is in a separate module
// because it needs Prometheus' query engine.
package grafana

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

type dashboard struct {
	Panels []struct {
		Title       string
		Description string
		Type        string
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("../../metrics/grafana/timewheel.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// all replaces the variables as Grafana does when all values are chosen.
var all = strings.NewReplacer(
	"$job", ".*", "$instance", ".*", "$wheel", ".*", "$scheduler", ".*", "$__rate_interval", "1m")

// Prometheus' own engine runs every query of the dashboard against the real metrics of two wheels and four schedulers.
// Each query has an answer for every one of them that has its metrics, and every existing metric is used in some query.
func TestDashboard_everyQueryHasAnAnswer(t *testing.T) {
	d := readDashboard(t)
	scrapes := record(t, 5, steady)
	for kind, native := range map[string]bool{"classic": false, "native": true} {
		t.Run(kind, func(t *testing.T) { answers(t, d, scrapes, native) })
	}
}

func answers(t *testing.T, d dashboard, scrapes []scrape, native bool) {
	db := store(t, scrapes, native)
	end := scrapes[len(scrapes)-1].at
	names, asked := scrapes[len(scrapes)-1].names(), make(map[string]bool)
	engine := newEngine()
	queries := 0
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Description == "" {
			t.Errorf("the panel %q is not described", p.Title)
		}
		for _, target := range p.Targets {
			queries++
			expr := all.Replace(target.Expr)
			q, err := engine.NewInstantQuery(context.Background(), db, nil, expr, end)
			if err != nil {
				t.Errorf("%s: %s: %v", p.Title, expr, err)
				continue
			}
			v, err := q.Exec(context.Background()).Vector()
			var got, want []string
			for _, s := range v {
				got = add(got, s.Metric.Get("wheel")+s.Metric.Get("scheduler"))
				if s.F != s.F {
					t.Errorf("%s: %s is not a number", p.Title, expr)
				}
			}
			q.Close()
			for name, of := range names {
				if strings.Contains(expr, name) {
					asked[name] = true
					for _, source := range of {
						want = add(want, source)
					}
				}
			}
			if err != nil || len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("%s: %s: %v, answers for %q, want them for %q", p.Title, expr, err, got, want)
			}
		}
	}
	for name := range names {
		if !asked[name] {
			t.Errorf("%s is in no panel", name)
		}
	}
	if queries < 50 {
		t.Errorf("there are %d queries", queries)
	}
}

// Every query filters by every variable for which its metrics have a label.
func TestDashboard_everyQueryFiltersByTheVariables(t *testing.T) {
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			parsed, err := parser.ParseExpr(all.Replace(target.Expr))
			if err != nil {
				t.Fatalf("%s: %v", target.Expr, err)
			}
			parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
				selector, ok := node.(*parser.VectorSelector)
				if !ok {
					return nil
				}
				want := []string{"job", "instance", "wheel"}
				if strings.HasPrefix(selector.Name, "timewheel_durable_") {
					want[2] = "scheduler"
				}
				for _, label := range want {
					if !slices.ContainsFunc(selector.LabelMatchers, func(m *labels.Matcher) bool {
						return m.Name == label && m.Type == labels.MatchRegexp
					}) {
						t.Errorf("%s: %s is not filtered by %s", p.Title, selector, label)
					}
				}
				return nil
			})
		}
	}
}

// The variables offer the scraped values, each restricted by the choices for earlier variables.
func TestDashboard_variables_offerWhatThereIs(t *testing.T) {
	scrapes := record(t, 1, steady)
	db, engine := store(t, scrapes, false), newEngine()
	want := map[string][]string{
		"job": {job}, "instance": {instance}, "wheel": {"a", "b"},
		"scheduler": {"a", "b", "node a", "node b"},
	}
	definition := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	offers := func(name, text string, choice *strings.Replacer) []string {
		m := definition.FindStringSubmatch(choice.Replace(text))
		if m == nil || m[2] != name {
			t.Fatalf("the values of %s are those of %q", name, text)
		}
		q, err := engine.NewInstantQuery(context.Background(), db, nil, m[1], scrapes[0].at)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		v, err := q.Exec(context.Background()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		var values []string
		for _, s := range v {
			if value := s.Metric.Get(name); value != "" && !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
		slices.Sort(values)
		return values
	}
	for _, v := range readDashboard(t).Templating.List {
		if v.Name == "datasource" {
			continue
		}
		if got := offers(v.Name, v.Definition, all); !slices.Equal(got, want[v.Name]) {
			t.Errorf("the variable %s offers %q, want %q", v.Name, got, want[v.Name])
		}
		if v.Name != "job" {
			other := strings.NewReplacer("$job", "another", "$instance", ".*")
			if got := offers(v.Name, v.Definition, other); got != nil {
				t.Errorf("of another job the variable %s offers %q", v.Name, got)
			}
		}
		delete(want, v.Name)
	}
	if len(want) > 0 {
		t.Errorf("there is no variable for %v", want)
	}
}
