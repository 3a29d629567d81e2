// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strings"

	"github.com/seed581295f1/timewheel/bench/internal/rounds"
)

// A column is a figure of a table.
type column struct{ title, figure string }

// A section is the table of a case.
type section struct {
	c, title, about string
	columns         []column
}

// counts are the last columns of the verbs.
var counts = []column{{"a second", "ops"}, {"tasks lost", "lost"}, {"tasks too many", "extra"}}

// loads are the columns of the cases in which nodes run tasks at a rate.
var loads = []column{
	{"p50, ms", "p50_ms"}, {"p99, ms", "p99_ms"}, {"most, ms", "most_ms"}, {"to the last start, ms", "took_ms"},
	{"CPU of the nodes, µs a task", "nodes_us"}, {"CPU of PostgreSQL, µs a task", "server_us"},
	{"lost", "lost"}, {"early", "early"}, {"run again", "duplicates"}, {"left in the table", "left"},
}

func sections(size sizes) []section {
	return []section{
		{
			"add-64", "Adds, 64 callers", "One task an add, with " + rounds.Thousands(size.live) + " far tasks in the table. " +
				"River: Insert, unique by its arguments.", counts,
		},
		{"add-1024", "Adds, 1,024 callers", "The same with more callers.", counts},
		{
			"add-batch", "Adds in batches", fmt.Sprintf("Tasks a second, %s an add, from %d callers. River: InsertMany.",
				rounds.Thousands(batch), batchers), counts,
		},
		{"remove", "Removes", "By key, from 1,024 callers. River: JobCancel by id.", counts},
		{
			"sustained", "Sustained runs", fmt.Sprintf("%s tasks fall due in a second for %s, over two nodes. "+
				"Lateness is the start of the handler after the due time. The last columns count tasks.",
				rounds.Thousands(size.rate), size.sustain), loads,
		},
		{
			"burst", "A burst", rounds.Thousands(size.burst) + " tasks are due at one instant, over two nodes.", loads,
		},
		{
			"take-over", "Take-over", fmt.Sprintf("%d tasks fall due in a second, each runs for %s, over two nodes. "+
				"One node is stopped gracefully, or killed with SIGKILL. The longest wait is that of any task: from "+
				"the end of the node or the due time, whichever is later, to its last start. The lease is %s.\n\n"+
				"River's victim is its leader, the node that makes jobs available when they are due. River has no "+
				"lease. By default it runs a job that a killed node was running again after an hour: such jobs count "+
				"as lost here, %s after the last was due.\n\n"+
				"The connections of a killed process end at once. That is why the polled table is so quick here. If "+
				"the machine or the network failed, its rows would stay locked until the server's TCP keepalive gave "+
				"up, two hours by default.", takeOverRate, takeOverWork, lease, size.patience),
			[]column{
				{"stopped: longest wait, ms", "stop_wait_ms"},
				{"lost", "stop_lost"}, {"early", "stop_early"}, {"run again", "stop_duplicates"},
				{"killed: longest wait, ms", "kill_wait_ms"},
				{"lost", "kill_lost"}, {"early", "kill_early"}, {"run again", "kill_duplicates"},
			},
		},
		{
			"tx", "A task in the user's transaction", fmt.Sprintf("The transaction inserts one row. The task is "+
				"added with AddTaskTx, River's InsertTx, or an insert into the polled table. Slices with and without "+
				"it alternate. One caller: the median latency. %d callers: commits a second.", committers),
			[]column{
				{"one caller without, ms", "one_plain_ms"}, {"with, ms", "one_with_ms"}, {"ratio", "one_ratio"},
				{"16 callers without, a second", "many_plain_ops"}, {"with, a second", "many_with_ops"},
				{"ratio", "many_ops_ratio"}, {"tasks lost", "lost"}, {"tasks too many", "extra"},
			},
		},
		{
			"claim", "Claims under a transaction held open", fmt.Sprintf("The statement that takes %d due tasks, "+
				"as a node makes it, before and after %s tasks have been added, claimed and ended while a "+
				"transaction with a snapshot is open. Buffers are those that a claim reads. The last columns are the "+
				"claim of what is overdue, from the beginning.",
				claimSize, rounds.Thousands(size.dead)),
			[]column{
				{"without, p50, ms", "fresh_p50_ms"}, {"p99, ms", "fresh_p99_ms"}, {"buffers", "fresh_buffers"},
				{"with, p50, ms", "dead_p50_ms"}, {"p99, ms", "dead_p99_ms"}, {"buffers", "dead_buffers"},
				{"ratio", "ratio"}, {"overdue, p50, ms", "overdue_p50_ms"}, {"buffers", "overdue_buffers"},
			},
		},
		{
			"held", "Nodes under a transaction held open", fmt.Sprintf("%d tasks fall due in a second, over two nodes, "+
				"before and after the nodes have run %s tasks while a transaction with a snapshot is open.",
				heldRate, rounds.Thousands(size.held)),
			[]column{
				{"before, p50, ms", "fresh_p50_ms"}, {"p99, ms", "fresh_p99_ms"},
				{"CPU of PostgreSQL, µs a task", "fresh_server_us"},
				{"after, p50, ms", "dead_p50_ms"}, {"p99, ms", "dead_p99_ms"},
				{"CPU of PostgreSQL, µs a task", "dead_server_us"}, {"lost", "dead_lost"}, {"early", "dead_early"},
			},
		},
	}
}

// table returns the section, or nothing if nothing of it was measured.
func (s section) table(m medians) string {
	var rows strings.Builder
	for _, p := range peerNames {
		if _, ok := m.figures[s.c+"/"+p]; !ok {
			continue
		}
		fmt.Fprintf(&rows, "| %s |", p)
		for _, c := range s.columns {
			fmt.Fprintf(&rows, " %s |", number(m.of(s.c, p, c.figure)))
		}
		rows.WriteByte('\n')
	}
	if rows.Len() == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n| peer |", s.title, s.about)
	for _, c := range s.columns {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	fmt.Fprintf(&b, "\n|:---|%s\n%s\n", strings.Repeat("---:|", len(s.columns)), rows.String())
	return b.String()
}
