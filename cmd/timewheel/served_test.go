// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/cmd/timewheel/internal/serve"
)

// A serving is a service in this process, and a rig whose commands it runs.
type serving struct {
	rig
	db     string // replaces dir, with the schema
	schema string
	dir    string // of the store
	config string
	log    *logged
	admin  string // the address
	end    func() // nil while it does not run
}

// The tokens of operators in the tests.
const (
	annsToken = "the token of ann, of the tests"
	bobsToken = "the token of bob, of the tests"
)

// newServing starts a service with an empty store and the kinds mine and other, whose receiver does not listen. The operators are in
// addition to ann, who may do everything.
func newServing(t *testing.T, operators ...string) *serving {
	t.Helper()
	s := &serving{dir: filepath.Join(t.TempDir(), "tasks")}
	s.rig = rig{T: t, serves: s}
	s.write(`"listen": "127.0.0.1:0"`, operators...)
	s.start()
	return s
}

// write writes the configuration with the fields of the operators' address.
func (s *serving) write(admin string, operators ...string) {
	s.Helper()
	if s.config == "" {
		s.config, s.log = filepath.Join(s.TempDir(), "serve.json"), new(logged)
		s.Cleanup(s.stop)
	}
	operators = append(operators, `{"name": "ann", "token": "`+annsToken+`", "rights": ["operate", "backup"]}`)
	const kind = `{"url": "http://127.0.0.1:1/", "networks": ["127.0.0.1/32"], "secrets": ["a secret of the tests"]}`
	check(s.T, os.WriteFile(s.config, []byte(`{"listen": "127.0.0.1:0", "kinds": {"mine": `+kind+`, "other": `+kind+`},
		"admin": {`+admin+`, "operate": true, "control": true, "backup": true, "tokens": [`+strings.Join(operators, ", ")+`]}}`), 0o600))
}

func (s *serving) start() {
	s.Helper()
	cfg, err := serve.Load(s.config, os.Getenv)
	check(s.T, err)
	p := &program{now: func() time.Time { return now }}
	srv, err := serve.Open(context.Background(), cfg, serve.Place{Dir: s.dir, DB: s.db, Schema: s.schema, Commander: p.command}, slog.New(slog.NewTextHandler(s.log, nil)))
	check(s.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx, nil, nil) }()
	s.end = func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	}
	s.admin = srv.AdminAddr().String()
	s.place = []string{"-url", "http://" + s.admin, "-token-file", s.token(annsToken)}
}

func (s *serving) stop() {
	if s.end != nil {
		s.end()
		s.end = nil
	}
}

// token writes a token to a file, and returns its name.
func (s *serving) token(token string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), "token")
	check(s.T, os.WriteFile(path, []byte(token+"\n"), 0o600))
	return path
}

// certify writes a certificate of 127.0.0.1 and its key to cert.pem and key.pem.
func certify(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		check(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}
