// SPDX-License-Identifier: MIT

package metrics

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed581295f1/timewheel/durable"
)

var (
	kindTasks = prometheus.NewDesc("timewheel_durable_kind_tasks",
		"Tasks of a kind: scheduled, those whose last attempt did not fail; failing, those whose last attempt failed, "+
			"and that run again; parked; paused.",
		[]string{"kind", "state"}, nil)
	kindUnhandled = prometheus.NewDesc("timewheel_durable_kind_unhandled_seconds",
		"How long the oldest due task has waited of a kind that no node handles; 0 if a node does, or none is due.",
		[]string{"kind"}, nil)
	kindPaused = prometheus.NewDesc("timewheel_durable_kind_paused",
		"1 if a kind is paused, or all kinds are; else 0.", []string{"kind"}, nil)
	kindPausedFor = prometheus.NewDesc("timewheel_durable_kind_paused_seconds",
		"How long ago a kind was paused, or all kinds were; 0 if it is not paused.", []string{"kind"}, nil)
	kindPausedDue = prometheus.NewDesc("timewheel_durable_kind_paused_due_tasks",
		"Overdue tasks of a kind that is paused; 0 if it is not paused.", []string{"kind"}, nil)
	kindLimited = prometheus.NewDesc("timewheel_durable_kind_runs_limited",
		"Due runs that are in memory here and wait for a limit of their kind; 0 while it is paused.", []string{"kind"}, nil)
	kindBacklog = prometheus.NewDesc("timewheel_durable_kind_backlog_tasks",
		"Overdue tasks of a kind that have not been started.", []string{"kind"}, nil)
	kindBacklogAge = prometheus.NewDesc("timewheel_durable_kind_backlog_age_seconds",
		"How long the oldest overdue task of a kind has been due; 0 if there is none.", []string{"kind"}, nil)
	kindRunning = prometheus.NewDesc("timewheel_durable_kind_runs_running",
		"Runs of a kind that are in progress here.", []string{"kind"}, nil)
	kindLongest = prometheus.NewDesc("timewheel_durable_kind_longest_run_seconds",
		"How long the longest run of a kind that is in progress here has taken; 0 if there is none.", []string{"kind"}, nil)
	kindStarted   = newKindDesc("started", "Calls of the handler of a kind.")
	kindSucceeded = newKindDesc("succeeded",
		"Calls of the handler of a kind that returned nil and were acknowledged.")
	kindFailed    = newKindDesc("failed", "Calls of the handler of a kind that failed.")
	kindCancelled = newKindDesc("cancelled",
		"Calls of the handler of a kind that failed after an operator cancelled them. They count as failed, too.")
	kindParked  = newKindDesc("parked", "Runs of a kind that ended with their task parked.")
	kindGivenUp = newKindDesc("given_up",
		"Runs of repeating tasks of a kind that were given up after their last attempt.")
	kindGivenUpAgain = newKindDesc("given_up_again",
		"Runs of repeating tasks of a kind that were given up, as was the run of the task before.")

	kindDescs = []*prometheus.Desc{kindTasks, kindUnhandled, kindPaused, kindPausedFor, kindPausedDue, kindLimited, kindBacklog,
		kindBacklogAge, kindRunning, kindLongest, kindStarted, kindSucceeded, kindFailed, kindCancelled, kindParked,
		kindGivenUp, kindGivenUpAgain}
)

func newKindDesc(what, help string) *prometheus.Desc {
	return prometheus.NewDesc("timewheel_durable_kind_runs_"+what+"_total", help, []string{"kind"}, nil)
}

// kindAccounts holds the numbers for the kinds that share a label value. A nil field is unknown.
type kindAccounts struct {
	runs      *durable.KindInfo
	behind    *durable.KindCatchUp
	tasks     *durable.KindCounts
	unhandled *time.Duration
	paused    bool // one of the kinds is paused
	pausedFor time.Duration
	pausedDue *int
}

