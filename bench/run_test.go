// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// taskNamed returns a task whose child process behaves like testChild for that case.
func taskNamed(name string, round int) task {
	return task{
		peer:  floorPeer(),
		bench: benchCase{name: name, limit: time.Minute},
		round: round,
	}
}

func TestRunner_outcomesOfAChild(t *testing.T) {
	for _, c := range []struct {
		name, failure string
		limit         time.Duration
	}{
		{"hang", "stopped after 0.2 s", 200 * time.Millisecond},
		{"crash", "crashed: panic: the wheel came off", 0},
		{"mute", "no figures in the output: unexpected end of JSON input", 0},
		{"chatter", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runner{executable: executable(t), limit: c.limit}
			s, err := r.run(t.Context(), taskNamed(c.name, 3))
			if err != nil {
				t.Fatal(err)
			}
			if s.Failure != c.failure {
				t.Errorf("got failure %q, want %q", s.Failure, c.failure)
			}
			if s.Peer != floorName || s.Case != c.name || s.Round != 3 {
				t.Errorf("got %+v", s)
			}
			if c.failure == "" && s.Figures["ns"] != 12.5 {
				t.Errorf("got figures %v", s.Figures)
			}
		})
	}
}

func TestRunner_childMeasures(t *testing.T) {
	c, err := selectCases("add-small")
	if err != nil {
		t.Fatal(err)
	}
	r := runner{executable: executable(t)}
	s, err := r.run(t.Context(), task{peer: stdlibKeyedPeer(), bench: c[0], work: tiny(c[0].quick)})
	if err != nil {
		t.Fatal(err)
	}
	if s.Failure != "" || s.Figures["add_ns_1"] <= 0 {
		t.Errorf("got %+v", s)
	}
}

func TestRunAll_peerThatFailed_isNotAskedAgain(t *testing.T) {
	var tasks []task
	for round := range 2 {
		tasks = append(tasks, taskNamed("crash", round), taskNamed("chatter", round))
	}
	var got []string
	var out bytes.Buffer
	p := &progress{out: &out, start: time.Now()}
	err := runAll(t.Context(), runner{executable: executable(t)}, tasks, p, func(s sample) error {
		got = append(got, s.Case)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"crash", "chatter", "chatter"}; !slices.Equal(got, want) {
		t.Errorf("ran %v, want %v", got, want)
	}
	if !strings.Contains(out.String(), "[1/4] round 1, crash, floor: crashed: panic: the wheel came off\n") {
		t.Errorf("progress %q", out.String())
	}
}

func TestRunAll_interrupted_endsTheChild(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	p := &progress{out: &bytes.Buffer{}, start: time.Now()}
	err := runAll(ctx, runner{executable: executable(t)}, []task{taskNamed("hang", 0)}, p, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestPlan_everyRoundHasEveryPeer_inAnotherOrder(t *testing.T) {
	peers := slices.DeleteFunc(definitions(), func(d definition) bool { return d.only != "" })
	list, err := selectCases("add-small,idle-live-1ms,scale-1k")
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 4
	orders := map[string][]string{} // of the peers, by round, of the first case
	count := map[string]int{}
	for _, task := range plan(peers, list, rounds, false) {
		if task.bench.name == "add-small" {
			key := string(rune('0' + task.round))
			orders[key] = append(orders[key], task.peer.name)
		}
		count[task.bench.name+" "+task.peer.name]++
	}
	if len(orders) != rounds {
		t.Fatalf("got %d rounds", len(orders))
	}
	seen := map[string]bool{}
	for round, order := range orders {
		if len(order) != len(peers) {
			t.Errorf("round %s has %d peers", round, len(order))
		}
		seen[strings.Join(order, " ")] = true
	}
	if len(seen) != rounds {
		t.Errorf("got %d different orders in %d rounds", len(seen), rounds)
	}
	for name, want := range map[string]int{
		"add-small timewheel":            rounds,
		"idle-live-1ms timewheel":        fewRounds, // takes long
		"idle-live-1ms antlabs-keyed":    0,         // has no such tick
		"idle-live-1ms russellluo":       0,         // has no keys
		"idle-live-1ms russellluo-keyed": fewRounds,
		"scale-1k floor":                 fewRounds,
	} {
		if count[name] != want {
			t.Errorf("%s: planned %d times, want %d", name, count[name], want)
		}
	}
}

func TestEnvironment_withoutWhatChangesTheRuntime(t *testing.T) {
	t.Setenv("TIMEWHEEL_BENCH_KEPT", "1")
	removed := []string{"GOGC", "GOMEMLIMIT", "GODEBUG"}
	for _, name := range removed {
		t.Setenv(name, "")
	}
	got := environment()
	for _, name := range removed {
		if slices.Contains(got, name+"=") {
			t.Errorf("%s is still there", name)
		}
	}
	if !slices.Contains(got, "TIMEWHEEL_BENCH_KEPT=1") || len(got) != len(os.Environ())-len(removed) {
		t.Error("something else is gone")
	}
}

func TestProgress_onATerminal_writesOverTheLine(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, terminal: true, start: time.Now()}
	p.starts(0, 2, taskNamed("chatter", 0))
	p.ended(sample{})
	p.done()
	const first = "\r\x1b[K[1/2] round 1, chatter, floor"
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, first) {
		t.Errorf("got %q", got)
	}
}
