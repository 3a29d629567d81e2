// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/bench/internal/rounds"
)

// medians are the figures of a case and peer over the rounds.
type medians map[string]map[string]float64

func (m medians) of(c, p, figure string) float64 { return m[c+"/"+p][figure] }

func summarize(samples []rounds.Sample) (m medians, failures []string) {
	values, failures := rounds.Collect(samples)
	m = medians{}
	for id, figures := range values {
		m[id] = map[string]float64{}
		for name, v := range figures {
			m[id][name] = rounds.Median(v)
		}
	}
	return m, failures
}

// writeReport writes RESULTS.md into the directory, or prints it if dir is empty.
func writeReport(samples []rounds.Sample, dir string, size sizes) error {
	var to io.Writer = os.Stdout
	if dir != "" {
		f, err := os.Create(filepath.Join(dir, "RESULTS.md"))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		to = f
	}
	w := bufio.NewWriter(to)
	m, failures := summarize(samples)
	fmt.Fprintf(w, `# Benchmark results of package durable

- Machine: %s, %d cores
- Go: %s %s/%s
- Date: %s, revision %s
- Rounds: %d; each figure is the median
- Command: %s
- Versions: %s

Each peer and case runs in a process of its own, on an empty directory. A record is a key of 16 bytes and a
payload of %d; every commit is synced. %s

`, rounds.CPU(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, time.Now().UTC().Format(time.DateOnly), rounds.Revision(),
		rounds.Of(samples), "`"+strings.TrimSpace("cd bench/durable && go run . "+rounds.Arguments())+"`",
		rounds.Versions("github.com/cockroachdb/pebble/v2", "github.com/hibiken/asynq", "github.com/riverqueue/river"), recordLen,
		fmt.Sprintf("%s tasks are live, %s are added.", rounds.Thousands(size.live), rounds.Thousands(size.adds)))
	targets(w, m, size)
	for _, c := range caseNames() {
		table(w, m, c, size)
	}
	if len(failures) > 0 {
		fmt.Fprintf(w, "## What could not be measured\n\n- %s\n", strings.Join(failures, "\n- "))
	}
	return errors.Join(w.Flush(), rounds.Failed(failures))
}

// targets writes a table of the targets and the measured values.
func targets(w io.Writer, m medians, size sizes) {
	fmt.Fprint(w, "## Targets\n\n| case | target | measured | met |\n|:---|:---|:---|:---|\n")
	row := func(name, want, got string, value float64, met bool) {
		answer := "**no**"
		switch {
		case !(value > 0): // or not a number
			got, answer = "–", "–"
		case met:
			answer = "yes"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", name, want, got, answer)
	}
	best := max(m.of("add-1024", ours, "ops"), m.of("add-batch", ours, "ops"))
	row("durable adds a second, batches of 1000 or 1024 callers", "≥ 150,000", rounds.Thousands(int(best)), best, best >= 150_000)
	for _, c := range []string{"add-1024", "add-batch"} {
		ratio := m.of(c, ours, "ops") / m.of(c, raw, "ops")
		row(c+", against Pebble's own", "≥ 0.65", fmt.Sprintf("%.2f", ratio), ratio, ratio >= 0.65)
	}
	one := m.of("add-one", ours, "ops") / m.of("add-one", disk, "ops")
	row("one add at a time, against the disk's sync rate", "≥ 0.85", fmt.Sprintf("%.2f", one), one, one >= 0.85)
	runs := m.of("run", ours, "ops")
	row("runs acknowledged a second", "≥ 150,000", rounds.Thousands(int(runs)), runs, runs >= 150_000)
	ms, mb := m.of("open", ours, "open_ms"), m.of("open", ours, "resident_mb")
	row(fmt.Sprintf("durable: open with %s tasks", rounds.Thousands(size.far)), "≤ 3 s", fmt.Sprintf("%.2f s", ms/1000), ms, ms <= 3000)
	row("durable: resident memory with them", "≤ 550 MB", fmt.Sprintf("%.0f MB", mb), mb, mb <= 550)
	p99 := m.of("lateness", ours, "p99_ms")
	row(fmt.Sprintf("lateness, p99, %s tasks a second", rounds.Thousands(size.rate)), "≤ 25 ms", fmt.Sprintf("%.1f ms", p99), p99, p99 <= 25)
	p99 = m.of("crowd", ours, "p99_ms")
	name := fmt.Sprintf("lateness of others, p99, while %s tasks of a kind with a limit are due", rounds.Thousands(size.live))
	row(name, "≤ 100 ms", fmt.Sprintf("%.1f ms", p99), p99, p99 <= 100)
	fmt.Fprintln(w)
}

// about describes each case.
var about = map[string]string{
	"add-one":   "Adds a second, one caller, one add at a time. `disk` writes 100 bytes to a file and calls fdatasync.",
	"add-1024":  "Adds a second from 1024 goroutines, one task an add. `pebble` commits the same rows, synced, without checking whether the key exists. `asynq` (on Redis, appendfsync always) and `river` (on PostgreSQL with its default settings) add a tenth as many, with a tenth live.",
	"add-batch": "Tasks a second from 2 goroutines, 1000 tasks an add. `pebble` commits the same rows, 1000 tasks at once.",
	"remove":    "Removals a second from 1024 goroutines; with `asynq` and `river` a tenth of the tasks are there.",
	"run":       "Tasks that are due at once: runs started, ended and acknowledged in a second.",
	"open":      "From the open of an engine with far tasks to the first run of a new one; and the resident memory of the process some seconds later.",
	"crowd":     "How late 1,000 tasks a second of one kind are while many of another kind, whose runs take 1 ms, are due at one instant; and how many of those run in a second. `durable` limits that kind to 100 runs at the same time (`WithConcurrency`).",
	"set-one":   "SetTask of one key, again and again, from 1024 goroutines: calls that have returned in a second, and commits to the engine in a second.",
	"idle":      "How often a process wakes up in a second while no task is due and nothing calls its scheduler: the voluntary context switches of all its threads. A Go program that only sleeps has a few as well.",
	"add-heap":  "Allocations of one add on the Go heap, by number and by bytes, all goroutines included: 1024 goroutines, one task an add.",
	"run-heap":  "Allocations of one run on the Go heap, by number and by bytes, all goroutines included: tasks that are due at once, from the start of the scheduler to the last acknowledgement.",
	"lateness":  "How late tasks run when a fixed number falls due in each second. The tick is 1 ms. `asynq` and `river`, with their default settings, look for due tasks every five seconds; a tenth as many tasks fall due.",
}

// table writes the figures of a case.
func table(w io.Writer, m medians, c string, size sizes) {
	var columns []string
	switch c {
	case "open":
		columns = []string{"open_ms", "resident_mb"}
	case "crowd":
		columns = []string{"p50_ms", "p99_ms", "max_ms", "ops"}
	case "set-one":
		columns = []string{"ops", "commits_ops"}
	case "idle":
		columns = []string{"wakeups_ops"}
	case "add-heap", "run-heap":
		columns = []string{"allocs", "bytes"}
	case "lateness":
		columns = []string{"least_ms", "p50_ms", "p99_ms", "most_ms"}
	default:
		columns = []string{"ops"}
	}
	fmt.Fprintf(w, "## %s\n\n%s\n\n| peer |", c, about[c])
	for _, column := range columns {
		fmt.Fprintf(w, " %s |", strings.ReplaceAll(strings.ReplaceAll(column, "ops", "a second"), "_", ", "))
	}
	fmt.Fprintf(w, "\n|:---|%s\n", strings.Repeat("---:|", len(columns)))
	for _, p := range peerNames() {
		if _, ok := m[c+"/"+p]; !ok {
			continue
		}
		fmt.Fprintf(w, "| %s |", p)
		for _, column := range columns {
			if v := m.of(c, p, column); column == "ops" || v >= 100 {
				fmt.Fprintf(w, " %s |", rounds.Thousands(int(v)))
			} else {
				fmt.Fprintf(w, " %.1f |", v)
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}
