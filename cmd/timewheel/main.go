// SPDX-License-Identifier: MIT

// Timewheel manages durable tasks: it lists, searches, removes, runs and reschedules them, and exports them to files
// and imports them again. It works on a cluster's database, on an embedded store that no process has open, or through a
// running serve.
//
//	timewheel help
//
// Only the command serve runs tasks, by calling a webhook for each. The other commands have no handlers.
//
// The exit codes are:
//
//	0  success
//	1  failure or interruption
//	2  the command line is invalid
//	3  no task exists for one of the keys
//	4  nothing was done, because the user did not confirm it
//	5  another process has the store open
package main

import (
	"context"
	"io"
	"net"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"
	_ "time/tzdata" // an imported task's cron schedule may name a time zone that this machine does not have

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := &program{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, now: time.Now,
		asks: term.IsTerminal(int(os.Stdin.Fd())), shows: term.IsTerminal(int(os.Stdout.Fd())),
		watched: term.IsTerminal(int(os.Stderr.Fd())),
	}
	if u, err := user.Current(); err == nil {
		p.who = u.Username
	}
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		p.width = width
	}
	code := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// A program is one invocation of the command, with its inputs and outputs.
type program struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time // returns the current time, in the zone for displayed times
	asks     bool             // in is a terminal
	shows    bool             // out is a terminal
	watched  bool             // err is a terminal
	width    int              // columns of the terminal at out; 0 if there is none
	who      string           // the name of the user; empty if it is unknown

	remote remote                // a running serve, as given by the flags
	open   scheduler             // in a serve, its own, on which the commands of operators run
	ask    func(question string) // in a serve, sends a question to the operator

	dial func(ctx context.Context, network, addr string) (net.Conn, error) // connects to a database; may be nil
}
