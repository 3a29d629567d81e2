// SPDX-License-Identifier: MIT

package grafana

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

const rulesFile = "../../metrics/prometheus/timewheel.yml"

// loadRules returns the alerting rules on a database, and their groups.
func loadRules(t *testing.T, on storage.Storage) ([]*rules.AlertingRule, []*rules.Group) {
	t.Helper()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(newEngine(), on),
		Appendable: on,
		Queryable:  on,
		Context:    context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(),
	})
	groups, errs := manager.LoadGroups(every, labels.EmptyLabels(), "", nil, false, rulesFile)
	if errs != nil {
		t.Fatal(errs)
	}
	var alerting []*rules.AlertingRule
	for _, g := range groups {
		for _, r := range g.Rules() {
			alerting = append(alerting, r.(*rules.AlertingRule))
		}
	}
	return alerting, slices.Collect(maps.Values(groups))
}

// A history contains when each alert fired, in order, and its first message.
type history struct {
	at   map[string][]time.Duration // times since the beginning
	said map[string]*rules.Alert
}

// evaluate evaluates the rules every 15 seconds, as Prometheus does.
func evaluate(t *testing.T, on storage.Storage, begin time.Time, d time.Duration) history {
	t.Helper()
	h := history{make(map[string][]time.Duration), make(map[string]*rules.Alert)}
	alerting, groups := loadRules(t, on)
	for since := time.Duration(0); since <= d; since += every {
		for _, g := range groups {
			g.Eval(context.Background(), begin.Add(since))
		}
		for _, r := range alerting {
			if err := r.LastError(); err != nil {
				t.Fatalf("%s: %v", r.Name(), err)
			}
			for _, a := range r.ActiveAlerts() {
				if a.State == rules.StateFiring {
					h.at[r.Name()] = append(h.at[r.Name()], since)
					if h.said[r.Name()] == nil {
						h.said[r.Name()] = a
					}
				}
			}
		}
	}
	return h
}

func (h history) names() []string { return slices.Sorted(maps.Keys(h.at)) }

// A trial contains series, one per line: the name and its values every 15 seconds, in the notation of promtool.
type trial struct {
	fires string
	after time.Duration // when the alert fires first
	quiet []string      // series that do not make it fire
}

