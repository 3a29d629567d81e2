// SPDX-License-Identifier: MIT

//go:build unix

package postgres_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Three nodes are killed, paused, suspended, cut off and replaced, and their clocks are wrong. The server crashes and freezes, and
// its clock is changed. CHAOS is the duration. Without it half of the faults happen once, or two of them in short mode,
// and clocks are right. CHAOS_REPORT is a file for the report.
//
// The test consists of runs with a ledger each, so that the ledgers do not outgrow the memory and the disk.
func TestChaos_processes_keepThePromises(t *testing.T) {
	kinds := slices.Collect(maps.Keys(faults)) // in random order
	between := func() time.Duration { return 100*time.Millisecond + rand.N(200*time.Millisecond) }
	f := newFleet(t, "")
	r := &report{begun: time.Now(), faults: f.faults, counts: make(map[string]int), broken: make(map[string]int)}
	length := time.Duration(0)
	if text := os.Getenv("CHAOS"); text == "" {
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == suspend }) // no program's clocks can stand still
		kinds = kinds[:len(kinds)/2]
		if testing.Short() {
			kinds = kinds[:2]
		}
	} else {
		var err error
		length, err = time.ParseDuration(text)
		check(t, err)
		f.programs = append(f.programs, wrongClock(t)...)
		between = func() time.Duration { return 500*time.Millisecond + rand.N(time.Second) }
		kinds = slices.Concat(kinds, kinds)
		r.begun = time.Now()
	}
	const most = 5 // runs without CHAOS: on a busy machine one run may contain little
	for r.runs == 0 || len(r.details) == 0 && (time.Since(r.begun) < length || length == 0 && r.few() != "" && r.runs < most) {
		rand.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		if length > 0 && r.runs%4 == 1 {
			r.add(f.suspensions(between))
		} else {
			r.add(f.run(3, kinds, between))
		}
	}
	text := r.String()
	t.Log("\n" + text)
	if path := os.Getenv("CHAOS_REPORT"); path != "" {
		check(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for i, b := range r.details {
		if i < 20 {
			t.Error(b)
		}
	}
	if what := r.few(); what != "" {
		t.Errorf("there were only %d of %s", r.counts[what], what)
	}
}

// few returns which events were too rare for the test to find anything, or "".
func (r *report) few() string {
	for _, what := range []string{"add", "late add", "remove", "move", "pause", "resume", "confirm", "start", "end"} {
		if r.counts[what]+r.counts[what+unknown] < 10 {
			return what
		}
	}
	return ""
}

// A report is the final output for a person.
type report struct {
	begun   time.Time
	runs    int
	faults  map[string]int
	counts  map[string]int
	broken  map[string]int
	details []string

	disk   int64 // the maximum of a run
	memory uint64
}

func (r *report) add(v verdict) {
	r.runs++
	for what, n := range v.counts {
		r.counts[what] += n
	}
	for promise, n := range v.broken {
		r.broken[promise] += n
	}
	r.details = append(r.details, v.details...)
	r.disk = max(r.disk, v.disk)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.memory = max(r.memory, m.Sys-m.HeapReleased)
}

func (r *report) String() string {
	var b strings.Builder
	total := 0
	for _, n := range r.broken {
		total += n
	}
	fmt.Fprintf(&b, "Chaos on durable/postgres: %v, %d runs, %d promises broken\n\n",
		time.Since(r.begun).Round(time.Second), r.runs, total)
	fmt.Fprintf(&b, "%-22s %12s %16s\n", "", "acknowledged", "failed, unknown")
	for _, line := range [][2]string{
		{"add", "adds"}, {"late add", "adds, committed late"}, {"remove", "removals"}, {"move", "moves"},
		{"pause", "pauses"}, {"resume", "resumptions"},
	} {
		fmt.Fprintf(&b, "%-22s %12d %16d\n", line[1], r.counts[line[0]], r.counts[line[0]+unknown])
	}
	for _, line := range [][2]string{
		{"confirm", "decisions to start"}, {"start", "starts"}, {"end", "runs that ended well"},
		{"reap", "nodes taken over"},
	} {
		fmt.Fprintf(&b, "%-22s %12d\n", line[1], r.counts[line[0]])
	}
	b.WriteString("\nfaults\n")
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(&b, "  %-20s %12d\n", kind, r.faults[kind])
	}
	b.WriteString("\nbroken\n ")
	for _, promise := range promises {
		fmt.Fprintf(&b, " %s %d ", promise, r.broken[promise])
	}
	fmt.Fprintf(&b, "\n\nat most: %d MiB of ledgers and the server's files, %d MiB of memory for the checker\n",
		r.disk>>20, r.memory>>20)
	for i, detail := range r.details {
		if i < 20 {
			fmt.Fprintln(&b, detail)
		}
	}
	return b.String()
}

// measure records how much disk space the run uses.
func (v *verdict) measure(f *fleet) {
	f.t.Helper()
	var data string
	f.ask(func(conn *pgx.Conn) {
		check(f.t, conn.QueryRow(f.t.Context(), "SHOW data_directory").Scan(&data))
	})
	for _, dir := range []string{f.dir, filepath.Dir(data)} {
		_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() { // or the server has deleted it meanwhile
				v.disk += info.Size()
			}
			return nil
		})
	}
}
