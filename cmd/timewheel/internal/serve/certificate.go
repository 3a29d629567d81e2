// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
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
	if !k.knows(field+".certificate", field+".key") {
		return
	}
	t.Certificate, t.Key = k.path(t.Certificate), k.path(t.Key)
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		k.wrong(field, "%v", err)
		return
	}
	k.validNow(field, t.Certificate, pair.Leaf)
	t.pair.Store(&pair)
}

// validNow checks that a certificate of the file is valid now.
func (k *checker) validNow(field, file string, c *x509.Certificate) {
	switch now := time.Now(); {
	case now.After(c.NotAfter):
		k.wrong(field, "certificate %s expired on %s", file, c.NotAfter.Format(time.RFC3339))
	case now.Before(c.NotBefore):
		k.wrong(field, "certificate %s is not valid before %s", file, c.NotBefore.Format(time.RFC3339))
	}
}

// An authority signs the certificates of receivers.
type authority struct {
	pool *x509.CertPool
	last *x509.Certificate // the one that expires last
}

// authority reads the certificates of a file, of which one must be valid now.
func (k *checker) authority(field, file string) *authority {
	text, err := os.ReadFile(file)
	if err != nil {
		k.wrong(field, "%v", err)
		return nil
	}
	a := &authority{pool: x509.NewCertPool()}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue
		}
		a.pool.AddCert(c)
		if a.last == nil || c.NotAfter.After(a.last.NotAfter) {
			a.last = c
		}
	}
	if a.last == nil {
		k.wrong(field, "%s has no certificate in PEM", file)
		return nil
	}
	k.validNow(field, file, a.last)
	return a
}

// forConnections returns a configuration that uses the certificate as last read.
func (t *TLS) forConnections() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.pair.Load(), nil },
		MinVersion:     tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}
}

// receiverTLS checks how the receiver of a kind is recognized, and how the service identifies itself to it.
func (k *checker) receiverTLS(field string, of *Kind) {
	for name, set := range map[string]bool{"ca_file": of.CAFile != "", "client_certificate": of.ClientCertificate != nil} {
		if set && of.target != nil && of.target.Scheme == "http" {
			k.wrong(field+"."+name, "the URL has no TLS")
		}
	}
	if of.CAFile != "" {
		of.CAFile = k.path(of.CAFile)
		of.authority = k.authority(field+".ca_file", of.CAFile)
	}
	if of.ClientCertificate != nil {
		k.certificate(field+".client_certificate", of.ClientCertificate)
	}
}

// tls returns the configuration of connections to the receiver.
func (of *Kind) tls() *tls.Config {
	c := new(tls.Config) // with the authorities of the system
	if of.authority != nil {
		c.RootCAs = of.authority.pool
	}
	if of.ClientCertificate != nil {
		c.Certificates = []tls.Certificate{*of.ClientCertificate.pair.Load()}
	}
	return c
}

// A certificate is one that the service uses.
type certificate struct {
	field   string // of the configuration
	expires time.Time
}

// certificates returns the certificates that the service uses now.
func (srv *Server) certificates() (all []certificate) {
	add := func(field string, t *TLS) {
		if t != nil {
			all = append(all, certificate{field, t.pair.Load().Leaf.NotAfter})
		}
	}
	add("tls", srv.cfg.TLS)
	if srv.cfg.Admin != nil {
		add("admin.tls", srv.cfg.Admin.TLS)
	}
	for _, name := range slices.Sorted(maps.Keys(srv.webhooks)) {
		of := srv.webhooks[name].Load().of
		if of.authority != nil {
			all = append(all, certificate{"kinds." + name + ".ca_file", of.authority.last.NotAfter})
		}
		add("kinds."+name+".client_certificate", of.ClientCertificate)
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
		to <- prometheus.MustNewConstMetric(expires, prometheus.GaugeValue, float64(c.expires.Unix()), c.field)
	}
}