var trials = map[string]trial{
	"TimewheelOldestWait": {
		fires: `
			timewheel_oldest_wait_seconds 0x4 15+15x20
			timewheel_stopped             0x25`,
		after: 5*every + 30*time.Second,
		quiet: []string{`
			timewheel_oldest_wait_seconds 10x40
			timewheel_stopped             0x40`, `
			timewheel_oldest_wait_seconds 0x4 15 30 0x20
			timewheel_stopped             0x30`, `
			timewheel_oldest_wait_seconds 0x4 15+15x20
			timewheel_stopped             0x4 1x20`,
		},
	},
	"TimewheelNothingStarts": {
		fires: `
			timewheel_runs_started_total 0+5x4 20x40
			timewheel_runs_waiting       0x4   1x40
			timewheel_stopped            0x45`,
		after: 4*every + 2*time.Minute - every + time.Minute,
		quiet: []string{`
			timewheel_runs_started_total 0+1x40
			timewheel_runs_waiting       500x40
			timewheel_stopped            0x40`, `
			timewheel_runs_started_total 20x40
			timewheel_runs_waiting       0x40
			timewheel_stopped            0x40`, `
			timewheel_runs_started_total 20x60
			timewheel_runs_waiting       1x2 0 1x2 0 1x2 0 1x2 0 1x2 0x40
			timewheel_stopped            0x40`, `
			timewheel_runs_started_total 20x40
			timewheel_runs_waiting       500x40
			timewheel_stopped            1x40`,
		},
	},
	"TimewheelRunsMissed": {
		fires: `timewheel_runs_missed_total 0x10 1x60`, after: 11 * every,
		quiet: []string{`timewheel_runs_missed_total 7x60`},
	},
	"TimewheelPanics": {
		fires: `timewheel_runs_panicked_total 0x10 1x60`, after: 11 * every,
		quiet: []string{`timewheel_runs_panicked_total 7x60`},
	},
	"TimewheelWorkersBusy": {
		fires: `
			timewheel_runs_running 0x4 8x40
			timewheel_workers      8x44`,
		after: 5*every + 5*time.Minute,
		quiet: []string{`
			timewheel_runs_running 7x60
			timewheel_workers      8x60`, `
			timewheel_runs_running 8x18 7 8x18 7x60
			timewheel_workers      8x60`, `
			timewheel_runs_running 8x60
			timewheel_workers      0x60`,
		},
	},
	"TimewheelStopped": {
		fires: `timewheel_stopped 0x4 1x20`, after: 5*every + 2*time.Minute,
		quiet: []string{`timewheel_stopped 1x6 0x60`},
	},
	"TimewheelDurableStoreFailed": {
		fires: `timewheel_durable_store_failed 0x4 1x4`, after: 5 * every,
		quiet: []string{`timewheel_durable_store_failed 0x8`},
	},
	"TimewheelDurableOldestWait": {
		fires: `timewheel_durable_oldest_wait_seconds 0x4 15+15x20`, after: 5*every + 30*time.Second,
		quiet: []string{
			`timewheel_durable_oldest_wait_seconds 10x40`,
			`timewheel_durable_oldest_wait_seconds 0x4 15 30 0x20`,
		},
	},
	"TimewheelDurableNothingStarts": {
		fires: `
			timewheel_durable_runs_started_total  0+5x4 20x40
			timewheel_durable_oldest_wait_seconds 0x4   1+15x40`,
		after: 4*every + 2*time.Minute - every + time.Minute,
		quiet: []string{`
			timewheel_durable_runs_started_total  0+1x40
			timewheel_durable_oldest_wait_seconds 500x40`, `
			timewheel_durable_runs_started_total  20x40
			timewheel_durable_oldest_wait_seconds 0x40`,
		},
	},
	"TimewheelDurableTasksParked": {
		fires: `timewheel_durable_tasks_parked 0x4 3x20`, after: 5*every + time.Minute,
		quiet: []string{`timewheel_durable_tasks_parked 0x20`, `timewheel_durable_tasks_parked 1x2 0x60`},
	},
	"TimewheelDurableTasksUnhandled": {
		fires: `timewheel_durable_tasks_unhandled 0x4 3x40`, after: 5*every + 5*time.Minute,
		quiet: []string{`timewheel_durable_tasks_unhandled 0x40`, `timewheel_durable_tasks_unhandled 3x18 0x60`},
	},
	"TimewheelDurableGivenUpAgain": {
		fires: `timewheel_durable_kind_runs_given_up_again_total{kind="report"} 0x10 1x60`, after: 11 * every,
		quiet: []string{
			`timewheel_durable_kind_runs_given_up_again_total{kind="report"} 7x60`,
			`timewheel_durable_kind_runs_given_up_total{kind="report"} 0x10 1x60`,
		},
	},
	"TimewheelDurableParkedGrows": {
		fires: `timewheel_durable_kind_tasks{kind="mail",state="parked"} 0x4 20x60`, after: 5*every + 5*time.Minute,
		quiet: []string{
			`timewheel_durable_kind_tasks{kind="mail",state="parked"} 100x60`,
			`timewheel_durable_kind_tasks{kind="mail",state="parked"} 0x4 8x60`,
			`timewheel_durable_kind_tasks{kind="mail",state="parked"} 1000-10x60`,
			`timewheel_durable_kind_tasks{kind="mail",state="scheduled"} 0+100x60`,
		},
	},
	"TimewheelDurableAttemptsFail": {
		fires: `
			timewheel_durable_kind_runs_failed_total{kind="mail"}    0x4 11+11x60
			timewheel_durable_kind_runs_cancelled_total{kind="mail"} 0x4 1+1x60
			timewheel_durable_kind_runs_succeeded_total{kind="mail"} 0x4 9+9x60`,
		after: 5*every + 5*time.Minute,
		quiet: []string{`
			timewheel_durable_kind_runs_failed_total{kind="mail"}    0+10x60
			timewheel_durable_kind_runs_cancelled_total{kind="mail"} 0x64
			timewheel_durable_kind_runs_succeeded_total{kind="mail"} 0+10x60`, `
			timewheel_durable_kind_runs_failed_total{kind="mail"}    0+10x60
			timewheel_durable_kind_runs_cancelled_total{kind="mail"} 0+10x60
			timewheel_durable_kind_runs_succeeded_total{kind="mail"} 0+1x60`, `
			timewheel_durable_kind_runs_failed_total{kind="mail"}    0x4 3x60
			timewheel_durable_kind_runs_cancelled_total{kind="mail"} 0x64
			timewheel_durable_kind_runs_succeeded_total{kind="mail"} 0x64`,
		},
	},
	"TimewheelDurableRunHangs": {
		fires: `timewheel_durable_kind_longest_run_seconds{kind="mail"} 3540+15x60`, after: 5*every + 5*time.Minute,
		quiet: []string{
			`timewheel_durable_kind_longest_run_seconds{kind="mail"} 0+15x60`,
			`timewheel_durable_kind_longest_run_seconds{kind="mail"} 3540+15x10 0x60`,
		},
	},
	"TimewheelDurableDescriptors": {
		fires: `
			timewheel_durable_workers 8x64
			process_open_fds          0x4 820x60
			process_max_fds           1024x64`,
		after: 5*every + 5*time.Minute,
		quiet: []string{`
			timewheel_durable_workers 8x64
			process_open_fds          819x64
			process_max_fds           1024x64`, `
			process_open_fds          1000x64
			process_max_fds           1024x64`,
		},
	},
	"TimewheelDurableBacklogGrows": {
		fires: `
			timewheel_durable_kind_backlog_tasks{kind="mail"}       100x60
			timewheel_durable_kind_backlog_age_seconds{kind="mail"} 60+15x60
			timewheel_durable_kind_backlog_tasks{kind="sms"}        5000-20x60
			timewheel_durable_kind_backlog_age_seconds{kind="sms"}  9000-15x60
			timewheel_durable_kind_runs_limited{kind="sms"}         20x60`,
		after: time.Minute + 10*time.Minute,
		quiet: []string{`
			timewheel_durable_kind_backlog_tasks{kind="mail"}       1000-10x60
			timewheel_durable_kind_backlog_age_seconds{kind="mail"} 60+15x60`, `
			timewheel_durable_kind_backlog_tasks{kind="mail"}       5000x60
			timewheel_durable_kind_backlog_age_seconds{kind="mail"} 9000-15x60`, `
			timewheel_durable_kind_backlog_tasks{kind="mail"}       0x60
			timewheel_durable_kind_backlog_age_seconds{kind="mail"} 0x60`, `
			timewheel_durable_kind_backlog_tasks{kind="mail"}       100x60
			timewheel_durable_kind_backlog_age_seconds{kind="mail"} 60+15x60
			timewheel_durable_kind_runs_limited{kind="mail"}        20x60`, `
			timewheel_durable_kind_backlog_tasks{kind="mail"}       0x4 50x20 0x60
			timewheel_durable_kind_backlog_age_seconds{kind="mail"} 0x4 0+15x20 0x60`, `
			timewheel_durable_kind_backlog_tasks{kind="mail"}       100x60
			timewheel_durable_kind_backlog_age_seconds{kind="mail"} 60+15x60
			timewheel_durable_kind_backlog_tasks{kind="sms"}        5000-20x60
			timewheel_durable_kind_backlog_age_seconds{kind="sms"}  9000-15x60`,
		},
	},
	"TimewheelDurableKindUnhandled": {
		fires: `timewheel_durable_kind_unhandled_seconds{kind="mail"} 0x4 15+15x60`,
		after: 9*every + 5*time.Minute,
		quiet: []string{
			`timewheel_durable_kind_unhandled_seconds{kind="mail"} 0x60`,
			`timewheel_durable_kind_unhandled_seconds{kind="mail"} 0x4 15+15x20 0x60`, `
			timewheel_durable_kind_unhandled_seconds{kind="mail"} 0x4 15+15x60
			timewheel_durable_tasks_unhandled                     0x4 1x60`,
		},
	},
	"TimewheelDurableKindBehind": {
		fires: `
			timewheel_durable_kind_backlog_age_seconds{kind="mail"} 3540+15x60
			timewheel_durable_kind_runs_limited{kind="mail"}        1x2 0x2 1x60`,
		after: 5*every + 10*time.Minute,
		quiet: []string{
			`timewheel_durable_kind_backlog_age_seconds{kind="mail"} 0+15x60`,
			`timewheel_durable_kind_backlog_age_seconds{kind="mail"} 3540+15x20 0x60`,
		},
	},
	"TimewheelDurableKindPaused": {
		fires: `
			timewheel_durable_kind_paused_seconds{kind="mail"}   3540+15x60
			timewheel_durable_kind_paused_due_tasks{kind="mail"} 3x60`,
		after: 5*every + 5*time.Minute,
		quiet: []string{`
			timewheel_durable_kind_paused_seconds{kind="mail"}   7200+15x60
			timewheel_durable_kind_paused_due_tasks{kind="mail"} 0x60`, `
			timewheel_durable_kind_paused_seconds{kind="mail"}   0+15x60
			timewheel_durable_kind_paused_due_tasks{kind="mail"} 3x60`,
		},
	},
	"TimewheelDurableEngineAway": {
		fires: `timewheel_durable_engine_away 0x4 1x20`, after: 5*every + time.Minute,
		quiet: []string{`timewheel_durable_engine_away 0x20`, `timewheel_durable_engine_away 1x2 0x3 1x2 0x20`},
	},
	"TimewheelDurableLeaseLate": {
		fires: `
			timewheel_durable_lease_seconds     5x40
			timewheel_durable_lease_age_seconds 1.25x4 3.5x40
			timewheel_durable_engine_away       0x40`,
		after: 5*every + 30*time.Second,
		quiet: []string{`
			timewheel_durable_lease_seconds     5x40
			timewheel_durable_lease_age_seconds 2.9x40
			timewheel_durable_engine_away       0x40`, `
			timewheel_durable_lease_seconds     5x40
			timewheel_durable_lease_age_seconds 1.25x4 4x1 1.25x4 4x1 1.25x40
			timewheel_durable_engine_away       0x60`, `
			timewheel_durable_lease_seconds     5x40
			timewheel_durable_lease_age_seconds 0+15x40
			timewheel_durable_engine_away       1x60`,
		},
	},
	"TimewheelDurableEndsRefused": {
		fires: `
			timewheel_durable_acknowledgements_refused_total 0+1x60
			timewheel_durable_runs_started_total             0+10x60`,
		after: every + 2*time.Minute,
		quiet: []string{`
			timewheel_durable_acknowledgements_refused_total 0+1x60
			timewheel_durable_runs_started_total             0+100x60`, `
			timewheel_durable_acknowledgements_refused_total 7x60
			timewheel_durable_runs_started_total             100x60`,
		},
	},
	"TimewheelDurableVacuumHeldBack": {
		fires: `timewheel_durable_engine_oldest_transaction_seconds 0x4 601+15x40`, after: 5*every + 5*time.Minute,
		quiet: []string{
			`timewheel_durable_engine_oldest_transaction_seconds 600x60`,
			`timewheel_durable_engine_oldest_transaction_seconds 0+60x20 0x60`,
		},
	},
	"TimewheelDurableDeadRows": {
		fires: `timewheel_durable_engine_dead_rows 0x4 1000001x60`, after: 5*every + 10*time.Minute,
		quiet: []string{
			`timewheel_durable_engine_dead_rows 1000000x60`,
			`timewheel_durable_engine_dead_rows 0x4 2000000x38 0x60`,
		},
	},
	"TimewheelDurableAutovacuumOff": {
		fires: `timewheel_durable_engine_autovacuum 1x4 0x60`, after: 5*every + 10*time.Minute,
		quiet: []string{`timewheel_durable_engine_autovacuum 1x60`, `timewheel_durable_engine_autovacuum 1x4 0x38 1x60`},
	},
	"TimewheelDurableUnflushed": {
		fires: `timewheel_durable_engine_flushed 1x4 0x40`, after: 5*every + 5*time.Minute,
		quiet: []string{`timewheel_durable_engine_flushed 1x60`},
	},
	"TimewheelDurableServerRefused": {
		fires: `timewheel_durable_engine_servers_refused_total 0x4 1x40`, after: 5 * every,
		quiet: []string{
			`timewheel_durable_engine_servers_refused_total 0x60`,
			`timewheel_durable_engine_servers_refused_total 7x60`,
		},
	},
	"TimewheelServeCertificate": { // 14 days have 1,209,600 seconds, and the series begin at 1970
		fires: `timewheel_serve_certificate_expires_timestamp_seconds 1209660x60`, after: 5*every + 10*time.Minute,
		quiet: []string{
			`timewheel_serve_certificate_expires_timestamp_seconds 1210500x60`,
			`timewheel_serve_certificate_expires_timestamp_seconds 1209660x20 5000000x40`,
		},
	},
}

