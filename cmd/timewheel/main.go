// SPDX-License-Identifier: MIT

// Timewheel operates durable tasks: it lists, searches, removes, runs and moves them, and copies them to files and
// back. It works on the database of a cluster, or on an embedded store that no process has open.
//
//	timewheel help
//
// Only the command serve runs tasks: it calls a webhook for each. The others have no handlers.
//
// The exit code is
//
//	0  done
//	1  failed, or interrupted
//	2  the command line is wrong
//	3  there is no task with one of the keys
//	4  nothing was done, because it was not confirmed
//	5  another process has the store open
package main

import (
	"context"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // an imported calendar names a zone, and this machine may not have it

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := &program{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, now: time.Now,
		asks: term.IsTerminal(int(os.Stdin.Fd())), shows: term.IsTerminal(int(os.Stdout.Fd())),
		watched: term.IsTerminal(int(os.Stderr.Fd())),
	}
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		p.width = width
	}
	code := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// A program is one call of the command, with its inputs and outputs.
type program struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time // in the zone for displayed times
	asks     bool             // in is a terminal
	shows    bool             // out is a terminal
	watched  bool             // err is a terminal
	width    int              // columns of the terminal at out; 0 if there is none

	dial func(ctx context.Context, network, addr string) (net.Conn, error) // to a database; nil for the default
}