// collectKinds collects the numbers by kind. It omits numbers that are not available in time.
func (c *schedulerCollector) collectKinds(ctx context.Context, metrics chan<- prometheus.Metric) {
	all := make(map[string]*kindAccounts)
	of := func(kind string) *kindAccounts {
		label := c.kinds.get(kind)
		if all[label] == nil {
			all[label] = &kindAccounts{}
		}
		return all[label]
	}
	handled, cut := c.of.Kinds(), false
	for _, k := range handled {
		a := of(k.Kind)
		a.paused = a.paused || k.Paused
		if a.runs == nil {
			a.runs = &durable.KindInfo{}
		}
		a.runs.Started += k.Started
		a.runs.Succeeded += k.Succeeded
		a.runs.Failed += k.Failed
		a.runs.Cancelled += k.Cancelled
		a.runs.ParkedTotal += k.ParkedTotal
		a.runs.GivenUp += k.GivenUp
		a.runs.GivenUpAgain += k.GivenUpAgain
		a.runs.Waiting += k.Waiting
		a.runs.Running += k.Running
		a.runs.Longest = max(a.runs.Longest, k.Longest)
	}
	behind, err := c.of.CatchUp(ctx)
	due := newDueTasks(behind, err)
	if err == nil {
		for _, k := range handled {
			if !behind.Cut { // with a cut count, some kinds may not be counted yet
				of(k.Kind).add(durable.KindCatchUp{})
			}
		}
		cut = behind.Cut
		for _, k := range behind.Kinds {
			of(k.Kind).add(k)
		}
	}
	census, err := c.of.Counts(ctx)
	if err == nil {
		for _, k := range census.Kinds {
			a := of(k.Kind)
			a.paused = a.paused || k.KindPaused
			if !census.Whole {
				continue
			}
			if a.tasks == nil {
				a.tasks = &durable.KindCounts{}
			}
			a.tasks.Tasks += k.Tasks
			a.tasks.Failing += k.Failing
			a.tasks.Parked += k.Parked
			a.tasks.Paused += k.Paused
		}
	}
	if pauses, err := c.of.Paused(ctx); err == nil {
		for kind, age := range c.unhandled(ctx, handled, census.Kinds, due, pauses) {
			if a := of(kind); a.unhandled == nil || age > *a.unhandled {
				a.unhandled = &age
			}
		}
		for _, kind := range pausedKinds(pauses, census.Kinds) {
			a := of(kind)
			a.paused, a.pausedFor = true, max(a.pausedFor, pausedFor(pauses, kind))
			if k, known := due.of(kind); known {
				if a.pausedDue == nil {
					a.pausedDue = new(int)
				}
				*a.pausedDue += k.Left
			}
		}
	}
	for label, a := range all {
		a.collect(label, cut, metrics)
	}
}

// add adds the overdue tasks of a kind.
func (a *kindAccounts) add(k durable.KindCatchUp) {
	if a.behind == nil {
		a.behind = &durable.KindCatchUp{}
	}
	if a.behind.Left == 0 || k.Oldest.Before(a.behind.Oldest) {
		a.behind.Oldest = k.Oldest
	}
	a.behind.Left += k.Left
}

// collect collects the known numbers. If cut is true, each kind may have more overdue tasks than were counted, but the
// oldest ones are known.
func (a *kindAccounts) collect(label string, cut bool, metrics chan<- prometheus.Metric) {
	if a.runs != nil {
		for desc, n := range map[*prometheus.Desc]uint64{
			kindStarted: a.runs.Started, kindSucceeded: a.runs.Succeeded, kindFailed: a.runs.Failed,
			kindCancelled: a.runs.Cancelled, kindParked: a.runs.ParkedTotal, kindGivenUp: a.runs.GivenUp, kindGivenUpAgain: a.runs.GivenUpAgain,
		} {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), label)
		}
		for desc, value := range map[*prometheus.Desc]float64{
			kindLimited: float64(a.runs.Waiting), kindRunning: float64(a.runs.Running),
			kindLongest: a.runs.Longest.Seconds(),
		} {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
		}
	}
	if a.behind != nil {
		if !cut {
			metrics <- prometheus.MustNewConstMetric(kindBacklog, prometheus.GaugeValue, float64(a.behind.Left), label)
		}
		age := 0.0
		if a.behind.Left > 0 {
			age = max(time.Since(a.behind.Oldest).Seconds(), 0)
		}
		metrics <- prometheus.MustNewConstMetric(kindBacklogAge, prometheus.GaugeValue, age, label)
	}
	if a.tasks != nil {
		for state, n := range map[string]int{
			"scheduled": a.tasks.Tasks - a.tasks.Failing - a.tasks.Paused, "failing": a.tasks.Failing - a.tasks.Parked,
			"parked": a.tasks.Parked, "paused": a.tasks.Paused,
		} {
			metrics <- prometheus.MustNewConstMetric(kindTasks, prometheus.GaugeValue, float64(n), label, state)
		}
	}
	paused := 0.0
	if a.paused {
		paused = 1
	}
	metrics <- prometheus.MustNewConstMetric(kindPaused, prometheus.GaugeValue, paused, label)
	metrics <- prometheus.MustNewConstMetric(kindPausedFor, prometheus.GaugeValue, a.pausedFor.Seconds(), label)
	if a.pausedDue == nil && !a.paused {
		a.pausedDue = new(int)
	}
	if a.pausedDue != nil {
		metrics <- prometheus.MustNewConstMetric(kindPausedDue, prometheus.GaugeValue, float64(*a.pausedDue), label)
	}
	if a.unhandled != nil {
		metrics <- prometheus.MustNewConstMetric(
			kindUnhandled, prometheus.GaugeValue, a.unhandled.Seconds(), label)
	}
}