// onSeries evaluates the rules for a quarter of an hour on the series of a trial.
func onSeries(t *testing.T, series string) history {
	t.Helper()
	load := fmt.Sprintf("load %s\n", every)
	for line := range strings.Lines(strings.TrimSpace(series)) {
		name, values, _ := strings.Cut(strings.TrimSpace(line), " ")
		label := "wheel"
		if strings.HasPrefix(name, "timewheel_durable_") {
			label = "scheduler"
		} else if strings.HasPrefix(name, "timewheel_serve_") {
			label = "field"
		}
		name, own, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{") // the labels of the series, if it has any
		load += fmt.Sprintf("  %s{job=%q,instance=%q,%s=\"orders\",%s} %s\n",
			name, job, instance, label, own, strings.TrimSpace(values))
	}
	on := promqltest.LoadedStorage(t, load)
	defer on.Close()
	return evaluate(t, on, time.Unix(0, 0), 15*time.Minute)
}

func TestAlerts_fireAndAreQuiet(t *testing.T) {
	rest := maps.Clone(trials)
	alerting, _ := loadRules(t, promqltest.LoadedStorage(t, ""))
	for _, r := range alerting {
		trial, ok := trials[r.Name()]
		if !ok || len(trial.quiet) == 0 {
			t.Errorf("%s has no trial in which it fires, or none in which it does not", r.Name())
		}
		delete(rest, r.Name())
		h := onSeries(t, trial.fires)
		if at := h.at[r.Name()]; len(at) == 0 || at[0] != trial.after {
			t.Errorf("%s fires at %v, want %v first", r.Name(), at, trial.after)
		}
		for _, series := range trial.quiet {
			if at := onSeries(t, series).at[r.Name()]; at != nil {
				t.Errorf("%s fires at %v on %s", r.Name(), at, series)
			}
		}
	}
	if len(rest) > 0 {
		t.Errorf("there are no alerts %v", slices.Collect(maps.Keys(rest)))
	}
}

// Each alert names its place and the action to take, and its templates are right.
func TestAlerts_sayWhatToDo(t *testing.T) {
	for name, trial := range trials {
		a := onSeries(t, trial.fires).said[name]
		if a == nil {
			t.Errorf("%s does not fire", name)
			continue
		}
		summary, description := a.Annotations.Get("summary"), a.Annotations.Get("description")
		if !strings.Contains(summary, " orders ") || !strings.Contains(summary, " "+instance) {
			t.Errorf("%s does not say where: %s", name, summary)
		}
		if len(description) < 150 || strings.Contains(summary+description, "{{") ||
			strings.Contains(summary+description, "error expanding") {
			t.Errorf("%s does not say what to do: %s: %s", name, summary, description)
		}
		if s := a.Labels.Get("severity"); s != "warning" && s != "critical" {
			t.Errorf("%s has the severity %q", name, s)
		}
	}
}

// The README has a row for each alert, with its severity and how long it waits.
func TestAlerts_areInTheReadme(t *testing.T) {
	text, err := os.ReadFile("../../metrics/README.md")
	if err != nil {
		t.Fatal(err)
	}
	alerting, _ := loadRules(t, promqltest.LoadedStorage(t, ""))
	for _, r := range alerting {
		begins := fmt.Sprintf("| `%s` | %s | ", r.Name(), r.Labels().Get("severity"))
		waits := map[time.Duration]string{
			0: "at once", 30 * time.Second: "30 s",
			time.Minute: "1 min", 2 * time.Minute: "2 min", 5 * time.Minute: "5 min", 10 * time.Minute: "10 min",
		}[r.HoldDuration()]
		row := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(begins) + `.* \| ` + waits + ` \|$`)
		if waits == "" || !row.Match(text) {
			t.Errorf("the README has no row that begins with %q and ends with %q", begins, waits)
		}
	}
	if rows := strings.Count(string(text), "\n| `Timewheel"); rows != len(alerting) {
		t.Errorf("the README has %d rows for %d alerts", rows, len(alerting))
	}
}

