// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TLS names the files of a certificate and its key, in PEM.
type TLS struct {
	Certificate string `json:"certificate" reload:"yes"`
	Key         string `json:"key" reload:"yes"`

	pair atomic.Pointer[tls.Certificate] // as last read
}

// certificate reads the files, and checks that the certificate is valid now.
func (k *checker) certificate(field string, t *TLS) {
	t.Certificate, t.Key = k.path(t.Certificate), k.path(t.Key)
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		k.wrong(field, "%v", err)
		return
	}
	switch now := time.Now(); {
	case now.After(pair.Leaf.NotAfter):
		k.wrong(field, "certificate %s expired on %s", t.Certificate, pair.Leaf.NotAfter.Format(time.RFC3339))
	case now.Before(pair.Leaf.NotBefore):
		k.wrong(field, "certificate %s is not valid before %s", t.Certificate, pair.Leaf.NotBefore.Format(time.RFC3339))
	}
	t.pair.Store(&pair)
}

// forConnections returns a configuration that uses the certificate as last read.
func (t *TLS) forConnections() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.pair.Load(), nil },
		MinVersion:     tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}
}

func (t *TLS) expires() time.Time { return t.pair.Load().Leaf.NotAfter }

// receiverTLS checks how the receiver of a kind is recognized, and how the service identifies itself to it.
func (k *checker) receiverTLS(field string, of *Kind) {
	for name, set := range map[string]bool{"ca_file": of.CAFile != "", "client_certificate": of.ClientCertificate != nil} {
		if set && of.target != nil && of.target.Scheme == "http" {
			k.wrong(field+"."+name, "the URL has no TLS")
		}
	}
	if of.CAFile != "" {
		of.CAFile = k.path(of.CAFile)
		text, err := os.ReadFile(of.CAFile)
		of.roots = x509.NewCertPool()
		if err != nil {
			k.wrong(field+".ca_file", "%v", err)
		} else if !of.roots.AppendCertsFromPEM(text) {
			k.wrong(field+".ca_file", "%s has no certificate in PEM", of.CAFile)
		}
	}
	if of.ClientCertificate != nil {
		k.certificate(field+".client_certificate", of.ClientCertificate)
	}
}

// tls returns the configuration of connections to the receiver.
func (of *Kind) tls() *tls.Config {
	c := &tls.Config{RootCAs: of.roots} // nil is the system's
	if of.ClientCertificate != nil {
		c.Certificates = []tls.Certificate{*of.ClientCertificate.pair.Load()}
	}
	return c
}

// A certificate is one that the service uses.
type certificate struct {
	field string // of the configuration
	tls   *TLS
}

// certificates returns the certificates that the service uses now.
func (srv *Server) certificates() (all []certificate) {
	add := func(field string, t *TLS) {
		if t != nil {
			all = append(all, certificate{field, t})
		}
	}
	add("tls", srv.cfg.TLS)
	if srv.cfg.Admin != nil {
		add("admin.tls", srv.cfg.Admin.TLS)
	}
	for _, name := range slices.Sorted(maps.Keys(srv.webhooks)) {
		add(fmt.Sprintf("kinds.%s.client_certificate", name), srv.webhooks[name].Load().of.ClientCertificate)
	}
	return all
}

// expiries are the metrics of the certificates.
type expiries struct{ srv *Server }

var expires = prometheus.NewDesc("timewheel_serve_certificate_expires_timestamp_seconds",
	"When a certificate expires, by its field of the configuration.", []string{"field"}, nil)

// Describe implements prometheus.Collector.
func (expiries) Describe(to chan<- *prometheus.Desc) { to <- expires }

// Collect implements prometheus.Collector.
func (e expiries) Collect(to chan<- prometheus.Metric) {
	for _, c := range e.srv.certificates() {
		to <- prometheus.MustNewConstMetric(expires, prometheus.GaugeValue, float64(c.tls.expires().Unix()), c.field)
	}
}
