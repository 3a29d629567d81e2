// SPDX-License-Identifier: MIT

// Shop is an HTTP service whose processes are killed at random. An order takes its units from the stock at once, and its
// recheck, a durable task, returns them if the order is not paid in time. At the end the stock must balance to the unit,
// and the books must agree with every answer that a client got. If not, the exit status is 1. It takes about 35 seconds.
//
//	go run ./examples/shop            three processes on a PostgreSQL of its own; PostgreSQL must be installed
//	go run ./examples/shop -dir DIR   one process at a time in a new directory, which needs nothing
//
// This file starts the processes, sends the orders, causes the trouble and checks the books. The service is in
// service.go, with its books in PostgreSQL, and the books in a directory are in directory.go. After an interrupt
// (Ctrl-C), no further orders are sent, and the report follows. A second one ends the program and its processes at once.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed581295f1/timewheel/internal/pgtest"
	"github.com/seed581295f1/timewheel/timewheel"
)

const (
	rate     = 250             // orders a second
	clients  = 40              // maximum number of requests at the same time
	awayFor  = 3 * time.Second // how long PostgreSQL is away
	patience = time.Minute     // time limit for each thing that must happen
)

// A config holds the flags and the other settings.
type config struct {
	dir                       string
	duration, window, trouble time.Duration // to send orders, to pay an order, and between two troubles on average
	name, url                 string        // of a process that the driver starts, and of its PostgreSQL
}

func main() {
	c := config{window: 3 * time.Second, trouble: 3 * time.Second}
	flag.StringVar(&c.dir, "dir", "", "keep the books in this new `directory`, without PostgreSQL")
	flag.DurationVar(&c.duration, "for", 30*time.Second, "send orders for this long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	run := drive
	if flag.NArg() > 0 { // a process of the service
		c.name, c.url = flag.Arg(0), flag.Arg(1)
		// Ctrl-C in a terminal reaches every process, but only the driver acts on it. When the driver ends, however it
		// ends, so does the standard input of its processes.
		ctx, stop = signal.NotifyContext(context.Background(), syscall.SIGTERM)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
		run = servePostgres
		if c.dir != "" {
			run = serveDirectory
		}
	}
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// A driver runs the demo.
type driver struct {
	config
	log      *log.Logger
	server   *pgtest.Server // nil with -dir
	http     *http.Client
	started  int            // processes
	troubles map[string]int // by kind

	mu      sync.Mutex // protects the fields below
	live    []*process
	answers map[string]*answers // by order
}

// drive runs the demo and prints its report. It returns an error if the books do not balance. When ctx is done, no
// further orders are sent.
func drive(ctx context.Context, c config, out io.Writer) (err error) {
	d := &driver{config: c, log: log.New(out, "", log.Ltime)}
	d.troubles, d.answers = make(map[string]int), make(map[string]*answers)
	d.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	d.live = make([]*process, 1)
	if c.dir == "" {
		if d.server, err = pgtest.Start(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.server.Close()) }()
		d.url, d.live = d.server.URL(), make([]*process, 3)
	} else if err := os.Mkdir(c.dir, 0o700); err != nil {
		return err
	}
	for i := range d.live {
		if err := d.start(i); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.live[i].end(false)) }()
	}

	tw := timewheel.NewTimeWheel(time.Millisecond, 512, timewheel.WithPoolSize(clients))
	tw.Start()
	defer tw.Stop()
	err = tw.AddTask(&timewheel.Task{Key: "order", Interval: time.Second / rate, Times: timewheel.Forever,
		Job: func(*timewheel.Task) { d.order(tw) }})
	if err != nil {
		return err
	}
	if err := d.disturb(ctx); err != nil {
		return err
	}
	d.log.Printf("no further orders; the report follows in about %v", d.window)
	_ = tw.Shutdown(context.Background()) // waits for the last answer
	return d.report()
}

// A process is a process of the service.
type process struct {
	name, url string
	cmd       *exec.Cmd
	in        io.Closer    // standard input; the process stops when it ends
	log       bytes.Buffer // standard error, to be read once the process has ended
}

// start starts a process, waits until it serves, and makes it the process i.
func (d *driver) start(i int) error {
	d.started++
	p := &process{name: fmt.Sprint("node-", d.started)}
	p.cmd = exec.Command(os.Args[0], "-dir", d.dir, p.name, d.url)
	p.cmd.Stderr = &p.log
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, p.cmd.Start()); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s does not start: %w: %s", p.name, errors.Join(err, p.cmd.Wait()), &p.log)
	}
	p.in, p.url = in, strings.TrimSpace(line)
	d.log.Printf("start %s, process %d, which shows %s%s", p.name, p.cmd.Process.Pid, p.url, page)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[i] = p
	return nil
}

// end kills the process, as kill -9 does, or stops it.
func (p *process) end(kill bool) error {
	if kill {
		_ = p.cmd.Process.Kill()
	}
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil && !kill {
		return fmt.Errorf("%s: %w: %s", p.name, err, &p.log)
	}
	return nil
}

