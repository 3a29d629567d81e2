// SPDX-License-Identifier: MIT

// The cluster benchmark compares durable/postgres, which runs tasks on many nodes over one PostgreSQL, with River and
// with a table polled with FOR UPDATE SKIP LOCKED. Each case and peer runs in a separate process, on a separate
// PostgreSQL in a temporary directory. The nodes are also processes. The peers of a case run one after another.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/bench/internal/rounds"
)

func main() {
	cases := flag.String("case", "", "comma-separated `names` of the cases: "+strings.Join(caseNames(), ", "))
	peers := flag.String("peers", "", "comma-separated `names` of the peers: "+strings.Join(peerNames, ", "))
	n := flag.Int("rounds", 3, "`number` of rounds")
	quick := flag.Bool("quick", false, "less of everything: a round of all cases in some nine minutes")
	out := flag.String("out", "", "`file` to write the report to (default: print it)")
	kept := flag.String("kept", "", "`file` that keeps the samples; with the same file an interrupted run continues")
	profile := flag.String("profile", "", "`directory` for CPU profiles of the nodes and the times of statements")
	child := flag.String("child", "", "measure one `case/peer` and print its figures")
	node := flag.String("node", "", "run one node, as this `JSON` says")
	flag.Parse()
	var err error
	switch {
	case *node != "":
		err = runNode(*node)
	case *child != "":
		err = runChild(*child, sizesOf(*quick), *profile)
	case flag.NArg() > 0 || *n < 1:
		err = fmt.Errorf("arguments %q, %d rounds: see -help", flag.Args(), *n)
	default:
		err = compare(*cases, *peers, *n, *quick, *out, *kept, *profile)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// compare makes the requested measurements and writes the report.
func compare(cases, peers string, n int, quick bool, out, kept, profile string) error {
	wantCases, err := rounds.Choose("case", cases, caseNames())
	if err != nil {
		return err
	}
	wantPeers, err := rounds.Choose("peer", peers, peerNames)
	if err != nil {
		return err
	}
	plan := rounds.Plan{
		Rounds: n, Cases: wantCases, Peers: wantPeers, Kept: kept,
		Applies: func(c, p string) bool { return p == ours || !slices.Contains(oursAlone, c) },
	}
	samples, err := plan.Measure(func(c, p string) rounds.Sample { return measureInChild(c, p, quick, profile) })
	if err != nil {
		return err
	}
	found := summarize(samples)
	text := report(observe(), found, sizesOf(quick))
	if out == "" {
		_, err = os.Stdout.WriteString(text)
	} else {
		err = os.WriteFile(out, []byte(text), 0o644)
	}
	return errors.Join(err, rounds.Failed(found.failures))
}

// figures are the results of a child, by name.
type figures map[string]float64

// profiles is the prefix of the names of the profiles, or empty.
var profiles string

// limit is the time limit of a child.
const limit = 20 * time.Minute

func measureInChild(c, p string, quick bool, profile string) rounds.Sample {
	return rounds.InChild(limit, "-child", c+"/"+p, fmt.Sprintf("-quick=%v", quick), "-profile="+profile)
}

func runChild(name string, size sizes, profile string) error {
	c, p, _ := strings.Cut(name, "/")
	measure, peer := measurements[c], peers[p]
	if measure == nil || peer == nil {
		return fmt.Errorf("no case %q of peer %q", c, p)
	}
	if profile != "" {
		profiles = filepath.Join(profile, strings.NewReplacer("/", "-", " ", "-").Replace(name))
	}
	f, err := measure(peer, p, size)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}
