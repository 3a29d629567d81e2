// SPDX-License-Identifier: MIT

package figures

import (
	"strings"
	"testing"
)

// A row is a piece of prose with figures. Each # in the text is one of the figures. For a text without #, by contains
// the file and the name of the test, benchmark or program that determines it.
type row struct {
	file, text string
	figures    []figure
	by         string
}

// table returns the checked rows.
func table(t *testing.T) []row {
	t.Helper()
	read := func(name string) source {
		s, err := readSource(root, name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	wheel, cluster, durable := read("bench/RESULTS.md"), read("bench/CLUSTER.md"), read("bench/durable/RESULTS.md")
	testing := read("docs/testing.md")

	const (
		ours, std, russell          = "timewheel", "stdlib-keyed", "russellluo-keyed"
		antlabs, goZero, rfyiamcool = "antlabs-keyed", "go-zero", "rfyiamcool-keyed"
		create, fire                = "Create 1M timers from one goroutine", "1M timers due within 2s"
		burst, add                  = "100k timers due at one instant", "Add one keyed timer with 1M live"
		postgres                    = "durable/postgres"
		disk                        = "durable"
		many                        = "Many waiting tasks"
	)
	early := func(peer string) figure { return wheel.cell(fire, peer, "EARLY").whole() }
	less := func(title, peer, column string) figure { return wheel.ratio(title, peer, column).saved() }
	added := func(how, peer string) value { return durable.cell(how, peer, "a second") }
	rows := []row{
		{file: "README.md", text: "A keyed timer takes # bytes plus its key, where `time.AfterFunc` behind a concurrent map takes #.",
			figures: []figure{wheel.cell(create, ours, "heap each, B").whole(), wheel.cell(create, std, "heap each, B").whole()}},
		{file: "README.md", text: "due within two seconds # ran early and # was lost.",
			figures: []figure{wheel.cell(fire, ours, "EARLY").count(), wheel.cell(fire, ours, "LOST").count()}},
		{file: "README.md", text: "Each of the four other wheels ran between # and # of them early:", figures: []figure{early(rfyiamcool), early(russell)}},
		{file: "README.md", text: "the tests damage a store in # ways.", figures: []figure{testing.find("tries # kinds of damage").whole()}},
		{file: "README.md", text: "its key | # % less | # % less |",
			figures: []figure{less(create, ours, "heap each, B"), less(create, russell, "heap each, B")}},
		{file: "README.md", text: "| a million due within 2 s: processor time to add and fire them | # % less | # % less, # early |",
			figures: []figure{less(fire, ours, "CPU, ms"), less(fire, russell, "CPU, ms"), early(russell)}},
		{file: "README.md", text: "until the last job has run | # % less | # % less, # early |",
			figures: []figure{less(burst, ours, "span, ms"), less(burst, russell, "span, ms"), wheel.cell(burst, russell, "EARLY").whole()}},
		{file: "README.md", text: "with a million live, one goroutine | # % less | # % less |",
			figures: []figure{less(add, ours, "1 producer, ns"), less(add, russell, "1 producer, ns")}},
		{file: "README.md", text: "| create a million | # % less time | # % less time |",
			figures: []figure{less(create, ours, "wall, ms"), less(create, russell, "wall, ms")}},
		{file: "README.md", text: "# on # cores with Go #.",
			figures: []figure{wheel.find("- Rounds: #").rounds(), wheel.find(", # cores,").whole(), wheel.find("- Go: #").digits(2)}},

		{file: "README.md", text: "With **# runs a second, PostgreSQL** uses # % less CPU than with **River**, and the p99 of the lateness is # ms, River's # ms.",
			figures: []figure{
				cluster.find("# tasks fall due in a second for").whole(),
				cluster.cell("Sustained runs", postgres, "CPU of PostgreSQL, µs a task").over(cluster.cell("Sustained runs", "River", "CPU of PostgreSQL, µs a task")).saved(),
				cluster.cell("Sustained runs", postgres, "p99, ms").digits(1), cluster.cell("Sustained runs", "River", "p99, ms").whole(),
			}},
		{file: "README.md", text: "with nothing else to do, a task starts # ms later (p50), River's job # ms:",
			figures: []figure{
				cluster.cell("Tasks of a client, due at once", postgres, "from rest: p50, ms").digits(1),
				cluster.cell("Tasks of a client, due at once", "River", "from rest: p50, ms").digits(1),
			}},

		{file: "docs/comparison.md", text: "| jobs run early, of a million due within 2 s (measured) | # | # | # | # | # | # |",
			figures: []figure{early(ours), early(std), early(russell), early(antlabs), early(goZero), early(rfyiamcool)}},
		{file: "docs/comparison.md", text: "p99 (measured) | # ms | # ms with # a second | about # s, by its polling | about # s, by its polling |",
			figures: []figure{
				durable.cell("lateness", disk, "p99, ms").whole(), cluster.cell("Sustained runs", postgres, "p99, ms").whole(),
				cluster.find("# tasks fall due in a second for").whole(), durable.cell("lateness", "asynq", "p99, ms").per(1000).about(1),
				durable.cell("lateness", "river", "p99, ms").per(1000).about(1),
			}},
		{file: "docs/comparison.md", text: "from 1,024 goroutines (measured) | #, # times asynq's and # times River's in the same run | #, # times River's in the same run | # | # |",
			figures: []figure{
				added("add-1024", disk).about(2), added("add-1024", disk).over(added("add-1024", "asynq")).digits(1),
				added("add-1024", disk).over(added("add-1024", "river")).whole(),
				cluster.cell("Adds, 1,024 callers", postgres, "a second").about(2),
				cluster.cell("Adds, 1,024 callers", postgres, "a second").over(cluster.cell("Adds, 1,024 callers", "River", "a second")).whole(),
				added("add-1024", "asynq").about(2), added("add-1024", "river").about(2),
			}},

		{file: "SECURITY.md", text: "A task takes 64 bytes, some # for its places in the slot and the index, and the key.",
			figures: []figure{wheel.cell(create, ours, "heap each, B").minus(64).whole()}},
		{file: "timewheel/doc.go", text: "A live task takes 64 bytes, plus about # bytes for its entries in the slot and the key map, plus the key itself.",
			figures: []figure{wheel.cell(create, ours, "heap each, B").minus(64).whole()}},
		{file: "timewheel/doc.go", text: "about 70 ms for a million", by: "timewheel/bench_test.go: BenchmarkAllPrefix"},

		{file: "durable/README.md", text: "runs of 20 ms and 100,000 overdue tasks, other tasks are less than 30 ms late, and 99 % of the capacity is used",
			by: "durable/backlog_test.go: TestCatchUp_whatFallsDueNow_isNotDelayed"},
		{file: "durable/README.md", text: "make a seventh as many calls a second with one key", by: "durable/postgres/burst_bench_test.go: BenchmarkBurst"},
		{file: "durable/README.md", text: "25 to 40 bytes of memory a task", by: "durable/internal/fingerprint/fingerprint_test.go: BenchmarkSet"},

		{file: "durable/pebble/README.md", text: "A second it runs # overdue tasks, and adds # from 1,024 callers or # in batches: # and # of what bare Pebble commits.",
			figures: []figure{
				durable.cell("run", disk, "a second").about(2), added("add-1024", disk).about(2), added("add-batch", disk).about(2),
				added("add-1024", disk).over(added("add-1024", "pebble")).digits(2), added("add-batch", disk).over(added("add-batch", "pebble")).digits(2),
			}},

		{file: "durable/postgres/README.md", text: "That is # s for # in memory",
			figures: []figure{
				cluster.cell("Claims under a transaction held open", postgres, "overdue, p50, ms").per(1000).about(1),
				cluster.find("before and after # tasks have been added, claimed").whole(),
			}},
		{file: "durable/postgres/doc.go", text: "A waiting task with a 16-byte key and a 100-byte payload takes about # bytes",
			figures: []figure{cluster.cell("The size of a waiting task", postgres, "many: all").about(1)}},
		{file: "durable/postgres/doc.go", text: "A count takes # times as long",
			figures: []figure{cluster.right(many, postgres, "few: count, ms", 2).about(1)}},
		{file: "durable/postgres/read.go", text: "about # s per million tasks",
			figures: []figure{cluster.right(many, postgres, "few: count, ms", 1).per(10_000).about(1)}},

		{file: "dashboard/doc.go", text: "For a wheel it is 0.15 % with a page open, and 0.03 % without. For a durable scheduler it is " +
			"0.1 % to 0.3 % with a page open, and 0.1 % to 0.6 % without", by: "dashboard/cost_test.go: BenchmarkPage"},
		{file: "dashboard/doc.go", text: "and adds some 100 ns to each run.", by: "dashboard/recorder_test.go: BenchmarkRecorder"},
		{file: "dashboard/attempts.go", text: "and adds some 100 ns to each attempt.", by: "dashboard/recorder_test.go: BenchmarkAttemptRecorder"},
		{file: "dashboard/recorder.go", text: "and adds some 100 ns to each run.", by: "dashboard/recorder_test.go: BenchmarkRecorder"},

		{file: "durable/README.md", text: "It costs less than 0.01 % of a core on PostgreSQL", by: "durable/postgres/operate_bench_test.go: BenchmarkLastHour"},

		{file: "docs/testing.md", text: "A seed takes 20 ms", by: "durable/simulation_test.go: TestSimulation("},
		{file: "docs/testing.md", text: "105,240 kinds of damage: each is reported by `Open` or does no harm",
			by: "durable/pebble/damage_test.go: TestDamage_ofEachFile_isNoticedOrHarmless"},
	}
	return rows
}

// An exception lists figures of a file that were not measured, with the reason.
type exception struct {
	file    string
	figures []string
	why     string
}

func in(file, figures, why string) exception {
	return exception{file, strings.Split(figures, ", "), why}
}

const (
	setting = "settings, limits and bounds of the code"
	example = "examples, or settings to choose from"
	other   = "what another library does"
	sizes   = "computed from the sizes of types and buffers"
	counted = "computed from counts in the same sentence"
)

var exceptions = []exception{
	in("MIGRATING.md", "10 ms, 20 ms, 25 ms", example),
	in("MIGRATING.md", "5 %", other),
	in("SECURITY.md", "256 bytes", setting),
	in("dashboard/attempts.go", "2 MB", sizes),
	in("dashboard/doc.go", "256 bytes", setting),
	in("dashboard/doc.go", "0.12 MB, 0.4 MB, 0.8 MB", sizes),
	in("dashboard/doc.go", "0.4 %, 1 %, 5 %, 100 ms, 150 ms, 15 s, 30 s", setting),
	in("dashboard/recorder.go", "0.8 MB", sizes),
	in("docs/design.md", "25 ms, 50 ms, 100 ms, 250 ms, 15 s", setting),
	in("docs/guarantees.md", "10 ms, 25 ms", example),
	in("docs/serve.md", "128 MB, 175 MB", "twice heapFloor, and the peak of a service under make serve-load"),
	in("docs/testing.md", "3 s, 15 s", setting),
	in("durable/README.md", "50 ms, 75 ms, 100 ms, 250 ms, 0.5 s, 15 s, 30 s, 1 %, 200 bytes, 256 bytes", setting),
	in("durable/doc.go", "50 ms, 75 ms, 100 ms", setting),
	in("durable/limit.go", "20 ms", setting),
	in("durable/operate.go", "5 ms, 150 ms, 15 s, 200 bytes", setting),
	in("durable/options.go", "1 ms, 100 ms, 5 s", setting),
	in("durable/pausekind.go", "100 bytes", setting),
	in("durable/run.go", "256 bytes", setting),
	in("durable/pebble/README.md", "8 MB, 32 MB", setting),
	in("durable/pebble/salvage.go", "128 MB", setting),
	in("durable/pebble/store.go", "8 MB, 32 MB", setting),
	in("durable/postgres/README.md", "50 ms, 100 ms, 10 s, 0.2 s", setting),
	in("durable/postgres/member.go", "15 ms", setting),
	in("durable/postgres/migrate.go", "0.2 s", setting),
	in("durable/postgres/options.go", "63 bytes", setting),
	in("durable/stats.go", "100 µs, 50 ms, 100 ms, 15 s", setting),
	in("examples/orders/README.md", "3 s, 20 s", setting),
	in("metrics/README.md", "1 ms, 1 s, 1.5 s, 10 s, 15 s, 30 s, 45 s, 5 %, 60 %, 80 %, 1.5 times", setting),
	in("otel/README.md", "512 bytes", setting),
	in("test/MUTANTS.md", "75 %, 88 %, 98 %", counted),
	in("timewheel/doc.go", "32 bytes, 60 bytes, 64 bytes, 1,100 bytes", sizes),
	in("timewheel/schedule.go", "8 bytes", sizes),
	in("timewheel/schedule.go", "1 ns", setting),
	in("timewheel/timewheel.go", "100 µs, 1 ms, 1 s", example),
	in("timewheel/timewheeltest/timewheeltest.go", "1 ms, 100 ms", setting),
	in("ttlcache/doc.go", "20 ns, 1 ms", setting), // 2^20 ns
}