// order sends an order, and its payment later if it is to be paid.
func (d *driver) order(tw *timewheel.TimeWheel) {
	d.mu.Lock()
	id, a := fmt.Sprint(len(d.answers)+1), new(answers)
	d.answers[id] = a
	d.mu.Unlock()
	body := fmt.Sprintf(`{"id": %q, "article": %d, "units": %d}`, id, 1+rand.IntN(articles), 1+rand.IntN(3))
	a.placed = d.post("/orders", body)
	if a.placed == http.StatusOK && rand.IntN(10) < 7 {
		// Some payments arrive at the very end of the window, or after it.
		tw.AfterFunc(rand.N(d.window+d.window/20), func() { a.paid = d.post("/orders/"+id+"/pay", "") })
	}
}

// post sends a request to random processes until one answers, and returns the status, or 0 if it takes too long.
func (d *driver) post(path, body string) int {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		d.mu.Lock()
		p := d.live[rand.IntN(len(d.live))] // which may have ended
		d.mu.Unlock()
		resp, err := d.http.Post(p.url+path, "application/json", strings.NewReader(body))
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode < http.StatusInternalServerError {
				return resp.StatusCode
			}
		}
	}
	return 0
}

// disturb ends random processes at random times, and takes PostgreSQL away, until the time is over or ctx is done.
func (d *driver) disturb(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.duration)
	defer cancel()
	kinds := []string{"kill -9", "kill -9", "stop", "away"}
	if d.server == nil {
		kinds = kinds[:3]
	}
	for n := 0; ; n++ {
		select {
		case <-time.After(d.trouble/2 + rand.N(d.trouble)):
		case <-ctx.Done():
			return nil
		}
		var err error
		what := kinds[n%len(kinds)]
		if what == "away" {
			d.log.Printf("away: PostgreSQL, for %v", awayFor)
			err = d.server.Stop(pgtest.Immediate) // as a crash does
			time.Sleep(awayFor)
			err = errors.Join(err, d.server.Restart())
		} else {
			i := rand.IntN(len(d.live))
			d.log.Printf("%s %s", what, d.live[i].name)
			err = errors.Join(d.live[i].end(what == "kill -9"), d.start(i))
		}
		if err != nil {
			return err
		}
		d.troubles[what]++
	}
}

// report waits until the books are right, and prints them. Its error names every fault.
func (d *driver) report() error {
	var s summary
	var err error
	end := time.Now().Add(d.window + patience)
	for done := false; !done && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var entries []entry
		if d.dir != "" {
			entries, err = readJournal(d.dir)
		} else {
			entries, err = readTables(context.Background(), d.url)
		}
		s = audit(entries, d.answers)
		done = err == nil && s.faults == nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(d.log.Writer(), `
orders    %d placed = %d paid + %d given back
stock     %d units at the start = %d now + %d sold
survived  %d kills, %d stops, and %d times without PostgreSQL
`, s.placed, s.orders[paid], s.orders[returned], articles*stock, articles*stock-s.sold-s.missing, s.sold,
		d.troubles["kill -9"], d.troubles["stop"], d.troubles["away"])
	if s.faults != nil {
		return errors.New(strings.Join(s.faults, "\nshop: "))
	}
	fmt.Fprintln(d.log.Writer(), "\nThe stock balances to the unit, and the books agree with the answer to every client.")
	return nil
}

// A summary has the figures of the books, and their faults.
type summary struct {
	placed        int
	orders        map[string]int // by state
	sold, missing int            // units; missing ones are neither in the stock nor sold
	faults        []string
}

// audit checks the books and the answers to the clients. The last entry of an order and of an article counts. The stock
// does not balance if an order has taken or returned its units twice, because it changes with each order.
func audit(entries []entry, clients map[string]*answers) summary {
	orders, gone := make(map[string]entry), make(map[int]int)
	for _, e := range entries {
		orders[e.ID], gone[e.Article] = e, e.Gone
	}
	s := summary{placed: len(orders), orders: make(map[string]int)}
	for _, o := range orders {
		s.orders[o.State]++
		if o.State == paid {
			s.sold += o.Units
			gone[o.Article] -= o.Units
		}
	}
	for article, units := range gone {
		s.missing += units
		if units != 0 {
			s.faults = append(s.faults, fmt.Sprintf("article %d has lost %d units", article, units))
		}
	}
	for id, a := range clients {
		if state, ok := states[*a]; !ok || state != orders[id].State {
			s.faults = append(s.faults, fmt.Sprintf("order %s is %q, and its client was answered %+v", id, orders[id].State, *a))
		}
	}
	return s
}

// An answers holds the HTTP statuses that the client of an order got, or 0.
type answers struct{ placed, paid int }

// states has the state of an order after the answers to its client. Other answers must not occur.
var states = map[answers]string{
	{http.StatusOK, http.StatusOK}:   paid,
	{http.StatusOK, http.StatusGone}: returned, // the payment came too late
	{http.StatusOK, 0}:               returned, // there was none
	{http.StatusConflict, 0}:         "",       // sold out
}
