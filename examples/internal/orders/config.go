// SPDX-License-Identifier: MIT

package orders

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"time"
)

const (
	fileSpeed = 3600                   // speed for orders from a file: an hour per second
	fileStock = 20                     // units of each SKU for orders from a file
	perOrder  = 20 * time.Microsecond  // real time per order of a generated sale
	shortest  = 3 * time.Second        // minimum real time of a generated sale
	slots     = 1 << 13                // slots of the wheel; one circle is 8 s with the default tick
	grace     = 30 * time.Second       // how long jobs in progress may take to end at shutdown
	leastTick = 100 * time.Microsecond // the machine's timers cannot support a shorter tick
)

// A config holds the values of the flags.
type config struct {
	in       string
	out      string
	generate int
	seed     uint64
	window   time.Duration
	speed    float64
	stock    int
	tick     time.Duration
	durable  string
	http     string
}

// parseFlags parses the arguments of orders-durable if keeps is set, or else of orders. If the arguments request help,
// it writes the help text to help and returns flag.ErrHelp.
func parseFlags(args []string, keeps bool, help io.Writer) (config, error) {
	c := config{tick: time.Millisecond}
	fs := flag.NewFlagSet("orders", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.in, "in", "", "")
	fs.IntVar(&c.generate, "generate", 0, "")
	fs.Uint64Var(&c.seed, "seed", 1, "")
	fs.DurationVar(&c.window, "window", 30*time.Minute, "")
	fs.Float64Var(&c.speed, "speed", 0, "")
	fs.IntVar(&c.stock, "stock", 0, "")
	if keeps {
		fs.StringVar(&c.durable, "durable", "", "")
	} else {
		fs.StringVar(&c.out, "out", "", "")
		fs.DurationVar(&c.tick, "tick", c.tick, "")
		fs.StringVar(&c.http, "http", "", "")
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			text := usage
			if keeps {
				text = keepsUsage
			}
			_, _ = io.WriteString(help, text)
		}
		return config{}, err
	}
	if fs.NArg() > 0 {
		return config{}, fmt.Errorf("%q is no flag", fs.Arg(0))
	}
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if keeps && c.durable == "" {
		return config{}, errors.New("give a directory with -durable")
	}
	return c.complete(given)
}

// complete checks the configuration and fills in the derived values.
func (c config) complete(given map[string]bool) (config, error) {
	switch {
	case given["in"] == given["generate"]:
		return config{}, errors.New("give either -in or -generate")
	case given["in"] && c.in == "":
		return config{}, errors.New("-in is empty")
	case given["generate"] && c.generate <= 0:
		return config{}, fmt.Errorf("-generate %d is not positive", c.generate)
	case given["out"] && !given["generate"]:
		return config{}, errors.New("-out goes with -generate alone")
	case given["http"] && c.http == "":
		return config{}, errors.New("-http is empty")
	case given["http"] && given["out"]:
		return config{}, errors.New("-out only writes orders; it does not go with -http")
	case given["stock"] && c.stock < 0:
		return config{}, fmt.Errorf("-stock %d is negative", c.stock)
	case c.window <= 0:
		return config{}, fmt.Errorf("-window %v is not positive", c.window)
	case given["speed"] && (!(c.speed > 0) || math.IsInf(c.speed, 0)):
		return config{}, fmt.Errorf("-speed %v is not a positive number", c.speed)
	case c.tick < leastTick:
		return config{}, fmt.Errorf("-tick %v is less than %v", c.tick, leastTick)
	}
	if !given["stock"] {
		c.stock = fileStock
		if given["generate"] {
			c.stock = -1
		}
	}
	if !given["speed"] {
		c.speed = fileSpeed
		if given["generate"] {
			takes := max(time.Duration(c.generate)*perOrder, shortest)
			c.speed = float64(span+c.window) / float64(takes)
		}
	}
	if real := scale(c.window, c.speed); real < c.tick {
		return config{}, fmt.Errorf("-window %v at -speed %v is %v, less than -tick %v",
			c.window, c.speed, real, c.tick)
	}
	return c, nil
}

const usage = `Orders hold stock until they are paid, or give it back when the window for that ends:
one task in a timing wheel for each order, removed by its payment.

    orders -in FILE [flags]       orders from a file, or - for standard input
    orders -generate N [flags]    a sale of N orders, made up

` + inputUsage + `    -out FILE       only write the orders that were made up to FILE, or - for standard output
    -tick TIME      tick of the wheel, in real time (default 1ms)
    -http ADDR      show the wheel in the browser while it works: the page is on ADDR, such as
                    127.0.0.1:8080
` + statusUsage

const keepsUsage = `Orders-durable is the shop of orders with tasks that survive the process. Kill it whenever you
like, start it again with the same flags, and it continues where it was.

    orders-durable -in FILE -durable DIR [flags]       orders from a file, or - for standard input
    orders-durable -generate N -durable DIR [flags]    a sale of N orders, made up

` + inputUsage + `    -durable DIR    keep orders and tasks in DIR
` + statusUsage

const inputUsage = `A line of the file is one order, in the order of "at", and without "paid_at" if it is never paid:

    {"order":"A-1","sku":"TEA-250","quantity":2,"at":"2026-03-02T09:30:00Z","paid_at":"2026-03-02T09:41:07Z"}

An order that is older than the one on the line before it comes at the time of that one. A line that is not
an order is reported on standard error, with its number, and skipped.

Flags:
    -in FILE        read the orders from FILE
    -generate N     make up N orders that come within 45 minutes, most of them in the first 15
    -seed N         make up others: the same number makes the same orders (default 1)
    -window TIME    how long an order holds its stock, in the orders' own time (default 30m)
    -speed X        run the orders' time X times as fast: 3600 is an hour a second
                    (default 3600; with -generate so that a million orders take 20 seconds, and
                    fewer orders as much less, but 3 seconds at least)
    -stock N        units of each SKU at the start (default 20; with -generate as much as the
                    customers will want, more or less: about one order in a hundred is refused)
`

const statusUsage = `
Exit status:
    0    all is well, also if it was interrupted or terminated before its end
    1    the ledger or the wheel's accounts do not balance, or a task ran before it was due
    2    the flags are wrong, or the orders cannot be read
    3    there were malformed lines; all the others are well

At an interrupt (Ctrl-C) it takes no more orders and prints its report. A second interrupt ends it
at once.
`
