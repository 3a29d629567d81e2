// SPDX-License-Identifier: MIT

// Orders shows what a timing wheel does with a million tasks. A shop holds stock for each order until it is paid, for
// half an hour at most. Each order has one task in the wheel, with the order's id as its key. A payment removes the
// task. If none comes in time, the task gives the stock back.
//
// The sale is simulated. The shop's time passes faster than real time, so a million orders take 20 seconds. The report
// accounts for every unit of the stock and every task, and shows how late the tasks ran. Start it with
//
//	go run ./examples/orders
//
// and read main.go, then shop.go. An interrupt (Ctrl-C) ends the sale, and the report follows. A second one ends the
// program at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	window   = 30 * time.Minute       // how long an order holds its stock, in the shop's time
	slots    = 1024                   // suits nearly every wheel
	minTick  = 100 * time.Microsecond // a shorter one costs CPU and gains nothing
	perOrder = 20 * time.Microsecond  // real time per order, unless -speed is given
	shortest = 3 * time.Second        // real time of the whole run at least, unless -speed is given
)

// A config holds the values of the flags.
type config struct {
	orders int
	seed   uint64
	speed  float64 // how many times as fast as real time the shop's time passes
	tick   time.Duration
}

func main() {
	var c config
	flag.IntVar(&c.orders, "n", 1_000_000, "number of `orders`")
	flag.Uint64Var(&c.seed, "seed", 1, "seed of the sale: the same number makes the same orders")
	flag.Float64Var(&c.speed, "speed", 0, "how many `times` as fast as real time the shop's time passes\n"+
		"(default: 20 s for a million orders, less for fewer orders, but at least 3 s)")
	flag.DurationVar(&c.tick, "tick", time.Millisecond, "tick of the wheel")
	flag.Parse()
	c, err := c.complete(flag.Args())
	if err != nil {
		fmt.Fprintf(os.Stderr, "orders: %v; see -h\n", err)
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	if err := run(ctx, c, os.Stdout, os.Stderr, terminal); err != nil {
		fmt.Fprintf(os.Stderr, "orders: %v\n", err)
		os.Exit(1)
	}
}

// complete checks the flags, and derives the speed if it is not given.
func (c config) complete(args []string) (config, error) {
	if c.speed == 0 && c.orders > 0 {
		takes := max(time.Duration(c.orders)*perOrder, shortest)
		c.speed = float64(saleLength+window) / float64(takes)
	}
	switch {
	case len(args) > 0:
		return c, fmt.Errorf("unknown argument %q", args[0])
	case c.orders <= 0:
		return c, fmt.Errorf("-n %d is not positive", c.orders)
	case !(c.speed >= 1): // or not a number
		return c, fmt.Errorf("-speed %v is not at least 1", c.speed)
	case c.tick < minTick:
		return c, fmt.Errorf("-tick %v is less than %v", c.tick, minTick)
	case c.real(window) < c.tick:
		return c, fmt.Errorf("at -speed %v an order holds its stock for %v, less than -tick %v", c.speed, c.real(window), c.tick)
	}
	return c, nil
}

// real converts a duration from the shop's time to real time.
func (c config) real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.speed) }

// run holds the sale and writes its report to out. It shows the progress on status, as one line that is rewritten if
// status is a terminal. When ctx is done, the sale ends early. That is not an error, because the report must still
// balance.
func run(ctx context.Context, c config, out, status io.Writer, terminal bool) error {
	events, stock := newSale(c.orders, c.seed)
	s := &shop{window: c.real(window)}
	for i, units := range stock {
		s.accounts[i] = account{start: units, available: units}
	}
	wheel, err := timewheel.New(c.tick, slots, timewheel.WithObserver(s.observe))
	if err != nil {
		return err
	}
	s.wheel = wheel
	wheel.Start()
	defer wheel.Stop()

	ended := make(chan struct{})
	var display sync.WaitGroup
	display.Go(func() { showProgress(status, terminal, s, ended) })
	began := time.Now()
	behind, err := trade(ctx, c, s, events)
	if err == nil {
		err = settle(ctx, wheel)
	}
	took := time.Since(began)
	close(ended)
	display.Wait()
	interrupted := errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		return err
	}

	// Shutdown starts no further run and waits for the running jobs. After that nothing changes the shop. The jobs are
	// short, so there is no need for a deadline.
	if err := wheel.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	r := report{
		config: c, took: took, behind: behind, interrupted: interrupted,
		accounts: s.accounts, tally: s.tally, late: s.late, stats: wheel.Stats(),
	}
	return r.write(out)
}

// trade brings each order and each payment to the shop at its time. On a slow machine it falls behind, drops nothing,
// and returns by how much it was behind at most. It returns the error of ctx if ctx is done first.
func trade(ctx context.Context, c config, s *shop, events []event) (behind time.Duration, err error) {
	opened := time.Now()
	for _, e := range events {
		ahead := time.Until(opened.Add(c.real(e.at)))
		behind = max(behind, -ahead)
		if err := sleep(ctx, ahead); err != nil {
			return behind, err
		}
		action := s.place
		if e.payment {
			action = s.pay
		}
		if err := action(e.order); err != nil {
			return behind, err
		}
	}
	return behind, nil
}

// settle waits until the last task has run or was removed.
func settle(ctx context.Context, wheel *timewheel.TimeWheel) error {
	for wheel.Len() > 0 {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// sleep sleeps for d. It returns the error of ctx if ctx is done first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// showProgress writes a line about the shop at intervals, until ended is closed.
func showProgress(w io.Writer, terminal bool, s *shop, ended <-chan struct{}) {
	const rewrite = "\r\x1b[2K" // to the first column, and erase the line
	interval, format := 5*time.Second, "%s\n"
	if terminal {
		interval, format = 100*time.Millisecond, rewrite+"%s"
		defer fmt.Fprint(w, rewrite)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(w, format, s)
		case <-ended:
			return
		}
	}
}
