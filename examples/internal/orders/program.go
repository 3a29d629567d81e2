// SPDX-License-Identifier: MIT

// Orders is what the timing wheel was made for: a shop that holds stock for each order until it is paid, but
// for half an hour at most. A million orders may come within minutes; most are paid, and their tasks removed,
// before they are due. It works orders from a file, or of a sale that it makes up, many times as fast as they
// came, and ends with a report in which every unit of the stock is accounted for. Run it with -h for its
// flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// The exit statuses.
const (
	exitFine        = 0
	exitWrong       = 1
	exitUsage       = 2
	exitMalformed   = 3
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status, and breaks off when ctx is done.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	complain := func(err error) { fmt.Fprintf(stderr, "orders: %v\n", err) }
	c, err := parseFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitFine
	case err != nil:
		complain(fmt.Errorf("%w; -h tells more", err))
		return exitUsage
	case c.out != "":
		if err := writeOut(c, stdout); err != nil {
			complain(err)
			return exitUsage
		}
		return exitFine
	}
	src, closeSource, err := openSource(c, stdin)
	if err != nil {
		complain(err)
		return exitUsage
	}
	defer closeSource()
	var r result
	var workErr error
	if c.durable != "" {
		s, err := newKeptSession(c, src, &console{w: stderr})
		if err != nil {
			complain(err)
			return exitUsage
		}
		workErr = s.work(ctx)
		r = s.report()
	} else {
		s, err := newSession(c, src, &console{w: stderr})
		if err != nil {
			complain(err)
			return exitUsage
		}
		workErr = s.work(ctx)
		r = s.report()
	}
	if r.cameIn() == 0 && errors.Is(workErr, errUnreadable) {
		complain(workErr)
		return exitUsage
	}
	if err := r.write(stdout, styleFor(stdout)); err != nil {
		complain(err)
		return exitWrong
	}
	if more := r.badLines() - complaints; more > 0 {
		complain(fmt.Errorf("%s more malformed lines", thousands(more)))
	}
	if workErr != nil {
		complain(workErr)
	}
	return exitStatus(r, workErr)
}

// A result is the report of a session, of either kind.
type result interface {
	cameIn() int64
	badLines() int64
	broken() bool // it was interrupted
	problems() []string
	write(w io.Writer, paint style) error
}

// exitStatus returns the gravest of what is to be told.
func exitStatus(r result, workErr error) int {
	switch {
	case len(r.problems()) > 0:
		return exitWrong
	case errors.Is(workErr, errUnreadable):
		return exitUsage
	case workErr != nil:
		return exitWrong
	case r.broken():
		return exitInterrupted
	case r.badLines() > 0:
		return exitMalformed
	}
	return exitFine
}