// pausedKinds returns the paused kinds. If all are paused, it returns the kinds with tasks.
func pausedKinds(p durable.Pauses, tasks []durable.KindCounts) []string {
	if !p.All {
		return p.Kinds
	}
	var kinds []string
	for _, k := range tasks {
		kinds = append(kinds, k.Kind)
	}
	return kinds
}

// pausedFor returns how long ago the kind was paused, or all kinds were.
func pausedFor(p durable.Pauses, kind string) (d time.Duration) {
	for _, of := range []string{kind, ""} {
		if by, known := p.By[of]; known {
			d = max(d, time.Since(by.At))
		}
	}
	return d
}

// A dueTasks holds the last count of overdue tasks, by kind.
type dueTasks struct {
	left  map[string]durable.KindCatchUp
	whole bool // all have been counted
}

func newDueTasks(of durable.CatchUp, err error) dueTasks {
	d := dueTasks{make(map[string]durable.KindCatchUp), err == nil && !of.Cut}
	for _, k := range slices.Concat(of.Kinds, of.Others) {
		d.left[k.Kind] = k
	}
	return d
}

// of returns the overdue tasks of a kind. It reports false while they are not counted.
func (d dueTasks) of(kind string) (durable.KindCatchUp, bool) {
	k, found := d.left[kind]
	return k, found || d.whole
}

// unhandled returns, for each kind without a handler on any node, how long the oldest due task has waited. The value is
// 0 for handled kinds and for paused kinds. It omits kinds for which the wait is unknown, and omits all kinds until
// every node has reported all kinds that it handles.
func (c *schedulerCollector) unhandled(ctx context.Context, here []durable.KindInfo, tasks []durable.KindCounts,
	due dueTasks, pauses durable.Pauses,
) map[string]time.Duration {
	nodes, err := c.of.Nodes(ctx)
	if err != nil {
		return nil
	}
	drained := slices.ContainsFunc(nodes, func(n durable.NodeInfo) bool { return n.Self && n.Drained })
	handled, paused := make(map[string]bool), make(map[string]bool)
	for _, k := range here {
		handled[k.Kind], paused[k.Kind] = !drained, k.Paused
	}
	for _, n := range nodes {
		if !n.HasAllKinds() {
			return nil
		}
		for _, kind := range n.Kinds {
			handled[kind] = true
		}
	}
	ages := make(map[string]time.Duration)
	for _, k := range tasks {
		paused[k.Kind] = paused[k.Kind] || k.KindPaused
		if _, known := due.of(k.Kind); known || handled[k.Kind] || paused[k.Kind] || pauses.Has(k.Kind) || k.Tasks == k.Parked+k.Paused {
			ages[k.Kind] = 0
		}
	}
	for kind, k := range due.left {
		if !handled[kind] && !paused[kind] && !pauses.Has(kind) {
			ages[kind] = max(time.Since(k.Oldest), 0)
		}
	}
	return ages
}
