// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/tls"
	"sync/atomic"
)

// TLS names the files of a certificate and its key, in PEM.
type TLS struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`

	pair atomic.Pointer[tls.Certificate] // as last read
}

// read reads the files. If it returns an error, the certificate stays the same.
func (t *TLS) read() error {
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err == nil {
		t.pair.Store(&pair)
	}
	return err
}

// forConnections returns a configuration that uses the certificate as last read.
func (t *TLS) forConnections() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.pair.Load(), nil },
		MinVersion:     tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}
}
