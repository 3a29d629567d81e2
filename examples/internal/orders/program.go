// SPDX-License-Identifier: MIT

// Package orders implements the programs examples/orders and examples/orders-durable: a shop that holds stock for each
// order until the order is paid. The first program keeps the tasks of the orders in a wheel in memory, and the second
// keeps them in a store on disk. The package uses the store only through an interface, so that the first program does
// not depend on it.
package orders

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The exit statuses.
const (
	exitFine      = 0
	exitWrong     = 1
	exitUsage     = 2
	exitMalformed = 3
)

// Main runs the program: it processes the orders that the command line names, and exits. The tasks of the orders are in
// the scheduler that open opens, or in a wheel in memory if open is nil.
func Main(open Open) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, open, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs the program and returns the exit status. When ctx is done, it accepts no further orders and reports its
// results. An interruption is not an error.
func run(ctx context.Context, open Open, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	complain := func(err error) { fmt.Fprintf(stderr, "orders: %v\n", err) }
	c, err := parseFlags(args, open != nil, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitFine
	case err != nil:
		complain(fmt.Errorf("%w; see -h", err))
		return exitUsage
	case c.out != "":
		n, err := writeOut(ctx, c, stdout)
		if err != nil {
			complain(err)
			return exitUsage
		}
		if n < c.generate {
			complain(fmt.Errorf("interrupted: the first %s of %s orders are written",
				thousands(int64(n)), thousands(int64(c.generate))))
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
	if open != nil {
		s, err := newKeptSession(c, open, src, &console{w: stderr})
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

// A result is the report of a session or a keptSession.
type result interface {
	cameIn() int64
	badLines() int64
	problems() []string
	write(w io.Writer, paint style) error
}

// exitStatus returns the status of the most serious problem.
func exitStatus(r result, workErr error) int {
	switch {
	case len(r.problems()) > 0:
		return exitWrong
	case errors.Is(workErr, errUnreadable):
		return exitUsage
	case workErr != nil:
		return exitWrong
	case r.badLines() > 0:
		return exitMalformed
	}
	return exitFine
}
