// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// sample is the result of one child process, or the reason for its failure.
type sample struct {
	Peer    string
	Case    string
	Round   int
	Figures figures `json:",omitempty"`
	Failure string  `json:",omitempty"` // instead of figures: stopped, crashed
}

// task is one child process to run.
type task struct {
	peer  definition
	bench benchCase
	work  workload
	round int
}

// plan lists the child processes in the order of their execution. A round runs all cases, and within a case all peers,
// one after another, so that compared peers run close together. The order of the peers changes from round to round, so
// that none always runs after the same one.
func plan(peers []definition, list []benchCase, rounds int, quick bool) []task {
	var tasks []task
	for round := range rounds {
		for _, c := range list {
			if round >= c.rounds {
				continue
			}
			for _, d := range turned(peers, round) {
				w := c.workload(quick)
				if c.lacks(d, w) == "" {
					if d.fixedTick {
						w.Tick = usualTick
					}
					tasks = append(tasks, task{peer: d, bench: c, work: w, round: round})
				}
			}
		}
	}
	return tasks
}

// turned returns the peers, starting with another one in each round, and in reverse order in every second round.
func turned(peers []definition, round int) []definition {
	k := round * 3 % len(peers)
	t := slices.Concat(peers[k:], peers[:k])
	if round%2 == 1 {
		slices.Reverse(t)
	}
	return t
}

// runner starts child processes.
type runner struct {
	executable string
	limit      time.Duration // overrides the limit of the case unless 0
}

// run runs one task in a child process of this program.
func (r runner) run(ctx context.Context, t task) (sample, error) {
	s := sample{Peer: t.peer.name, Case: t.bench.name, Round: t.round}
	text, err := json.Marshal(job{Peer: t.peer.name, Case: t.bench.name, Workload: t.work})
	if err != nil {
		return s, err
	}
	limit := t.bench.limit
	if r.limit > 0 {
		limit = r.limit
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(limited, r.executable)
	cmd.Env = append(environment(), childVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return s, ctx.Err()
	case limited.Err() != nil:
		s.Failure = fmt.Sprintf("stopped after %g s", limit.Seconds())
	case errors.As(err, new(*exec.ExitError)):
		s.Failure = "crashed: " + cause(stderr.String())
	case err != nil:
		return s, err
	default:
		s.Figures, err = parseFigures(stdout.String())
		if err != nil {
			s.Failure = err.Error()
		}
	}
	return s, nil
}

// environment returns the environment of this process without variables that would make runs differ.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "GOGC" || name == "GOMEMLIMIT" || name == "GODEBUG"
	})
}

// cause returns the line that gives the reason for the end of a process: the first line of a panic, or the last line.
func cause(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return lines[len(lines)-1]
}

// runAll runs the tasks one after another. A peer that failed in a case is not run in it again.
func runAll(ctx context.Context, r runner, tasks []task, p *progress, keep func(sample) error) error {
	failed := map[[2]string]bool{}
	for i, t := range tasks {
		id := [2]string{t.peer.name, t.bench.name}
		if failed[id] {
			continue
		}
		p.starts(i, len(tasks), t)
		s, err := r.run(ctx, t)
		if err != nil {
			return err
		}
		failed[id] = s.Failure != ""
		if err := keep(s); err != nil {
			return err
		}
		p.ended(s)
	}
	return nil
}
