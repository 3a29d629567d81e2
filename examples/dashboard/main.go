// SPDX-License-Identifier: MIT

// Dashboard starts two wheels, a durable scheduler with two nodes and one on an own engine, all with a simulated load. It
// serves the dashboard, which can also remove, run and reschedule tasks, and /metrics for Prometheus. Run the program
// and open the address that it prints.
//
// The page /trouble/ has buttons that jam the workers, make jobs panic and handlers fail, pause tasks, and forget a
// kind. Other buttons cut off a node, stop the engine, and fill the own engine's disk. After an interrupt (Ctrl-C), the
// program prints a line for each wheel and scheduler and exits. A second interrupt ends it at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/examples/internal/buttons"
	"github.com/seed581295f1/timewheel/metrics"
	"github.com/seed581295f1/timewheel/timewheel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// run serves the pages until ctx is done, or for the duration of -for.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	flags.SetOutput(out)
	address := flags.String("addr", "127.0.0.1:8080", "listen on `address`")
	limit := flags.Duration("for", 0, "stop after so much `time`; 0 is at an interrupt")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	orders, err := newWheel(registry, "orders", 10*time.Millisecond, 1024)
	if err != nil {
		return err
	}
	sessions, err := newWheel(registry, "sessions", 100*time.Millisecond, 600)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	nodes, err := startCluster(context.WithoutCancel(ctx)) // shut down at the end
	if err != nil {
		return err
	}
	mails, err := openPost(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	mux.Handle("/trouble/", newTrouble(orders.tw, nodes, mails))
	mux.Handle("/", dashboard.Handler([]dashboard.Source{
		dashboard.Wheel("orders", orders.tw, orders.rec),
		dashboard.Wheel("sessions", sessions.tw, sessions.rec),
		dashboard.Scheduler("payments", nodes.nodes[0], nodes.rec),
		dashboard.Scheduler("mails", mails.tasks, mails.rec),
	}, dashboard.AllowControl(buttons.OnThisMachine), dashboard.AllowPayloads(buttons.OnThisMachine)))
	shop, server := openShop(orders.tw), openServer(sessions.tw)
	orders.tw.Start()
	sessions.tw.Start()

	pages, closePages := context.WithCancel(context.Background())
	defer closePages()
	srv := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return pages },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	fmt.Fprintf(out, "the page        http://%s/\n", listener.Addr())
	fmt.Fprintf(out, "to make trouble http://%s/trouble/\n", listener.Addr())
	fmt.Fprintf(out, "for Prometheus  http://%s/metrics\n", listener.Addr())

	go shop.sell(ctx)
	go server.serve(ctx)

	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	closePages() // or Shutdown would wait for the open pages
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // a browser opens connections in advance that it has not used yet
	}
	nodes.shutdown(grace)
	_ = mails.tasks.Shutdown(grace)
	for _, tw := range []*timewheel.TimeWheel{orders.tw, sessions.tw} {
		if tw.Shutdown(grace) != nil {
			tw.Stop() // cancels the context of the runs in progress
		}
	}
	report(out, map[string]*timewheel.TimeWheel{"orders": orders.tw, "sessions": sessions.tw},
		map[string][]*durable.Scheduler{"payments": nodes.nodes[:], "mails": {mails.tasks}})
	return nil
}

// report prints the counters of the wheels and of the durable schedulers.
func report(out io.Writer, wheels map[string]*timewheel.TimeWheel, schedulers map[string][]*durable.Scheduler) {
	line := func(name string, added, started, failed uint64) {
		fmt.Fprintf(out, "%-8s %8d tasks added, %8d runs started, %6d failed\n", name, added, started, failed)
	}
	fmt.Fprintln(out)
	for _, name := range slices.Sorted(maps.Keys(wheels)) {
		s := wheels[name].Stats()
		line(name, s.Added, s.Started, s.Panicked)
	}
	for _, name := range slices.Sorted(maps.Keys(schedulers)) {
		var added, started, failed uint64
		for _, node := range schedulers[name] {
			s := node.Stats()
			added, started, failed = added+s.Added, started+s.Started, failed+s.Failed
		}
		line(name, added, started, failed)
	}
}

// workers is the maximum number of concurrent jobs on a wheel.
const workers = 64

// A wheel is a timing wheel with its recorder.
type wheel struct {
	tw  *timewheel.TimeWheel
	rec *dashboard.Recorder
}

// newWheel returns a wheel with a recorder, and registers the wheel's metrics.
func newWheel(registry *prometheus.Registry, name string, tick time.Duration, slots int) (wheel, error) {
	rec, runs := dashboard.NewRecorder(), metrics.NewRuns()
	quiet := logrus.New()
	quiet.SetOutput(io.Discard) // the page shows the panics
	tw, err := timewheel.New(tick, slots,
		timewheel.WithPoolSize(workers),
		timewheel.WithLogger(quiet),
		rec.Option(),
		runs.Option())
	if err != nil {
		return wheel{}, err
	}
	if err := registry.Register(metrics.NewCollector(tw, name, metrics.WithRuns(runs))); err != nil {
		return wheel{}, err
	}
	return wheel{tw, rec}, nil
}
