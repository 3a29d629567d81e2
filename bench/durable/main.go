// SPDX-License-Identifier: MIT

// The durable benchmark compares package durable with what it is built on, a synced write to the disk and a
// synced commit of Pebble, and with job queues on a server. Each peer and case runs in a process of its own,
// on a directory of its own. The peers of a case run one after another.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func main() {
	cases := flag.String("cases", "", "comma-separated `names` of the cases: "+strings.Join(caseNames(), ", "))
	peers := flag.String("peers", "", "comma-separated `names` of the peers: "+strings.Join(peerNames(), ", "))
	rounds := flag.Int("rounds", 3, "`number` of rounds")
	quick := flag.Bool("quick", false, "a tenth of the tasks")
	out := flag.String("out", "", "`directory` for RESULTS.md (default: print it)")
	dir := flag.String("dir", "", "`directory` on the disk to measure (default: that for temporary files)")
	one := flag.String("child", "", "measure one `case/peer` and print its figures")
	flag.Parse()
	if err := start(*cases, *peers, *rounds, *quick, *out, *dir, *one); err != nil {
		fmt.Fprintln(os.Stderr, "durable:", err)
		os.Exit(1)
	}
}

func start(cases, peers string, rounds int, quick bool, out, dir, one string) error {
	size := full
	if quick {
		size = tenth
	}
	if one != "" {
		return child(one, size, dir)
	}
	if flag.NArg() > 0 || rounds < 1 {
		return fmt.Errorf("arguments %q, %d rounds: see -help", flag.Args(), rounds)
	}
	wantCases, err := choose("case", cases, caseNames())
	if err != nil {
		return err
	}
	wantPeers, err := choose("peer", peers, peerNames())
	if err != nil {
		return err
	}
	var samples []sample
	for round := range rounds {
		for _, c := range wantCases {
			order := slices.Clone(wantPeers)
			for range round { // another one begins in each round
				order = append(order[1:], order[0])
			}
			for _, p := range order {
				if !applies(c, p) {
					continue
				}
				began := time.Now()
				s := measureInChild(c, p, quick, dir)
				s.Round = round
				samples = append(samples, s)
				fmt.Fprintf(os.Stderr, "round %d, %s, %s: %s %s\n", round+1, c, p,
					time.Since(began).Round(100*time.Millisecond), s.Failure)
			}
		}
	}
	return writeReport(samples, out, size)
}

// choose returns the names that are asked for, or all of them if none is.
func choose(what, asked string, names []string) ([]string, error) {
	if asked == "" {
		return names, nil
	}
	want := strings.Split(asked, ",")
	for _, name := range want {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("unknown %s %q; there are: %s", what, name, strings.Join(names, ", "))
		}
	}
	return want, nil
}

// A sample is what one child has measured.
type sample struct {
	Round      int
	Case, Peer string
	Figures    map[string]float64
	Failure    string
}

// limit is how long a child may take.
const limit = 5 * time.Minute

func measureInChild(c, p string, quick bool, dir string) sample {
	s := sample{Case: c, Peer: p}
	own, err := os.MkdirTemp(dir, "durable-bench-")
	if err != nil {
		s.Failure = err.Error()
		return s
	}
	defer func() { _ = os.RemoveAll(own) }()
	cmd := exec.Command(os.Args[0], "-child", c+"/"+p, "-dir", own, fmt.Sprintf("-quick=%v", quick))
	cmd.Stderr = os.Stderr
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	printed, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(printed, &s.Figures)
	}
	if err != nil {
		s.Failure = err.Error()
	}
	return s
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
