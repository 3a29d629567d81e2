// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/pebble"
	"github.com/seed581295f1/timewheel/durable/postgres"
	"github.com/seed581295f1/timewheel/metrics"
)

// The time limits of the servers.
const (
	headerLimit = 10 * time.Second
	readLimit   = time.Minute
	writeLimit  = 2 * requestLimit
	idleLimit   = 2 * time.Minute
	mostFields  = 64 << 10 // bytes of a request's headers

	callersGrace = 5 * time.Second // for the requests in progress at the end
	adminGrace   = time.Second
	checkEvery   = time.Second // whether the store has failed
)

// A Place is where the tasks are stored: a directory or a database.
type Place struct {
	Dir         string
	DB          string
	Schema      string
	Cluster     string
	Connections int // to the database; 0 is the default of package postgres

	Commander Commander // runs the commands of operators; nil: there are none

	scheduler   func(opts []durable.Option) (*durable.Scheduler, error) // for tests: replaces the other fields
	descriptors int                                                     // for tests: the limit of the process
}

// A Server is the service. Open makes one.
type Server struct {
	s       *durable.Scheduler
	cfg     *Config
	log     *slog.Logger
	close   func()         // the engine
	lowered map[string]int // as fit returns it
	api     *http.Server
	admin   *http.Server // nil if there is none
	at      net.Listener
	adminAt net.Listener
	gate    *gate // of callers

	callers   *api
	operators atomic.Pointer[[]*Operator]
	webhooks  map[string]*current // by kind
	answers   *prometheus.CounterVec

	refusing chan struct{} // of the gates
	ending   atomic.Bool
	pages    context.CancelFunc // ends the open pages
}

// Open opens the store or the database, and starts listening. No task runs, and no request is answered, before Run. It
// lowers the concurrency of the kinds if the process has too few file descriptors, and returns an error if it has far too
// few.
func Open(ctx context.Context, cfg *Config, place Place, log *slog.Logger) (*Server, error) {
	parts, err := cfg.divide(place)
	if err != nil {
		return nil, err
	}
	workers := cfg.workers() // before the concurrency is lowered, so that it is the only limit
	srv := &Server{
		cfg: cfg, log: log, close: func() {}, lowered: cfg.fit(parts), refusing: make(chan struct{}, mostRefusing),
		webhooks: make(map[string]*current),
	}
	if short := cfg.shortage(parts, srv.lowered); short != "" {
		log.Warn(short)
	}
	recorder, attempts := dashboard.NewAttemptRecorder(), metrics.NewAttempts()
	opts := []durable.Option{
		durable.WithSlog(log), durable.WithPoolSize(workers), recorder.Option(), attempts.Option(),
	}
	if cfg.Node != "" {
		opts = append(opts, durable.WithNodeName(cfg.Node))
	}
	health, err := srv.open(ctx, place, opts)
	if err == nil {
		if err = srv.prepare(parts, place.Commander, health, recorder, attempts); err != nil {
			srv.closeListeners()
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callersGrace)
			err = errors.Join(err, srv.s.Shutdown(end))
			cancel()
		}
	}
	if err != nil {
		srv.close()
		return nil, err
	}
	return srv, nil
}

// open makes the scheduler. It returns the engine, or nil if the engine does not report its health.
func (srv *Server) open(ctx context.Context, place Place, opts []durable.Option) (_ engine.HealthReporter, err error) {
	if place.scheduler != nil {
		srv.s, err = place.scheduler(opts)
		return nil, err
	}
	if place.Dir != "" {
		e, err := pebble.Open(ctx, place.Dir)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(place.Dir); err == nil && runtime.GOOS != "windows" && info.Mode()&0o077 != 0 {
			srv.log.Warn("other users of the machine can open the directory of the store; only its owner should (chmod 700)",
				"dir", place.Dir, "mode", info.Mode().Perm().String())
		}
		if srv.s, err = durable.New(ctx, e, opts...); err != nil {
			return nil, errors.Join(err, e.Close())
		}
		return nil, nil
	}
	on := []postgres.Option{postgres.WithSchema(place.Schema), postgres.WithCluster(place.Cluster)}
	if place.Connections > 0 {
		on = append(on, postgres.WithConnections(place.Connections))
	}
	e, err := postgres.Open(ctx, place.DB, on...)
	if err != nil {
		return nil, err
	}
	srv.close = e.Close
	srv.s, err = durable.New(ctx, e, opts...)
	return e, err
}

