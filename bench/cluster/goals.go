// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
)

// A goal is a target for durable/postgres on a quiet machine with two cores.
type goal struct {
	title   string
	c       string // the case
	figure  string
	sign    string // ≥ or ≤
	target  float64
	unit    string
	minus   float64 // subtracted from the figure before it is judged and printed
	against bool    // the ratio to River is meaningful
}

// goals are in the order of the table.
var goals = []goal{
	{"adds a second, 64 callers", "add-64", "ops", "≥", 10_000, "", 0, true},
	{"adds a second, 1,024 callers", "add-1024", "ops", "≥", 50_000, "", 0, true},
	{"removes by key a second", "remove", "ops", "≥", 30_000, "", 0, true},
	{"5,000 runs a second over two nodes: lateness, p99", "sustained", "p99_ms", "≤", 19, " ms", 0, true},
	{"the same: CPU of PostgreSQL a task", "sustained", "server_us", "≤", 75, " µs", 0, true},
	{"the same: CPU of the nodes a task", "sustained", "nodes_us", "≤", 40, " µs", 0, true},
	{"the same: lateness, p50", "sustained", "p50_ms", "≤", 1.5, " ms", 0, true},
	{"500 runs a second: CPU of PostgreSQL a task", "seldom", "server_us", "≤", 150, " µs", 0, true},
	{"the same: CPU of the nodes a task", "seldom", "nodes_us", "≤", 200, " µs", 0, true},
	{"the same: lateness, p50", "seldom", "p50_ms", "≤", 1.5, " ms", 0, true},
	{"the same: lateness, p99", "seldom", "p99_ms", "≤", 12, " ms", 0, true},
	{"the same with a limit: CPU of PostgreSQL a task", limitedCase, "server_us", "≤", 250, " µs", 0, false},
	{"500 tasks that repeat each second: CPU of PostgreSQL a run", repeatsCase, "server_us", "≤", 300, " µs", 0, false},
	{"the same: transactions a run", repeatsCase, "commits", "≤", 0.5, "", 0, false},
	{"a client's tasks at once, in batches: start, p50", "at-once", "batch_p50_ms", "≤", 15, " ms", 0, true},
	{"the same: start, p99", "at-once", "batch_p99_ms", "≤", 60, " ms", 0, true},
	{"one by one: start, p50", "at-once", "one_p50_ms", "≤", 30, " ms", 0, true},
	{"the same: start, p99", "at-once", "one_p99_ms", "≤", 70, " ms", 0, true},
	{"from rest: start, p50", "at-once", "rest_p50_ms", "≤", 6, " ms", 0, true},
	{"the same: start, p99", "at-once", "rest_p99_ms", "≤", 20, " ms", 0, true},
	{"ten idle nodes and a task a second: statements a task", tenCase, "statements", "≤", 12, "", 0, false},
	{"three idle nodes: CPU of PostgreSQL", "idle", "server_pct", "≤", 0.8, " %", 0, true},
	{"three idle nodes: transactions a second", "idle", "commits", "≤", 8, "", 0, true},
	{"the same under a forgotten transaction: CPU of PostgreSQL", "idle", "server_ratio", "≤", 1.2, " ×", 0, false},
	{"the same under a forgotten transaction: an add, p50", "idle", "add_ratio", "≤", 1.2, " ×", 0, false},
	{"burst of 20,000, to the last start", "burst", "took_ms", "≤", 1500, " ms", 0, true},
	{"the same: CPU of PostgreSQL a task", "burst", "server_us", "≤", 30, " µs", 0, true},
	{"a killed node's tasks elsewhere, past the lease", "take-over", "kill_wait_ms", "≤", 500, " ms", ms(lease), false},
	{"a stopped node's tasks elsewhere", "take-over", "stop_wait_ms", "≤", 100, " ms", 0, true},
	{"AddTaskTx: latency of the commit, one caller", "tx", "one_ratio", "≤", 1.5, " ×", 0, true},
	{"AddTaskTx: commits a second, 16 callers", "tx", "many_ops_ratio", "≤", 1.3, " ×", 0, true},
	{"a claim under an open transaction and dead rows", "claim", "dead_p50_ms", "≤", 5, " ms", 0, true},
	{"the same, against claims without", "claim", "ratio", "≤", 2, " ×", 0, true},
	{"a history of runs: CPU of PostgreSQL a task, against none", historyCase, "server_ratio", "≤", 1.2, " ×", 0, false},
	{"the same with 500 runs a second of 300 kinds", historyCase, "slow_server_ratio", "≤", 1.2, " ×", 0, false},
	{"many waiting tasks against few: an add, 64 callers", tenMillion, "add_us_ratio", "≤", 1.2, " ×", 0, false},
	{"many waiting tasks against few: a claim", tenMillion, "claim_p50_ms_ratio", "≤", 1.2, " ×", 0, false},
	{"many waiting tasks against few: lateness, p50", tenMillion, "p50_ms_ratio", "≤", 1.2, " ×", 0, false},
	{"many waiting tasks against few: lateness, p99", tenMillion, "p99_ms_ratio", "≤", 1.2, " ×", 0, false},
	{"many waiting tasks against few: a count", tenMillion, "count_ms_ratio", "≤", 1.2, " ×", 0, false},
	{"runs among many waiting tasks: growth of the table or an index", tenMillion, "many_grown", "≤", 2, " ×", 0, false},
	{"tasks lost among many waiting tasks", tenMillion, "many_cycle_lost", "≤", 0, "", 0, false},
	{"tasks lost, sustained", "sustained", "lost", "≤", 0, "", 0, false},
	{"tasks early, sustained", "sustained", "early", "≤", 0, "", 0, false},
	{"tasks lost, burst", "burst", "lost", "≤", 0, "", 0, false},
	{"tasks early, burst", "burst", "early", "≤", 0, "", 0, false},
	{"tasks lost, node killed", "take-over", "kill_lost", "≤", 0, "", 0, false},
	{"tasks early, node killed", "take-over", "kill_early", "≤", 0, "", 0, false},
	{"tasks lost, node stopped", "take-over", "stop_lost", "≤", 0, "", 0, false},
	{"tasks early, node stopped", "take-over", "stop_early", "≤", 0, "", 0, false},
}

// met reports whether the value meets the goal.
func (g goal) met(v float64) bool {
	if g.sign == "≥" {
		return v >= g.target
	}
	return v <= g.target
}

// row is the line of a goal in the table.
func (g goal) row(m medians) string {
	v := m.of(g.c, ours, g.figure) - g.minus
	verdict := "**no**"
	switch {
	case math.IsNaN(v):
		verdict = "not measured"
	case g.met(v):
		verdict = "yes"
	}
	row := fmt.Sprintf("| %s | %s %s%s | %s |", g.title, g.sign, number(g.target), g.unit, withUnit(v, g.unit))
	for _, p := range []string{riverName, polledName} {
		theirs := m.of(g.c, p, g.figure)
		row += fmt.Sprintf(" %s |", withUnit(theirs-g.minus, g.unit))
		if p != riverName {
			continue
		}
		ratio := math.NaN()
		if g.against {
			ratio = v / theirs
		}
		row += fmt.Sprintf(" %s |", number(ratio))
	}
	return row + " " + verdict + " |\n"
}
