// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress shows the progress of the run: on a terminal in one line that is overwritten, elsewhere in one line per
// child process.
type progress struct {
	out      io.Writer
	terminal bool
	start    time.Time

	prefix string    // of the running child process
	began  time.Time // the start of the child process
}

func newProgress(f *os.File) *progress {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &progress{out: f, terminal: terminal, start: time.Now()}
}

// starts shows that child process i of n starts.
func (p *progress) starts(i, n int, t task) {
	left := ""
	if i > 0 {
		rest := time.Since(p.start) * time.Duration(n-i) / time.Duration(i)
		left = fmt.Sprintf(", about %v left", rest.Round(time.Second))
	}
	p.began = time.Now()
	p.prefix = fmt.Sprintf("[%d/%d%s] round %d, %s, %s", i+1, n, left, t.round+1, t.bench.name, t.peer.name)
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", p.prefix)
	}
}

// ended shows the outcome of the child process: how long it took, or why it failed.
func (p *progress) ended(s sample) {
	took := time.Since(p.began).Round(10 * time.Millisecond)
	switch {
	case s.Failure != "":
		fmt.Fprintf(p.out, "%s%s: %s\n", p.lineStart(), p.prefix, s.Failure)
	case !p.terminal:
		fmt.Fprintf(p.out, "%s: %v\n", p.prefix, took)
	}
}

// done ends the line.
func (p *progress) done() {
	fmt.Fprintf(p.out, "%smeasured in %v\n", p.lineStart(), time.Since(p.start).Round(time.Second))
}

// lineStart returns to the start of the line on a terminal.
func (p *progress) lineStart() string {
	if p.terminal {
		return "\r\x1b[K"
	}
	return ""
}
