// SPDX-License-Identifier: MIT

// Shop is an HTTP service that consists of several processes on one PostgreSQL server. An order takes its units from
// the stock at once, and returns them if it is not paid in time. The recheck of an order is a durable task. The task is
// added with the order, removed with the payment, or completed with the return, each time in the same transaction.
//
// The program starts its own PostgreSQL server and the processes of the service, and sends orders to the processes. Now
// and then it kills a process and starts another. The page at the printed address has buttons that kill a process or
// stop PostgreSQL for a few seconds.
//
// At the end, the program checks that each order was either paid or returned exactly once, and that the stock balances
// to the unit. If not, it exits with status 1.
//
// After an interrupt (Ctrl-C), the program stops sending orders early, and then performs the check and prints the
// report. A second interrupt ends the program and all its processes at once.
//
//	go run ./examples/shop                 the whole demo, for half a minute
//	go run ./examples/shop serve -db URL   one process of the service, on the tables of a run with -db URL
//
// Run it with -h for its flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/internal/pgtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return // a process of the service was interrupted before it was serving
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// A config holds the values of the flags.
type config struct {
	db        string // URL of the database server; empty if the program starts its own
	name      string // name of the process
	untilEOF  bool
	window    time.Duration
	lease     time.Duration
	work      time.Duration
	processes int
	callers   int
	duration  time.Duration
	kill      time.Duration
	away      time.Duration
	rate      int // orders per second
	stock     int // units of each article at the start
	seed      uint64
}

func run(ctx context.Context, args []string) error {
	var c config
	serves := len(args) > 0 && args[0] == "serve"
	set := flag.NewFlagSet("shop", flag.ContinueOnError)
	set.StringVar(&c.db, "db", "", "URL of a PostgreSQL; empty: one of its own, in a temporary directory")
	set.DurationVar(&c.window, "window", 3*time.Second, "how long an order waits for its payment")
	set.DurationVar(&c.lease, "lease", time.Second, "the lease of a process")
	set.DurationVar(&c.work, "work", 50*time.Millisecond, "how long a recheck takes besides its transaction")
	if serves {
		args = args[1:]
		set.StringVar(&c.name, "name", "", "name of the process; empty: host name and process id")
		set.BoolVar(&c.untilEOF, "until-eof", false, "stop when the standard input ends")
	} else {
		set.IntVar(&c.processes, "processes", 3, "processes of the service, at least 2")
		set.IntVar(&c.callers, "callers", 8, "goroutines that send orders")
		set.DurationVar(&c.duration, "for", 30*time.Second, "how long orders are sent")
		set.DurationVar(&c.kill, "kill", 3*time.Second, "time until a process is killed or stopped, on average")
		set.DurationVar(&c.away, "away", 8*time.Second, "how long the button takes PostgreSQL away")
		set.IntVar(&c.rate, "rate", 300, "orders a second")
		set.IntVar(&c.stock, "stock", 1000, "units of each article at first")
		set.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "what chance is drawn from")
	}
	if err := set.Parse(args); err != nil {
		return flag.ErrHelp // the flag set has already printed the error
	}
	switch {
	case set.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	case serves && c.db == "":
		return errors.New("serve needs -db")
	case serves:
		return serve(ctx, c)
	case c.processes < 2 || c.callers < 1 || c.duration <= 0 || c.kill <= 0 || c.away <= 0 || c.window <= 0 ||
		c.rate < 1 || c.stock < 1:
		return errors.New("-processes is less than 2, or another number is not positive")
	}
	var server *pgtest.Server
	if c.db == "" {
		var err error
		if server, err = pgtest.Start(); err != nil {
			return err
		}
		defer func() { _ = server.Close() }()
		c.db = server.URL()
	}
	return drive(ctx, c, server, os.Stdout)
}
