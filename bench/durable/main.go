// SPDX-License-Identifier: MIT

// The durable benchmark compares package durable with its foundations, a synced write to the disk and a synced commit
// of Pebble. It also compares it with job queues on a server. Each peer and case runs in a process of its own, on a
// directory of its own. The peers of a case run one after another.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/bench/internal/rounds"
)

func main() {
	cases := flag.String("cases", "", "comma-separated `names` of the cases: "+strings.Join(caseNames(), ", "))
	peers := flag.String("peers", "", "comma-separated `names` of the peers: "+strings.Join(peerNames(), ", "))
	n := flag.Int("rounds", 3, "`number` of rounds")
	quick := flag.Bool("quick", false, "a tenth of the tasks")
	out := flag.String("out", "", "`directory` for RESULTS.md (default: print it)")
	dir := flag.String("dir", "", "`directory` on the disk to measure (default: that for temporary files)")
	kept := flag.String("kept", "", "`file` that keeps the samples; with the same file an interrupted run continues")
	one := flag.String("child", "", "measure one `case/peer` and print its figures")
	flag.Parse()
	if err := start(*cases, *peers, *n, *quick, *out, *dir, *kept, *one); err != nil {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}

func start(cases, peers string, n int, quick bool, out, dir, kept, one string) error {
	size := full
	if quick {
		size = tenth
	}
	if one != "" {
		return child(one, size, dir)
	}
	if flag.NArg() > 0 || n < 1 {
		return fmt.Errorf("arguments %q, %d rounds: see -help", flag.Args(), n)
	}
	wantCases, err := rounds.Choose("case", cases, caseNames())
	if err != nil {
		return err
	}
	wantPeers, err := rounds.Choose("peer", peers, peerNames())
	if err != nil {
		return err
	}
	plan := rounds.Plan{Rounds: n, Cases: wantCases, Peers: wantPeers, Applies: applies, Kept: kept}
	samples, err := plan.Measure(func(c, p string) rounds.Sample { return measureInChild(c, p, quick, dir) })
	if err != nil {
		return err
	}
	return writeReport(samples, out, size)
}

// limit is how long a child may take.
const limit = 5 * time.Minute

func measureInChild(c, p string, quick bool, dir string) rounds.Sample {
	own, err := os.MkdirTemp(dir, "durable-bench-")
	if err != nil {
		return rounds.Sample{Failure: err.Error()}
	}
	defer func() { _ = os.RemoveAll(own) }()
	return rounds.InChild(limit, "-child", c+"/"+p, "-dir", own, fmt.Sprintf("-quick=%v", quick))
}

func child(one string, size sizes, dir string) error {
	c, p, _ := strings.Cut(one, "/")
	measure := cases[c][p]
	if measure == nil {
		return fmt.Errorf("no case %q of peer %q", c, p)
	}
	figures, err := measure(size, dir)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(figures)
}
