// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// childVariable is the environment variable that makes a process a child, and contains its job.
const childVariable = "TIMEWHEEL_BENCH_CHILD"

// job describes the measurement of a child process.
type job struct {
	Peer     string
	Case     string
	Workload workload
}

// childMain does the measurement described by the text, and writes the figures as one line of JSON.
func childMain(text string, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return fmt.Errorf("%s: %w", childVariable, err)
	}
	if j.isCache() {
		return encodeFigures(out, j.runCache)
	}
	d, err := selectPeers(j.Peer)
	if err != nil {
		return err
	}
	silenceOthers(d[0])
	return encodeFigures(out, j.run)
}

func encodeFigures(out io.Writer, run func() (figures, error)) error {
	f, err := run()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(f)
}

// run measures in this process.
func (j job) run() (figures, error) {
	d, err := selectPeers(j.Peer)
	if err != nil {
		return nil, err
	}
	c, err := selectCases(j.Case)
	if err != nil {
		return nil, err
	}
	f, err := c[0].measure(j.Workload, d[0].open)
	if !d[0].timers {
		delete(f, "quiet_ns") // without timers there are no ticks
		delete(f, "beat_ns")
		delete(f, "beats")
	}
	return f, err
}

// parseFigures finds the figures in the output of a child. A peer may have written other lines before them.
func parseFigures(output string) (figures, error) {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	var f figures
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &f); err != nil {
		return nil, fmt.Errorf("no figures in the output: %w", err)
	}
	return f, nil
}