// The rules, and the sentences of their annotations, name only metrics that exist.
func TestAlerts_nameWhatIsExported(t *testing.T) {
	names := record(t, 1, steady)[0].names()
	for _, name := range []string{"process_open_fds", "process_max_fds"} { // of client_golang, and the same in each process
		names[name] = nil
	}
	names["timewheel_serve_certificate_expires_timestamp_seconds"] = nil // of the command, which has a test of it
	alerting, _ := loadRules(t, promqltest.LoadedStorage(t, ""))
	for _, r := range alerting {
		parser.Inspect(r.Query(), func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				if _, ok := names[s.Name]; !ok {
					t.Errorf("%s asks for %s, which is not exported", r.Name(), s.Name)
				}
			}
			return nil
		})
		for word := range strings.FieldsFuncSeq(r.Annotations().Get("description"), func(c rune) bool {
			return c != '_' && (c < 'a' || c > 'z')
		}) {
			if _, ok := names[word]; strings.HasPrefix(word, "timewheel_") && !ok {
				t.Errorf("%s names %s, which is not exported", r.Name(), word)
			}
		}
	}
}

// The incident: at the first minute 508 tasks are due, the first 8 hang and take all workers, and 500 wait. At the
// eighth minute the service on which they hang answers.
func TestAlerts_onAnIncident(t *testing.T) {
	const stuck, released = time.Minute, 8 * time.Minute
	scrapes := record(t, 60, func(t *testing.T, registry *prometheus.Registry) {
		tw := newWheel(t, registry, "orders", 8)
		answer := make(chan struct{})
		time.AfterFunc(released, func() { close(answer) })
		for i := range 508 {
			addTask(t, tw, timewheel.Task{
				Key: fmt.Sprint(i), Delay: stuck, Job: func(*timewheel.Task) { <-answer },
			})
		}
	})
	for _, s := range scrapes[5:8] { // nothing has ended yet
		for name, want := range map[string]float64{
			"timewheel_runs_waiting": 500, "timewheel_runs_running": 8, "timewheel_workers": 8,
			"timewheel_runs_started_total": 8, "timewheel_stopped": 0,
		} {
			if got := s.value(t, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		age := s.at.Sub(scrapes[0].at.Add(stuck - every)).Seconds()
		for _, name := range []string{"timewheel_oldest_wait_seconds", "timewheel_longest_run_seconds"} {
			if got := s.value(t, name); got < age-1 || got > age {
				t.Errorf("%s is %v, want %v to %v", name, got, age-1, age)
			}
		}
	}
	h := onScrapes(t, scrapes)
	for name, after := range map[string]time.Duration{ // as in the README
		"TimewheelOldestWait":    45 * time.Second,
		"TimewheelNothingStarts": 2*time.Minute + 45*time.Second,
		"TimewheelWorkersBusy":   5 * time.Minute,
	} {
		at := h.at[name]
		if len(at) == 0 || at[0] != stuck+after || at[len(at)-1] >= released {
			t.Errorf("%s fires at %v, want it %v after %v, and not from %v on", name, at, after, stuck, released)
		}
		delete(h.at, name)
	}
	if len(h.at) > 0 {
		t.Errorf("these fire as well: %v", h.at)
	}
}

// The same on two nodes: their 16 workers hang, each node gives back the tasks that it cannot start, and no node has
// waiting runs.
func TestAlerts_onTwoStuckNodes(t *testing.T) {
	const stuck, released = time.Minute, 8 * time.Minute
	scrapes := record(t, 60, func(t *testing.T, registry *prometheus.Registry) {
		answer, engine := make(chan struct{}), memory.New().Shared()
		time.AfterFunc(released, func() { close(answer) })
		hangs := map[string]durable.Handler{"hang": func(context.Context, durable.Run) error { <-answer; return nil }}
		for _, name := range []string{"orders-1", "orders-2"} {
			s, err := durable.New(context.Background(), engine, durable.WithLogger(testkit.Quiet()),
				durable.WithNodeName(name), durable.WithPoolSize(8))
			if err != nil {
				t.Fatal(err)
			}
			begin(t, registry, name, s, hangs)
			for i := range 254 {
				addDurable(t, s, durable.Task{Key: fmt.Sprint(name, i), Kind: "hang", Delay: stuck})
			}
		}
	})
	h := onScrapes(t, scrapes)
	for name, after := range map[string]time.Duration{
		"TimewheelDurableOldestWait":    45 * time.Second,
		"TimewheelDurableNothingStarts": 2*time.Minute + 45*time.Second,
	} {
		at := make(map[time.Duration]int) // and of how many nodes
		for _, d := range h.at[name] {
			at[d]++
		}
		// A run that starts at the instant of a scrape may be counted by the next one.
		if all := h.at[name]; len(all) == 0 || at[stuck+after+every] != 2 || all[0] != stuck+after || all[len(all)-1] >= released {
			t.Errorf("%s fires at %v, want it for both nodes %v after %v, and not from %v on", name, at, after, stuck, released)
		}
	}
	for _, s := range scrapes[6:30] {
		for name, want := range map[string]float64{"timewheel_durable_runs_waiting": 0, "timewheel_durable_kind_runs_running": 8} {
			if got := s.value(t, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		for _, name := range []string{"timewheel_durable_oldest_wait_seconds", "timewheel_durable_kind_longest_run_seconds"} {
			if got, want := s.value(t, name), s.at.Sub(scrapes[0].at.Add(stuck-every)).Seconds(); got < want-2 || got > want {
				t.Errorf("%s is %v, want about %v", name, got, want)
			}
		}
	}
}

// value returns the value of the first series of the metric.
func (s scrape) value(t *testing.T, name string) float64 {
	t.Helper()
	for _, f := range s.families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// onScrapes evaluates the rules over the time of the scrapes, from the program's start.
func onScrapes(t *testing.T, scrapes []scrape) history {
	t.Helper()
	begin := scrapes[0].at.Add(-every)
	return evaluate(t, store(t, scrapes, true), begin, scrapes[len(scrapes)-1].at.Sub(begin))
}

// pauseDue runs a scheduler on an engine of its own and a node. Each has due tasks of a handled and an unhandled kind, both paused.
func pauseDue(t *testing.T, registry *prometheus.Registry, pause func(*durable.Scheduler, context.Context) error) {
	works := func(context.Context, durable.Run) error { return nil }
	kinds := map[string]durable.Handler{"kind": works}
	own, engine, quiet := memory.New(), memory.New().Shared(), prometheus.NewRegistry()
	newNode(t, registry, "orders", engine, kinds)
	other := newNode(t, quiet, "orders", engine, kinds)
	for _, s := range []*durable.Scheduler{newScheduler(t, quiet, "shop", own.Engine(), kinds), other} {
		if err := s.Handle("gone", works); err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			kind := []string{"kind", "gone"}[i%2]
			addDurable(t, s, durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: time.Duration(i+1) * 10 * time.Second})
		}
		if err := pause(s, context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	newScheduler(t, registry, "shop", own.Clone().Engine(), kinds)
	if err := other.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// For half an hour more tasks of a kind with a limit fall due than may run. Other kinds are as quick as usual, so no
// alert fires. Without the metric of the limit the growing backlog would make one fire.
func TestAlerts_onALimitedKind(t *testing.T) {
	scrapes := record(t, 120, func(t *testing.T, registry *prometheus.Registry) {
		works := func(context.Context, durable.Run) error { return nil }
		kinds := map[string]durable.Handler{"kind": works}
		for _, s := range []*durable.Scheduler{
			newScheduler(t, registry, "shop", memory.New().Engine(), kinds), newNode(t, registry, "orders", memory.New().Shared(), kinds),
		} {
			if err := s.Handle("limited", works, durable.WithClusterRate(1, 5*time.Minute, 1)); err != nil {
				t.Fatal(err)
			}
			addDurable(t, s, durable.Task{Key: "k", Kind: "kind", Interval: time.Second, Times: durable.Forever})
			for i := range 90 {
				delay := time.Duration(i+1) * 20 * time.Second
				addDurable(t, s, durable.Task{Key: fmt.Sprint(i), Kind: "limited", Delay: delay})
			}
		}
	})
	if h := onScrapes(t, scrapes); len(h.at) > 0 {
		t.Errorf("the alerts %v fire", h.at)
	}
	limited := 0
	for i, s := range scrapes {
		kept := s.families[:0:0]
		for _, f := range s.families {
			if f.GetName() != "timewheel_durable_kind_runs_limited" {
				kept = append(kept, f)
				continue
			}
			for _, m := range f.GetMetric() {
				limited += int(m.GetGauge().GetValue())
			}
		}
		scrapes[i].families = kept
	}
	if got := onScrapes(t, scrapes).names(); limited == 0 || !slices.Equal(got, []string{"TimewheelDurableBacklogGrows"}) {
		t.Errorf("without the metric the alerts %q fire", got)
	}
}

// While a kind waits for its limit, there are too few workers for another kind, which has no limit. The alert names the
// other kind.
func TestAlerts_onABacklogNextToALimitedKind(t *testing.T) {
	scrapes := record(t, 120, func(t *testing.T, registry *prometheus.Registry) {
		s, err := durable.New(context.Background(), memory.New().Shared(),
			durable.WithPoolSize(1), durable.WithLogger(testkit.Quiet()))
		if err != nil {
			t.Fatal(err)
		}
		begin(t, registry, "orders", s, map[string]durable.Handler{
			"slow": func(ctx context.Context, _ durable.Run) error {
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
				return nil
			},
		})
		limited := func(context.Context, durable.Run) error { return nil }
		if err := s.Handle("limited", limited, durable.WithRate(1, 5*time.Minute, 1)); err != nil {
			t.Fatal(err)
		}
		for i := range 90 {
			for _, kind := range []string{"limited", "slow"} {
				delay := time.Duration(i+1) * 20 * time.Second
				addDurable(t, s, durable.Task{Key: fmt.Sprint(kind, i), Kind: kind, Delay: delay})
			}
		}
	})
	const name = "TimewheelDurableBacklogGrows"
	h := onScrapes(t, scrapes)
	if a := h.said[name]; a == nil || a.Labels.Get("kind") != "slow" {
		t.Errorf("the alerts at %v fire, and %s is %v", h.at, name, a)
	}
}

// The metrics of real wheels and schedulers in trouble make exactly these alerts fire.
func TestAlerts_onRecordedTrouble(t *testing.T) {
	nothing := func(*timewheel.Task) {}
	for name, c := range map[string]struct {
		program func(t *testing.T, registry *prometheus.Registry)
		want    []string
	}{
		"none": {steady, nil},
		"a job panics": {func(t *testing.T, registry *prometheus.Registry) {
			tw := newWheel(t, registry, "orders", 8)
			addTask(t, tw, timewheel.Task{
				Key: "k", Delay: time.Minute, Job: func(*timewheel.Task) { panic("on purpose") },
			})
		}, []string{"TimewheelPanics"}},
		"one worker, a slow job and a fast grid": {func(t *testing.T, registry *prometheus.Registry) {
			tw := newWheel(t, registry, "orders", 1)
			addTask(t, tw, timewheel.Task{
				Key: "slow", Delay: time.Minute, Job: func(*timewheel.Task) { time.Sleep(5 * time.Second) },
			})
			addTask(t, tw, timewheel.Task{
				Key: "fast", Interval: time.Second, Times: timewheel.Forever, Job: nothing,
			})
		}, []string{"TimewheelRunsMissed"}},
		"stopped, with runs that wait": {func(t *testing.T, registry *prometheus.Registry) {
			tw := newWheel(t, registry, "orders", 1)
			for _, key := range []string{"runs", "waits"} {
				addTask(t, tw, timewheel.Task{
					Key: key, Delay: time.Minute, Job: func(task *timewheel.Task) { <-task.Context().Done() },
				})
			}
			time.AfterFunc(61*time.Second, tw.Stop)
		}, []string{"TimewheelStopped"}},
		"a handler hangs, and one fails": {func(t *testing.T, registry *prometheus.Registry) {
			s := newScheduler(t, registry, "orders", memory.New().Engine(), map[string]durable.Handler{
				"fail": func(context.Context, durable.Run) error { return errors.New("on purpose") },
				"hang": func(ctx context.Context, _ durable.Run) error { <-ctx.Done(); return ctx.Err() },
			})
			addDurable(t, s, durable.Task{Key: "f", Kind: "fail", Delay: time.Second})
			for i := range 3 {
				addDurable(t, s, durable.Task{Key: fmt.Sprint(i), Kind: "hang", Delay: time.Minute})
			}
		}, []string{"TimewheelDurableNothingStarts", "TimewheelDurableOldestWait", "TimewheelDurableTasksParked"}},
		"all that could wait is paused": {func(t *testing.T, registry *prometheus.Registry) {
			works := map[string]durable.Handler{"kind": func(context.Context, durable.Run) error { return nil }}
			engine, left := memory.New().Shared(), memory.New()
			quiet := prometheus.NewRegistry()
			other := newNode(t, quiet, "orders", engine, map[string]durable.Handler{"gone": works["kind"]})
			before := newScheduler(t, quiet, "shop", left.Engine(), map[string]durable.Handler{"gone": works["kind"]})
			for _, s := range []*durable.Scheduler{
				other, before, newNode(t, registry, "orders", engine, works),
			} {
				kind := s.Kinds()[0].Kind
				for i := range 20 {
					key := fmt.Sprint(kind, i)
					addDurable(t, s, durable.Task{Key: key, Kind: kind, Delay: time.Minute})
					if err := s.Pause(context.Background(), key); err != nil {
						t.Fatal(err)
					}
				}
			}
			newScheduler(t, registry, "shop", left.Clone().Engine(), works)
			if err := other.Shutdown(context.Background()); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"all kinds are paused": {func(t *testing.T, registry *prometheus.Registry) {
			pauseDue(t, registry, func(s *durable.Scheduler, ctx context.Context) error { return s.PauseAll(ctx) })
		}, nil},
		"kinds are paused": {func(t *testing.T, registry *prometheus.Registry) {
			pauseDue(t, registry, func(s *durable.Scheduler, ctx context.Context) error {
				return errors.Join(s.PauseKind(ctx, "kind"), s.PauseKind(ctx, "gone"))
			})
		}, nil},
		"a release forgets a kind": {func(t *testing.T, registry *prometheus.Registry) {
			left := memory.New()
			kinds := map[string]durable.Handler{"kind": func(context.Context, durable.Run) error { return nil }}
			before := newScheduler(t, prometheus.NewRegistry(), "orders", left.Engine(), kinds)
			addDurable(t, before, durable.Task{Key: "k", Kind: "kind", Delay: time.Minute})
			newScheduler(t, registry, "orders", left.Clone().Engine(), nil)
		}, []string{"TimewheelDurableTasksUnhandled"}},
		"all runs of a kind fail": {func(t *testing.T, registry *prometheus.Registry) {
			s := newScheduler(t, registry, "orders", memory.New().Engine(), map[string]durable.Handler{
				"fail": func(context.Context, durable.Run) error { return errors.New("on purpose") },
			})
			for i := range 20 {
				delay := time.Minute + time.Duration(i)*10*time.Second
				addDurable(t, s, durable.Task{Key: fmt.Sprint(i), Kind: "fail", Delay: delay})
			}
		}, []string{"TimewheelDurableAttemptsFail", "TimewheelDurableParkedGrows", "TimewheelDurableTasksParked"}},
		"the engine is away": {func(t *testing.T, registry *prometheus.Registry) {
			link := enginetest.NewLink(memory.New().Shared())
			s := newNode(t, registry, "orders", link, map[string]durable.Handler{
				"kind": func(context.Context, durable.Run) error { return nil },
			})
			addDurable(t, s, durable.Task{Key: "k", Kind: "kind", Interval: time.Second, Times: durable.Forever})
			time.AfterFunc(time.Minute, func() { link.SetDown(true) })
		}, []string{"TimewheelDurableEngineAway"}},
		"no node handles a kind": {func(t *testing.T, registry *prometheus.Registry) {
			engine := memory.New().Shared()
			works := func(context.Context, durable.Run) error { return nil }
			other := newNode(t, prometheus.NewRegistry(), "orders", engine, map[string]durable.Handler{"gone": works})
			addDurable(t, other, durable.Task{Key: "k", Kind: "gone", Delay: time.Minute})
			if err := other.Shutdown(context.Background()); err != nil {
				t.Fatal(err)
			}
			newNode(t, registry, "orders", engine, map[string]durable.Handler{"kind": works})
		}, []string{"TimewheelDurableKindUnhandled"}},
		"tasks are removed while they are running": {func(t *testing.T, registry *prometheus.Registry) {
			var s *durable.Scheduler
			s = newNode(t, registry, "orders", memory.New().Shared(), map[string]durable.Handler{
				"removed": func(ctx context.Context, run durable.Run) error { return s.RemoveTask(ctx, run.Key) },
			})
			for i := range 20 {
				delay := time.Duration(i+1) * 20 * time.Second
				addDurable(t, s, durable.Task{Key: fmt.Sprint(i), Kind: "removed", Delay: delay})
			}
		}, []string{"TimewheelDurableEndsRefused"}},
		"the disk is full": {func(t *testing.T, registry *prometheus.Registry) {
			m := memory.New()
			s := newScheduler(t, registry, "orders", m.Engine(), map[string]durable.Handler{
				"kind": func(context.Context, durable.Run) error { return nil },
			})
			addDurable(t, s, durable.Task{Key: "k", Kind: "kind", Delay: time.Minute})
			m.SetFault(errors.New("no space left on device"))
		}, []string{"TimewheelDurableStoreFailed"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := onScrapes(t, record(t, 40, c.program)).names(); !slices.Equal(got, c.want) {
				t.Errorf("the alerts %q fire, want %q", got, c.want)
			}
		})
	}
}
