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
			"seldom", "Fewer runs", fmt.Sprintf("%d tasks fall due in a second. All else is as in the table before.", seldomRate), loads,
		},
		{
			limitedCase, "Fewer runs of a kind with a limit", fmt.Sprintf("The same tasks, of a kind with WithClusterConcurrency(%d), which they never reach.",
				clusterLimit), loads,
		},
		{
			repeatsCase, "Repeating tasks", fmt.Sprintf("%d tasks that repeat each second, over two nodes, for %s.", repeating, size.sustain),
			[]column{{"CPU of PostgreSQL, µs a run", "server_us"}, {"transactions a run", "commits"}, {"CPU of the nodes, µs a run", "nodes_us"}},
		},
		{
			"at-once", "Tasks of a client, due at once", fmt.Sprintf("A client adds %d tasks a second to run at once, %d at a time, then as many "+
				"one by one, and then %d a second one by one, each for %s. Two nodes run them. The time is from before the add to the start.",
				seldomRate, batchAtOnce, restRate, size.sustain),
			[]column{
				{"batches: p50, ms", "batch_p50_ms"}, {"p99, ms", "batch_p99_ms"}, {"CPU of PostgreSQL, µs a task", "batch_server_us"},
				{"one by one: p50, ms", "one_p50_ms"}, {"p99, ms", "one_p99_ms"}, {"CPU of PostgreSQL, µs a task", "one_server_us"},
				{"from rest: p50, ms", "rest_p50_ms"}, {"p99, ms", "rest_p99_ms"}, {"CPU of PostgreSQL, µs a task", "rest_server_us"},
				{"lost", "one_lost"}, {"run again", "one_duplicates"},
			},
		},
		{
			tenCase, "Ten nodes and a task a second", "A client adds a task a second to run at once, and ten nodes have nothing else to do. The " +
				"statements of the same nodes without tasks are left out.",
			[]column{{"statements a task", "statements"}, {"without tasks, a second", "idle"}},
		},
		{
			"idle", "Nothing to do", fmt.Sprintf("Three nodes for %s, with %s far tasks in the table: CPU in percent of a core, and "+
				"transactions a second. An add is from one caller. The last columns are the same under a transaction that was "+
				"forgotten, after %s renewals of the lease of each node.", size.idle, rounds.Thousands(size.live),
				rounds.Thousands(idleRenewals)),
			[]column{
				{"CPU of PostgreSQL, %", "server_pct"}, {"CPU of the nodes, %", "nodes_pct"}, {"transactions", "commits"},
				{"add, p50, ms", "add_p50_ms"}, {"forgotten: CPU of PostgreSQL, %", "held_server_pct"}, {"ratio", "server_ratio"},
				{"transactions", "held_commits"}, {"add, p50, ms", "held_add_p50_ms"}, {"ratio", "add_ratio"},
			},
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
				"it alternate. One caller: the median latency. %d callers: commits a second. SELECT 1 is the ratio with that "+
				"statement in the place of the task: one more round trip costs as much, whatever it does.", committers),
			[]column{
				{"one caller without, ms", "one_plain_ms"}, {"with, ms", "one_with_ms"}, {"ratio", "one_ratio"},
				{"SELECT 1", "one_empty_ratio"},
				{"16 callers without, a second", "many_plain_ops"}, {"with, a second", "many_with_ops"},
				{"ratio", "many_ops_ratio"}, {"SELECT 1", "many_empty_ops_ratio"}, {"tasks lost", "lost"},
				{"tasks too many", "extra"},
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
		{
			historyCase, "A history of runs", fmt.Sprintf("The load of the sustained runs, without a history of the kind and with one of the "+
				"last %s attempts (WithHistory). Slow is the load of fewer runs, of %d kinds. Each is on a server of its own. The size is "+
				"that of the table of the notes, in which nodes write the history and delete the surplus.",
				rounds.Thousands(keptRuns), slowKinds),
			[]column{
				{"without: CPU of PostgreSQL, µs a task", "plain_server_us"}, {"with", "kept_server_us"}, {"ratio", "server_ratio"},
				{"without: CPU of the nodes, µs a task", "plain_nodes_us"}, {"with", "kept_nodes_us"}, {"ratio", "nodes_ratio"},
				{"without: lateness, p99, ms", "plain_p99_ms"}, {"with", "kept_p99_ms"}, {"with: size, MB", "kept_notes_mb"},
				{"slow, without: CPU of PostgreSQL, µs a task", "slow_plain_server_us"}, {"with", "slow_kept_server_us"},
				{"ratio", "slow_server_ratio"}, {"with: size, MB", "slow_kept_notes_mb"},
			},
		},
		{
			tenMillion, "Many waiting tasks", fmt.Sprintf("%s far tasks are in one table (few) and %s in another (many), each on a "+
				"server of its own. They were copied in, vacuumed and written to the disk, and both fall due within the same "+
				"time. A count is that of all tasks by kind, and a claim takes %d due tasks. An add is of one task, from 64 "+
				"callers. These alternate between the servers. Then %s tasks fall due in a second for %s, over two nodes.",
				rounds.Thousands(size.few), rounds.Thousands(size.many), claimSize, rounds.Thousands(manyRate), size.sustain),
			[]column{
				{"few: adds a second", "few_add_ops"}, {"many", "many_add_ops"}, {"time, ratio", "add_us_ratio"},
				{"few: claim, p50, ms", "few_claim_p50_ms"}, {"many", "many_claim_p50_ms"}, {"ratio", "claim_p50_ms_ratio"},
				{"few: lateness, p50, ms", "few_p50_ms"}, {"many", "many_p50_ms"}, {"ratio", "p50_ms_ratio"},
				{"few: lateness, p99, ms", "few_p99_ms"}, {"many", "many_p99_ms"}, {"ratio", "p99_ms_ratio"},
				{"few: CPU of PostgreSQL, µs a task", "few_server_us"}, {"many", "many_server_us"}, {"ratio", "server_us_ratio"},
				{"few: count, ms", "few_count_ms"}, {"many", "many_count_ms"}, {"ratio", "count_ms_ratio"},
				{"lost", "many_lost"}, {"early", "many_early"},
			},
		},
		{
			tenMillion, "The size of a waiting task", "Bytes on the disk, divided by the number of tasks. All indexes but two are empty " +
				"while the tasks wait.",
			[]column{
				{"few: all", "few_bytes_total"}, {"table", "few_bytes_task"}, {"task_pkey", "few_bytes_task_pkey"},
				{"task_free", "few_bytes_task_free"},
				{"many: all", "many_bytes_total"}, {"table", "many_bytes_task"}, {"task_pkey", "many_bytes_task_pkey"},
				{"task_free", "many_bytes_task_free"},
			},
		},
		{
			tenMillion, "Runs among many waiting tasks", fmt.Sprintf("%s tasks are added that are due at once, as fast as two nodes run "+
				"them, with %s far tasks in the table. Autovacuum has the settings of the migrations and is "+
				"waited for after half of the tasks, for %s at most. Sizes are in MB: before, the greatest of those that are read "+
				"each second, and after the last run.",
				rounds.Thousands(size.cycles), rounds.Thousands(size.many), size.vacuum),
			[]column{
				{"runs a second", "many_cycle_ops"}, {"autovacuums", "many_vacuums"},
				{"table: before", "many_before_task"}, {"most", "many_most_task"}, {"after", "many_after_task"},
				{"task_pkey: before", "many_before_task_pkey"}, {"most", "many_most_task_pkey"}, {"after", "many_after_task_pkey"},
				{"task_free: before", "many_before_task_free"}, {"most", "many_most_task_free"}, {"after", "many_after_task_free"},
				{"task_held: before", "many_before_task_held"}, {"most", "many_most_task_held"}, {"after", "many_after_task_held"},
				{"most to before", "many_grown"}, {"lost", "many_cycle_lost"}, {"run again", "many_cycle_duplicates"},
			},
		},
	}
}

// table returns the section, or "" if none of it was measured.
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
