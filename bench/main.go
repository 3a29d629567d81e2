// SPDX-License-Identifier: MIT

// Command bench measures the wheel of this repository side by side with other timer libraries for Go.
//
//	cd bench && go run . -quick
//
// For each peer, case and round it starts itself again as a child process, which makes one measurement and prints its
// figures. The parent runs the peers of a case one after another, in a different order in every round, and takes
// medians over the rounds. Each figure is divided by that of the baseline in the same round, so that a machine that is
// slow for a while is slow for all. Without -out the report goes to the standard output.
//
// A child that does not end within its limit is stopped. The report shows stopped and crashed children. The command
// needs a Unix system.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	err := run()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if errors.As(err, new(usageError)) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// run is the main function of all processes of the program.
func run() error {
	if text, ok := os.LookupEnv(readersVariable); ok { // before the other variable, which it inherits
		return readersMain(text, os.Stdin, os.Stdout)
	}
	if text, ok := os.LookupEnv(childVariable); ok {
		return childMain(text, os.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return parentMain(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// usageError is a mistake in the arguments.
type usageError struct {
	error
}

// options are the parsed arguments of the program.
type options struct {
	peers  []definition
	cases  []benchCase
	rounds int
	quick  bool
	limit  time.Duration
	out    string
	from   string
	caches bool
}

// parseOptions reads the arguments. If no peers or cases are named, the mode chooses them.
func parseOptions(arguments []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the caller prints the error
	peers := f.String("peers", "", "comma-separated `names` of the peers: "+names(definitions(), peerName))
	list := f.String("cases", "", "comma-separated `names` of the cases: "+names(cases(), caseName))
	f.IntVar(&o.rounds, "rounds", 0, "`number` of rounds (default 5, or 2 with -quick); long cases run at most 3")
	f.BoolVar(&o.quick, "quick", false, "smaller numbers, keyed peers only, in under two minutes")
	f.DurationVar(&o.limit, "limit", 0, "`time` limit for each child process (default by case, 1m to 3m)")
	f.StringVar(&o.out, "out", "", "`directory` for RESULTS.md, plots and samples (default: print the tables)")
	f.StringVar(&o.from, "from", "", "measure nothing: report on the samples in a `file` of an earlier run")
	f.BoolVar(&o.caches, "caches", false, "measure the caches, not the timers")
	if err := f.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(stderr)
			f.PrintDefaults()
			return o, err
		}
		return o, usageError{err}
	}
	if f.NArg() > 0 {
		return o, usageError{fmt.Errorf("unexpected argument %q", f.Arg(0))}
	}
	if o.rounds < 0 {
		return o, usageError{fmt.Errorf("-rounds %d is negative", o.rounds)}
	}
	var err error
	if o.peers, err = chosenPeers(*peers, o.quick); err != nil {
		return o, usageError{err}
	}
	if o.cases, err = chosenCases(*list, o.quick); err != nil {
		return o, usageError{err}
	}
	if o.rounds == 0 {
		o.rounds = 5
		if o.quick {
			o.rounds = 2
		}
	}
	return o, nil
}

// chosenPeers returns the peers in the list. An empty list means every peer that the mode measures.
func chosenPeers(list string, quick bool) ([]definition, error) {
	if list != "" {
		return selectPeers(list)
	}
	return slices.DeleteFunc(definitions(), func(d definition) bool { return quick && !d.keyed }), nil
}

// chosenCases returns the cases in the list. An empty list means every case that the mode measures.
func chosenCases(list string, quick bool) ([]benchCase, error) {
	if list == "" {
		return slices.DeleteFunc(cases(), func(c benchCase) bool { return quick && c.fullOnly }), nil
	}
	chosen, err := selectCases(list)
	if err != nil {
		return nil, err
	}
	for _, c := range chosen {
		if quick && c.fullOnly {
			return nil, fmt.Errorf("case %q is not for -quick", c.name)
		}
	}
	return chosen, nil
}

// names lists the names of items.
func names[T any](items []T, name func(T) string) string {
	var list []string
	for _, item := range items {
		list = append(list, name(item))
	}
	return strings.Join(list, ", ")
}

// parentMain makes the measurements that the arguments ask for, or reads earlier ones, and reports on them.
func parentMain(ctx context.Context, arguments []string, stdout io.Writer, stderr *os.File) error {
	o, err := parseOptions(arguments, stderr)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
	}
	if o.caches {
		return reportOnCaches(ctx, o, arguments, stdout, stderr)
	}
	r := report{peers: o.peers}
	if o.from != "" {
		r.circumstances, r.results, err = readSamples(o.from)
		r.peers = slices.DeleteFunc(definitions(), func(d definition) bool { return !r.results.tried(d.name) })
	} else {
		r.circumstances = observe(arguments, o.quick)
		r.results, err = measure(ctx, o, r.circumstances, stderr)
	}
	if err != nil {
		return err
	}
	if o.out == "" {
		_, err := io.WriteString(stdout, r.String())
		return err
	}
	if r.plots, err = drawPlots(o.out, r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "RESULTS.md"), []byte(r.String()), 0o644)
}

// samplesFile is the name of the file with the output of the child processes.
const samplesFile = "samples.jsonl"

// measure runs the child processes.
func measure(ctx context.Context, o options, c circumstances, stderr *os.File) (results, error) {
	var all results
	executable, err := os.Executable()
	if err != nil {
		return all, err
	}
	var kept io.Writer = io.Discard
	if o.out != "" {
		f, err := os.Create(filepath.Join(o.out, samplesFile))
		if err != nil {
			return all, err
		}
		defer f.Close()
		kept = f
	}
	k, err := newKeeper(kept, c)
	if err != nil {
		return all, err
	}
	p := newProgress(stderr)
	tasks := plan(o.peers, o.cases, o.rounds, o.quick)
	err = runAll(ctx, runner{executable: executable, limit: o.limit}, tasks, p, func(s sample) error {
		all.samples = append(all.samples, s)
		return k.keep(s)
	})
	p.done()
	return all, err
}

// readSamples reads the measurements of an earlier run.
func readSamples(name string) (circumstances, results, error) {
	f, err := os.Open(name)
	if err != nil {
		return circumstances{}, results{}, err
	}
	defer f.Close()
	return readKept(f)
}
