// SPDX-License-Identifier: MIT

// Dashboard shows the page of package dashboard, for readers who want to try it. It starts two wheels, a durable
// scheduler with two nodes and one on an own engine, all with a simulated load, and serves the page and /metrics for
// Prometheus. Run it, and open the address that it prints:
//
//	go run ./examples/dashboard
//
// The page /trouble/ has buttons that cause trouble, so that the dashboard has something to report. The program runs
// until an interrupt (Ctrl-C), or for the time of -for. Then it prints a line for each wheel and scheduler. A second
// interrupt ends it at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/timewheel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// run serves the pages until ctx is done, or for the time of -for.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	flags.SetOutput(out)
	address := flags.String("addr", "127.0.0.1:8080", "listen on `address`")
	limit := flags.Duration("for", 0, "stop after this `time`; 0 waits for an interrupt")
	if err := flags.Parse(args); err != nil {
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
	orders, source1, err1 := newWheel(registry, "orders", 10*time.Millisecond, 1024)
	sessions, source2, err2 := newWheel(registry, "sessions", 100*time.Millisecond, 600)
	payments, source3, err3 := newCluster(context.Background())
	disk := memory.New()
	mails, source4, err4 := newMails(context.Background(), disk)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	openShop(orders)
	openSessions(sessions)
	orders.Start()
	sessions.Start()

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/trouble/", page(troubles(orders, payments, disk)))
	mux.Handle("/", dashboard.Handler(
		[]dashboard.Source{source1, source2, source3, source4},
		dashboard.AllowControl(onThisMachine), dashboard.AllowPayloads(onThisMachine)))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	fmt.Fprintf(out, "the page        http://%s/\n", listener.Addr())
	fmt.Fprintf(out, "to make trouble http://%s/trouble/\n", listener.Addr())
	fmt.Fprintf(out, "for Prometheus  http://%s/metrics\n", listener.Addr())
	select {
	case err = <-failed:
		return err
	case <-ctx.Done():
	}

	_ = web.Close() // not Shutdown: the request of an open page does not end
	for _, link := range payments.links {
		link.SetDown(false)
	}
	const line = "%-8s %8d tasks added, %8d runs started, %6d failed\n"
	for i, tw := range []*timewheel.TimeWheel{orders, sessions} {
		tw.Stop()
		s := tw.Stats()
		fmt.Fprintf(out, line, []string{"orders", "sessions"}[i], s.Added, s.Started, s.Panicked)
	}
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for i, node := range []*durable.Scheduler{payments.nodes[0], payments.nodes[1], mails} {
		_ = node.Shutdown(grace) // fails if a run takes longer, or once the disk is full
		s := node.Stats()
		fmt.Fprintf(out, line, []string{"web-1", "web-2", "mails"}[i], s.Added, s.Started, s.Failed)
	}
	return nil
}
