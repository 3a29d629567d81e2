// SPDX-License-Identifier: MIT

package serve

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable/backup"
	"github.com/seed581295f1/timewheel/internal/host"
)

// Admin configures the address for operators.
type Admin struct {
	Listen   string   `json:"listen"`
	TLS      *TLS     `json:"tls"`
	Insecure bool     `json:"insecure"` // Listen may be beyond loopback: anyone who reaches it sees keys and errors
	Hosts    []string `json:"hosts"`    // names under which the page may be reached
	Control  bool     `json:"control"`  // the page may change tasks
	Backup   bool     `json:"backup"`   // /backup copies the store, with all payloads
}

func (k *checker) admin(a *Admin) {
	a.Listen = k.listen("admin.listen", a.Listen, a.TLS, a.Insecure)
	if a.Listen == "" || isLocal(a.Listen) {
		return
	}
	if !a.Insecure {
		k.wrong("admin.insecure", "anyone who reaches %s sees keys and errors; allow it with true", a.Listen)
	}
	for _, one := range []struct {
		name string
		set  bool
	}{{"control", a.Control}, {"backup", a.Backup}} {
		if one.set {
			k.wrong("admin."+one.name, "it is allowed only on loopback and on a Unix socket, and listen is %s", a.Listen)
		}
	}
}

// adminHandler returns the handler of the operators' address.
func (srv *Server) adminHandler(a *Admin, registry *prometheus.Registry, source dashboard.Source) http.Handler {
	opts := []dashboard.Option{dashboard.AllowHosts(a.Hosts...)}
	allow := func(*http.Request) error { return nil } // the configuration is valid, so this address is local
	if a.Control {
		opts = append(opts, dashboard.AllowControl(allow))
	}
	mux := http.NewServeMux()
	mux.Handle("/", dashboard.Handler([]dashboard.Source{source}, opts...))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, srv.s.Err()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, srv.ready()) })
	if a.Backup {
		mux.Handle("/backup", backup.Handler(srv.s, allow))
	}
	return onHosts(a.Hosts, mux)
}

// onHosts refuses requests to other names, as the page does.
func onHosts(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !host.IsAllowed(r.Host, hosts) {
			http.Error(w, fmt.Sprintf("the host %q is none of admin.hosts", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// ready returns an error if callers should use another process.
func (srv *Server) ready() error {
	if srv.ending.Load() {
		return errors.New("the service is stopping")
	}
	if node := srv.s.Stats().Node; node != nil && node.Away {
		return errors.New("the database does not answer")
	}
	return srv.s.Err()
}
