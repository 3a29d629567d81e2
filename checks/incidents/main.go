// SPDX-License-Identifier: MIT

//go:build linux

// Incidents replays the incidents of dashboard/README.md with real processes, on a wheel, an embedded store and one or
// two nodes on PostgreSQL. It checks that the page, the metrics, the alerts and the command report the truth within
// three seconds, and no longer report it fifteen seconds after the end. It also checks that meanwhile they contradict
// neither each other nor the handlers' own counters for longer than three seconds.
//
//	go run ./checks/incidents -run 'killed|stopped'
//
// It prints a line for each incident and backend, and exits with status 1 if one of them was not reported correctly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

func main() {
	if text := os.Getenv(nodeEnv); text != "" {
		os.Exit(serve(text))
	}
	run := flag.String("run", "", "the incidents whose name and backend match the `regexp`, such as 'killed' or '^database .* two nodes'")
	program := flag.String("prometheus", "", "the `path` of Prometheus: the alerts must fire in a server of it as well, which takes as long as they say")
	flag.Parse()
	chosen, err := regexp.Compile(*run)
	if err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "incidents: -run is no regular expression, or there are other arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := replay(ctx, &world{prometheus: *program}, chosen, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "incidents:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// replay replays the chosen incidents, and prints a line for each backend of each incident, with the errors below it.
// It reports whether there were no errors.
func replay(ctx context.Context, w *world, chosen *regexp.Regexp, out io.Writer) (ok bool, err error) {
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(ctx); err != nil {
		return false, err
	}
	ok = true
	fmt.Fprintf(out, "%-28s %-18s %9s %9s\n", "incident", "backend", "true", "gone")
	for _, i := range incidents {
		for _, b := range i.on {
			if ctx.Err() != nil || !chosen.MatchString(i.name+" "+string(b)) {
				continue
			}
			r := w.replay(ctx, i, b)
			ok = ok && len(r.wrong) == 0
			r.print(out, i.name, b)
		}
	}
	return ok, ctx.Err()
}

// A result describes how an incident was reported.
type result struct {
	isTrue, isGone time.Duration // time until the report, since the incident could be known, and until its removal, since the end; 0 if never
	wrong          []string
	skipped        string // why it was not replayed, or empty
}

func (r *result) fail(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *result) print(out io.Writer, name string, b backend) {
	if r.skipped != "" {
		fmt.Fprintf(out, "%-28s %-18s %s\n", name, b, r.skipped)
		return
	}
	seconds := func(d time.Duration) string {
		if d == 0 {
			return "never"
		}
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	fmt.Fprintf(out, "%-28s %-18s %9s %9s\n", name, b, seconds(r.isTrue), seconds(r.isGone))
	for _, text := range r.wrong {
		fmt.Fprintf(out, "    %s\n", text)
	}
}

// A world contains the resources that the incidents share.
type world struct {
	dir     string        // directory of the command, the stores and the scrapes
	within  time.Duration // time limit for the report
	gone    time.Duration // and for its removal
	command string        // the path of cmd/timewheel; empty until it is needed
	rules   []rule
	server  *pgtest.Server // nil until an incident needs it
	noPG    error          // the reason why there is no server
	scenes  atomic.Int64   // number of scenes made

	rulesFile  string // the path of the rules
	prometheus string // the path of the Prometheus server program; empty for none
	skewed     string // the path of this program with a package time that can be wrong; empty until it is needed
}
