// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// certify writes a new certificate and its key, and returns the certificate.
func certify(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	return certifyFrom(t, dir, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

func certifyFrom(t *testing.T, dir string, from, to time.Time) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: to,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	write := func(name, kind string, b []byte) {
		check(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
	}
	write("cert.pem", "CERTIFICATE", cert)
	write("key.pem", "PRIVATE KEY", private)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	return pool
}

// withTLS is a configuration with a certificate, and with more fields.
func withTLS(more string) string {
	return strings.ReplaceAll(`{"listen": "127.0.0.1:0", "tls": {"certificate": "cert.pem", "key": "key.pem"}, `+more+
		`"kinds": {"k": {`+local+`}}}`, "$R", "127.0.0.1:1")
}

func TestListen_withTLS(t *testing.T) {
	f := newFile(t, "")
	pool := certify(t, f.dir)
	f.write(withTLS(""))
	r := start(t, f.load())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + r.srv.Addr().String() + "/tasks")
	check(t, err)
	resp.Body.Close()
	equal(t, "the status", resp.StatusCode, 200)
	if resp, err := http.Get(r.url + "/tasks"); err == nil {
		resp.Body.Close()
		equal(t, "the status without TLS", resp.StatusCode, 400)
	}
}

// A certificate that is not valid now is refused with its date, wherever it is used. One that is valid is not.
func TestLoad_certificateOutsideItsTime_isRefused(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	for name, c := range map[string]struct {
		from, to time.Time
		says     string
	}{
		"valid":   {now.Add(-time.Hour), now.Add(time.Hour), ""},
		"expired": {now.Add(-2 * time.Hour), now.Add(-time.Hour), "cert.pem expired on " + now.Add(-time.Hour).Format(time.RFC3339)},
		"early":   {now.Add(time.Hour), now.Add(2 * time.Hour), "cert.pem is not valid before " + now.Add(time.Hour).Format(time.RFC3339)},
	} {
		f := newFile(t, "")
		certifyFrom(t, f.dir, c.from, c.to)
		const files = `{"certificate": "cert.pem", "key": "key.pem"}`
		for field, text := range map[string]string{
			"tls":                        withTLS(""),
			"admin.tls":                  strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0", "tls": `+files+`}, `, 1),
			"kinds.k.client_certificate": `{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `, "client_certificate": ` + files + `}}}`,
			"kinds.k.ca_file":            `{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `, "ca_file": "cert.pem"}}}`,
		} {
			f.write(strings.ReplaceAll(text, "$R", "127.0.0.1:1"))
			_, err := Load(f.path, os.Getenv)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), field+": certificate ") ||
				!strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s, %s: %v, want %s", name, field, err, c.says)
			}
		}
	}
}

// A receiver whose certificate is of another authority is called only with ca_file, and one that asks for a certificate
// of the client only with client_certificate. Both are read at a signal.
func TestWebhook_ofAnotherAuthority_isCalledWithItsFiles(t *testing.T) {
	own, its := t.TempDir(), t.TempDir()
	clients := certify(t, own)
	certify(t, its)
	pair, err := tls.LoadX509KeyPair(filepath.Join(its, "cert.pem"), filepath.Join(its, "key.pem"))
	check(t, err)
	var calls atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	s.StartTLS()
	t.Cleanup(s.Close)
	text := func(more string) string {
		return fmt.Sprintf(`{"listen": "127.0.0.1:0", "kinds": {"k": {"url": "%s/", "networks": ["127.0.0.1/32"], "secrets": ["$S"],
			"retry": {"attempts": 10000, "least": "1ms", "most": "1ms"} %s}}}`, s.URL, more)
	}
	f := newFile(t, text(""))
	r := start(t, f.load())
	failsWith := func(why string) {
		t.Helper()
		until(t, "it fails with "+why, func() bool { info, _ := r.info("a"); return strings.Contains(info.Failure, why) })
	}
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
	failsWith("certificate signed by unknown authority")
	ca := fmt.Sprintf(`, "ca_file": "%s/cert.pem"`, its)
	f.write(text(ca))
	r.reloads(readAgain)
	failsWith("certificate required")
	f.write(text(ca + fmt.Sprintf(`, "client_certificate": {"certificate": "%s/cert.pem", "key": "%[1]s/key.pem"}`, own)))
	r.reloads(readAgain)
	r.ends("a")
	equal(t, "the number of calls", calls.Load(), 1)
}

// The files of a kind must have certificates, and its URL TLS.
func TestLoad_ofFilesForReceivers_namesTheMistake(t *testing.T) {
	f := newFile(t, "")
	certify(t, f.dir)
	check(t, os.WriteFile(filepath.Join(f.dir, "text.pem"), []byte("text"), 0o600))
	for fields, says := range map[string]string{
		https + `, "ca_file": "cert.pem"`:                                                "",
		https + `, "ca_file": "none.pem"`:                                                "kinds.k.ca_file: open ",
		https + `, "ca_file": "text.pem"`:                                                "has no certificate in PEM",
		https + `, "client_certificate": {"certificate": "cert.pem", "key": "text.pem"}`: "kinds.k.client_certificate: ",
		local + `, "ca_file": "cert.pem"`:                                                "kinds.k.ca_file: the URL has no TLS",
		local + `, "client_certificate": {"certificate": "cert.pem", "key": "key.pem"}`:  "kinds.k.client_certificate: the URL has no TLS",
	} {
		f.write(strings.ReplaceAll(`{"listen": "127.0.0.1:0", "kinds": {"k": {`+fields+`}}}`, "$R", "127.0.0.1:1"))
		if _, err := Load(f.path, os.Getenv); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", fields, err, says)
		}
	}
}

// A metric says when each certificate expires, and it is that of the certificate in use. One that has expired is not used.
func TestMetrics_sayWhenCertificatesExpire(t *testing.T) {
	const files = `{"certificate": "cert.pem", "key": "key.pem"}`
	f := newFile(t, `{"listen": "127.0.0.1:0", "tls": `+files+`, "admin": {"listen": "127.0.0.1:0"},
		"kinds": {"k": {`+https+`, "client_certificate": `+files+`}, "l": {`+https+`, "ca_file": "cert.pem"}}}`)
	now := time.Now().Truncate(time.Second)
	certifyFrom(t, f.dir, now.Add(-time.Hour), now.Add(time.Hour))
	r := start(t, f.load())
	r.url = "http://" + r.srv.AdminAddr().String()
	says := func(after time.Duration) {
		t.Helper()
		metrics := r.must(200, "GET", "/metrics", "")
		for _, field := range []string{"tls", "kinds.k.client_certificate", "kinds.l.ca_file"} {
			want := fmt.Sprintf("timewheel_serve_certificate_expires_timestamp_seconds{field=%q} %v\n", field, float64(now.Add(after).Unix()))
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics have no %s", want)
			}
		}
		equal(t, "the certificates", strings.Count(metrics, "\ntimewheel_serve_certificate_expires"), 3)
	}
	says(time.Hour)
	certifyFrom(t, f.dir, now.Add(-time.Hour), now.Add(1000*time.Hour))
	r.reloads(readAgain)
	says(1000 * time.Hour)
	certifyFrom(t, f.dir, now.Add(-time.Hour), now.Add(-time.Minute))
	r.reloads(staysSo)
	equal(t, "the reason in the log", r.log.count("expired on "+now.Add(-time.Minute).UTC().Format(time.RFC3339)), 3)
	says(1000 * time.Hour)
}