// prepare registers the kinds, and opens the addresses.
func (srv *Server) prepare(
	parts division, commander Commander, health engine.HealthReporter, recorder *dashboard.AttemptRecorder,
	attempts *metrics.Attempts,
) error {
	const name = "serve"
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "timewheel_serve_requests_total", Help: "Requests of callers.",
	}, []string{"method", "code"})
	registry.MustRegister(requests, expiries{srv}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		metrics.NewSchedulerCollector(srv.s, name, metrics.WithAttempts(attempts)))
	source := dashboard.Scheduler(name, srv.s, recorder).WithNotes(srv.notes)
	if health != nil {
		registry.MustRegister(metrics.NewEngineCollector(health, name))
		source = source.WithEngine(health)
	}
	err := srv.handle(registry)
	if err != nil {
		return err
	}
	srv.callers = newAPI(srv.s, srv.cfg, srv.log, requests)
	srv.api = newServer(srv.callers.handler(), srv.log)
	if srv.at, srv.gate, err = srv.listen(srv.cfg.Listen, srv.cfg.TLS, parts.callers, srv.api); err != nil {
		return err
	}
	registry.MustRegister(srv.callers.refused, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "timewheel_serve_refused_connections_total", Help: "Connections of callers that were refused for want of file descriptors.",
	}, func() float64 { return float64(srv.gate.refused.Load()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "timewheel_serve_attempts_waiting_for_descriptors", Help: "Attempts that wait for want of file descriptors.",
	}, func() float64 { return float64(srv.waiting()) }))
	a := srv.cfg.Admin
	if a == nil {
		return nil
	}
	srv.operators.Store(&a.Tokens)
	srv.admin = newServer(srv.adminHandler(a, registry, source, commander), srv.log)
	pages, cancel := context.WithCancel(context.Background())
	srv.pages = cancel
	srv.admin.BaseContext = func(net.Listener) context.Context { return pages }
	srv.adminAt, _, err = srv.listen(a.Listen, a.TLS, parts.admin, srv.admin)
	return err
}

func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerLimit, ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit,
		MaxHeaderBytes: mostFields, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// Addr returns the address of callers.
func (srv *Server) Addr() net.Addr { return srv.at.Addr() }

// AdminAddr returns the address of operators, or nil if there is none.
func (srv *Server) AdminAddr() net.Addr {
	if srv.adminAt == nil {
		return nil
	}
	return srv.adminAt.Addr()
}

// Run serves until ctx is done, and then drains: it accepts no further request, starts no further run, and waits for
// the runs in progress. It returns an error if the store fails, or if runs are still in progress at the end of the
// drain. It rereads the configuration at each signal of reload.
//
// A signal of stop makes the service unready, and starts the drain after the grace. An interrupt or a further signal
// starts it at once.
func (srv *Server) Run(ctx context.Context, reload, stop <-chan os.Signal) error {
	if err := srv.s.Start(); err != nil {
		return errors.Join(err, srv.drain(ctx))
	}
	ended := make(chan error, 2)
	serve := func(s *http.Server, l net.Listener) { ended <- s.Serve(l) }
	go serve(srv.api, srv.at)
	about := []any{"listen", srv.at.Addr().String()}
	if srv.admin != nil {
		go serve(srv.admin, srv.adminAt)
		about = append(about, "admin", srv.adminAt.Addr().String())
	}
	srv.log.Info("serving", about...)
	descriptors := lookout{log: srv.log}
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	var grace <-chan time.Time
	end := func() error {
		srv.log.Info("stopping", "drain", time.Duration(srv.cfg.Drain).String())
		err := srv.drain(ctx)
		srv.log.Info("stopped")
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return end()
		case <-grace:
			return end()
		case signal := <-stop:
			if grace != nil || signal == os.Interrupt {
				return end()
			}
			srv.ending.Store(true)
			srv.log.Info("unready, and stopping soon", "grace", time.Duration(*srv.cfg.Grace).String())
			grace = time.After(time.Duration(*srv.cfg.Grace))
		case <-reload:
			srv.reload()
		case err := <-ended:
			return errors.Join(err, srv.drain(ctx))
		case now := <-check.C:
			descriptors.look(srv.waiting(), srv.gate.refused.Load(), now)
			if srv.s.Err() != nil {
				return srv.drain(ctx) // returns the error as well
			}
		}
	}
}

func (srv *Server) drain(ctx context.Context) error {
	srv.ending.Store(true)
	drain := time.Duration(srv.cfg.Drain)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- srv.s.Shutdown(ctx) }() // at once, because clients may keep the requests waiting
	callers, cancelCallers := context.WithTimeout(ctx, min(callersGrace, drain/2))
	if srv.api.Shutdown(callers) != nil {
		_ = srv.api.Close() // of clients that send or read too slowly
	}
	cancelCallers()
	err := <-stopped
	if srv.admin != nil {
		srv.pages()
		admin, cancelAdmin := context.WithTimeout(context.WithoutCancel(ctx), adminGrace)
		if srv.admin.Shutdown(admin) != nil {
			_ = srv.admin.Close()
		}
		cancelAdmin()
	}
	srv.closeListeners()
	srv.close()
	return err
}

func (srv *Server) closeListeners() {
	for _, l := range []net.Listener{srv.at, srv.adminAt} {
		if l != nil {
			_ = l.Close()
		}
	}
}
