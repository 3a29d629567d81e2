// SPDX-License-Identifier: MIT

// Dashboard shows the page of package dashboard, for readers who want to try it: go run ./examples/dashboard, and open
// the address that it prints. It starts two wheels, a durable scheduler with two nodes and one on an own engine, all
// with a simulated load, and serves the page and /metrics for Prometheus.
//
// The page /trouble/ has buttons that cause trouble, so that the dashboard has something to report. The program runs
// until an interrupt (Ctrl-C), or for the time of -for. Then it prints a line for each wheel and node. A second
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
	"strings"
	"sync"
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
	mux.Handle("/", dashboard.Handler([]dashboard.Source{source1, source2, source3, source4},
		dashboard.AllowControl(onThisMachine), dashboard.AllowPayloads(onThisMachine)))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	fmt.Fprintf(out, "the page        http://%[1]s/\nto make trouble http://%[1]s/trouble/\n"+
		"for Prometheus  http://%[1]s/metrics\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	_ = web.Close() // not Shutdown: the request of an open page does not end
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

// A button causes trouble, or ends it. One is pressed at a time.
type button struct {
	name, text string
	press      func() error
}

func troubles(orders *timewheel.TimeWheel, c *cluster, disk *memory.KV) []button {
	ctx, node, n, free := context.Background(), c.nodes[0], 0, make(chan struct{})
	quietly := func(f func()) func() error { return func() error { f(); return nil } }
	due := func(jobs int, job timewheel.Job) (err error) { // adds jobs that are all due at once
		for range jobs {
			n++
			task := timewheel.Task{Key: fmt.Sprintf("trouble-%04d", n), Delay: 1, Job: job}
			err = errors.Join(err, orders.AddTask(&task))
		}
		return err
	}
	many := func(kind string, tasks int) func() error {
		return func() error {
			n++
			return errors.Join(node.Declare(kind), node.AddTask(ctx, batch(fmt.Sprint(kind, ":", n), kind, tasks, 0)...))
		}
	}
	jam := func(most time.Duration) func() error {
		return func() error {
			until := free
			return due(workers, func(task *timewheel.Task) {
				select {
				case <-time.After(most):
				case <-until:
				case <-task.Context().Done():
				}
			})
		}
	}
	return []button{
		{"jam", "Jam all workers of the wheel “orders” for two minutes: periods are missed", jam(2 * time.Minute)},
		{"miss", "Miss periods, by jamming all workers for three seconds", jam(3 * time.Second)},
		{"free", "Free the workers", quietly(func() { close(free); free = make(chan struct{}) })},
		{"panic", "Panic in five jobs", func() error { return due(5, func(*timewheel.Task) { panic("no answer") }) }},
		{"stop", "Stop the wheel “orders” for good", quietly(orders.Stop)},
		{"fail", "Let the payments fail until they are parked", quietly(func() { c.failing.Store(true) })},
		{"mend", "Mend the payments, and unpark them on the dashboard", quietly(func() { c.failing.Store(false) })},
		{"pause", "Pause the payments: due tasks wait, and that is no alarm", func() error { return node.PauseKind(ctx, "payment.capture") }},
		{"resume", "Resume the payments", func() error { return node.ResumeKind(ctx, "payment.capture") }},
		{"pause one", "Pause one task: the others of its kind run", func() error { return node.Pause(ctx, "report:02") }},
		{"resume one", "Resume the task", func() error { return node.Resume(ctx, "report:02") }},
		{"kill", "Cut off the node web-2: the other takes over its tasks", quietly(func() { c.links[1].SetDown(true) })},
		{"revive", "Connect the node web-2 again", quietly(func() { c.links[1].SetDown(false) })},
		{"away", "Take the engine away for 20 seconds, and have a backlog then", quietly(func() {
			for _, link := range c.links {
				link.SetDown(true)
				time.AfterFunc(20*time.Second, func() { link.SetDown(false) })
			}
		})},
		{"rush", "Send 500 mails at once, of a kind that may start ten in a second", many("mail.send", 500)},
		{"forget", "Forget a kind: twelve tasks that no node handles", many("sms.send", 12)},
		{"full", "Fill the disk of the scheduler “mails”, which ends it", quietly(func() { disk.SetFault(syscall.ENOSPC) })},
	}
}

const form = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Trouble</title>
<form method="post">%s<p><a href="../" target="dashboard">The dashboard</a></form></html>
`

// page serves a page with the buttons, to this machine and its own page only.
func page(all []button) http.Handler {
	var text strings.Builder
	for _, b := range all {
		fmt.Fprintf(&text, "<p><button name=\"make\" value=\"%s\">%s</button>\n", b.name, b.text)
	}
	var mu sync.Mutex
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := onThisMachine(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, form, &text)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		err := errors.New("there is no such button")
		for _, b := range all {
			if b.name == r.PostFormValue("make") {
				err = b.press()
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, ".", http.StatusSeeOther)
	}))
}

// onThisMachine returns nil if a request comes from this machine and its Host is localhost or a loopback address. So
// every user of the machine may control the demo; a real check would authenticate the user. Without the check of the
// Host, a site in the user's browser could point its own name at this machine.
func onThisMachine(r *http.Request) error {
	for _, address := range []string{r.RemoteAddr, r.Host} {
		host, _, err := net.SplitHostPort(address)
		if err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback() {
			return fmt.Errorf("the demo is not controlled from %q", address)
		}
	}
	return nil
}
