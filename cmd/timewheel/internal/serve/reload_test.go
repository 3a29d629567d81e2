// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What the log says after a signal.
const (
	readAgain = "the configuration is read again"
	staysSo   = "so everything stays as it was"
)

// A file is a configuration file, in a folder of its own.
type file struct {
	*testing.T
	dir, path string
}

func newFile(t *testing.T, text string) file {
	t.Helper()
	dir := t.TempDir()
	f := file{t, dir, filepath.Join(dir, "serve.json")}
	f.write(text)
	return f
}

func (f file) write(text string) {
	f.Helper()
	check(f.T, os.WriteFile(f.path, []byte(strings.ReplaceAll(text, "$S", secret)), 0o600))
}

func (f file) load() *Config {
	f.Helper()
	c, err := Load(f.path, os.Getenv)
	check(f.T, err)
	return c
}

// reloads sends the signal, and waits until the log says that.
func (r *rig) reloads(says string) {
	r.Helper()
	n := r.log.count(says)
	r.reload <- syscall.SIGHUP
	until(r.T, "the log says: "+says, func() bool { return r.log.count(says) == n+1 })
}

// New connections get the certificate as last read, and open ones stay. Files that cannot be read change nothing.
func TestReload_readsTheCertificatesAgain(t *testing.T) {
	f := newFile(t, withTLS(`"admin": {"listen": "127.0.0.1:0", "tls": {"certificate": "cert.pem", "key": "key.pem"}}, `))
	first := certify(t, f.dir)
	r := start(t, f.load())
	accepts := func(address net.Addr, pool *x509.CertPool) bool {
		c, err := tls.Dial("tcp", address.String(), &tls.Config{RootCAs: pool})
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	has := func(what string, pool, not *x509.CertPool) {
		t.Helper()
		for _, address := range []net.Addr{r.srv.Addr(), r.srv.AdminAddr()} {
			if !accepts(address, pool) || accepts(address, not) {
				t.Errorf("%s: a connection has the wrong certificate", what)
			}
		}
	}
	open := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: first}}}
	defer open.CloseIdleConnections()
	get := func() {
		t.Helper()
		resp, err := open.Get("https://" + r.srv.Addr().String() + "/tasks")
		check(t, err)
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		check(t, err)
		equal(t, "the status", resp.StatusCode, 200)
	}
	get()
	second := certify(t, f.dir)
	has("before the signal", first, second)
	r.reloads(readAgain)
	has("after it", second, first)
	equal(t, "the certificates in the log", r.log.count("a certificate is read again"), 2)
	get() // on the open connection
	key := filepath.Join(f.dir, "key.pem")
	was, err := os.ReadFile(key)
	check(t, err)
	third := certify(t, f.dir)
	check(t, os.WriteFile(key, was, 0o600)) // of another certificate
	r.reloads(staysSo)
	has("with a wrong key", second, third)
	check(t, os.Remove(key))
	r.reloads(staysSo)
	has("without a file", second, third)
	third = certify(t, f.dir)
	r.reloads(readAgain)
	has("with good files again", third, second)
}

// While a secret is rotated both sign, and the headers of a kind change as well.
func TestReload_rotatesSecretsAndHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	at := receiver(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	text := func(secrets, password string) string {
		return `{"listen": "127.0.0.1:0", "kinds": {"k": {"url": "http://` + at + `/", "networks": ["127.0.0.1/32"],
			"secrets": [` + secrets + `], "headers": {"Authorization": "` + password + `"}}}}`
	}
	const first, second = "the first of the secrets", "the second of the secrets"
	f := newFile(t, text(`"`+first+`"`, "a"))
	r := start(t, f.load())
	signs := func(password string, secrets ...Secret) {
		t.Helper()
		r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
		h := <-got
		r.ends("a")
		m := message{kind: h.Get(headerKind), key: h.Get(headerKey), token: h.Get(headerToken), attempt: h.Get(headerAttempt),
			fence: h.Get(headerFence), due: h.Get(headerDue)}
		signature := h.Get(headerSignature)
		var unix int64
		_, err := fmt.Sscanf(signature, "t=%d,", &unix)
		check(t, err)
		equal(t, "the signature", signature, m.sign(secrets, time.Unix(unix, 0)))
		equal(t, "the password", h.Get("Authorization"), password)
	}
	signs("a", first)
	f.write(text(`"`+second+`", "`+first+`"`, "b"))
	signs("a", first)
	r.reloads(readAgain)
	signs("b", second, first)
	f.write(text(`"`+second+`"`, "b"))
	r.reloads(readAgain)
	signs("b", second)
	f.write(text(`"short"`, "c"))
	r.reloads(staysSo)
	signs("b", second)
	equal(t, "the reason in the log", r.log.count("kinds.k.secrets[0]: it has 5 bytes"), 1)
}

// A token gets another value or other rights, and tokens come and go. The places for batches stay, and so do the rights
// of a request in progress.
func TestReload_replacesTokens(t *testing.T) {
	text := func(tokens string) string {
		return `{"listen": "127.0.0.1:0", "tokens": [` + tokens + `], "kinds": {"k": {` + https + `}}}`
	}
	token := func(name, value, rights string) string {
		return `{"name": "` + name + `", "token": "` + value + `", "prefixes": [""], "kinds": ["*"], "rights": [` + rights + `]}`
	}
	const first, second, third = "the first of the tokens", "the second of the tokens", "the third of the tokens"
	f := newFile(t, text(token("a", first, `"write", "read"`)))
	r := start(t, f.load())
	statuses := func(of string, read, write int) {
		t.Helper()
		r.bearer = of
		r.must(read, "GET", "/tasks", "")
		r.must(write, "PUT", "/tasks/x", `{"kind": "k", "delay": "1h"}`)
	}
	statuses(first, 200, 204)
	statuses(second, 401, 401)
	body, sent := io.Pipe()
	req, err := http.NewRequest("POST", r.url+"/tasks", body)
	check(t, err)
	r.bearer = first
	answers := make(chan answered, 1)
	go func() { answers <- r.send(req) }()
	_, err = io.WriteString(sent, `{"key": "y", `)
	check(t, err)
	callers := func() []*caller { return *r.srv.callers.callers.Load() }
	until(t, "the batch has a place", func() bool { return len(callers()[0].batches) == 1 })

	f.write(text(token("b", third, `"write"`) + ", " + token("a", second, `"read"`)))
	r.reloads(readAgain)
	equal(t, "the places taken", len(callers()[1].batches), 1)
	equal(t, "the places taken by the other", len(callers()[0].batches), 0)
	_, err = io.WriteString(sent, `"kind": "k", "delay": "1h"}`)
	check(t, errors.Join(err, sent.Close()))
	if got := <-answers; got.status != 200 || !strings.Contains(got.body, `"status":204`) {
		t.Errorf("the request in progress is answered with %d: %s", got.status, got.body)
	}
	equal(t, "the places taken after it", len(callers()[1].batches), 0)
	statuses(first, 401, 401)
	statuses(second, 200, 403)
	statuses(third, 403, 204)

	f.write(text(""))
	r.reloads(readAgain)
	equal(t, "the fields that need a restart", r.log.count("fields=tokens"), 1)
	statuses(second, 200, 403)
	statuses("", 401, 401)
}

// A token may have a right to a kind that is there only after a restart. Until then no task of the kind is added.
func TestReload_ofAKindThatNeedsARestart(t *testing.T) {
	text := func(of, kinds string) string {
		return `{"listen": "127.0.0.1:0", "tokens": [
			{"name": "a", "token": "a token of the tests", "prefixes": [""], "kinds": [` + of + `], "rights": ["read", "write"]},
			{"name": "b", "token": "another token of the tests", "prefixes": [""], "kinds": ["*"], "rights": ["read", "write"]}],
			"kinds": {"k": {` + https + `}` + kinds + `}}`
	}
	f := newFile(t, text(`"k"`, ""))
	r := start(t, f.load())
	f.write(text(`"k", "sms"`, `, "sms": {`+https+`}`))
	r.reloads(readAgain)
	equal(t, "the fields that need a restart", r.log.count("fields=kinds.sms"), 1)
	refuses := func(token, body, method, path string, headers ...string) {
		t.Helper()
		if got := r.do(method, path, body, headers...); got.status != 400 || !strings.Contains(got.body, "kind\",\"given\":\"\\\"sms") {
			t.Errorf("%s %s with %s: %d: %s", method, path, token, got.status, got.body)
		}
	}
	for _, token := range []string{"a token of the tests", "another token of the tests"} {
		r.bearer = token
		const task = `{"kind": "sms", "delay": "1h"}`
		refuses(token, task, "PUT", "/tasks/a")
		refuses(token, task, "PUT", "/tasks/a", "Idempotency-Key", "1")
		refuses(token, task, "PUT", "/tasks/a", "If-None-Match", "*")
		refuses(token, `{"version": 1, "tasks": [{"key": "n:a", "kind": "sms", "interval": "1h"}]}`, "PUT", "/schedules/n:")
		for _, op := range []string{"put", "add"} {
			got := jsonLines(t, r.must(200, "POST", "/tasks", `{"op": "`+op+`", "key": "a", "kind": "sms"}`+"\n"+`{"op": "`+op+`", "key": "`+token+op+`", "kind": "k", "delay": "1h"}`))
			if got[0]["status"] != 400.0 || got[1]["status"].(float64) >= 300 {
				t.Errorf("%s of a batch: %v", op, got)
			}
		}
		for _, action := range []string{"count", "unpark", "run", "pause", "resume", "cancel", "remove"} {
			equal(t, action, r.must(200, "POST", "/tasks/"+action, `{"kind": "sms"}`), `{"tasks":0}`+"\n")
		}
		r.must(200, "GET", "/tasks?kind=sms", "")
		r.must(200, "GET", "/history?kind=sms", "")
		r.must(404, "POST", "/tasks/a/reschedule", `{"delay": 1}`)
		r.must(404, "DELETE", "/tasks/a", "")
	}
	equal(t, "the tasks", r.srv.s.Len(), 4)
}

// The fields that need a restart are named, and all others are not. A receiver that has another URL after the restart
// does not lend its headers to that of today.
func TestReload_namesWhatNeedsARestart(t *testing.T) {
	passwords := make(chan string, 1)
	at := receiver(t, func(_ http.ResponseWriter, r *http.Request) { passwords <- r.Header.Get("Authorization") })
	const before = `{"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}, "kinds": {
		"k": {` + local + `, "headers": {"Authorization": "old"}}, "gone": {` + https + `}, "there": {"elsewhere": true}}}`
	for _, c := range []struct{ text, fields string }{
		{before, ""},
		{strings.Replace(before, `"old"`, `"new"`, 1), ""},
		{`{"listen": "127.0.0.2:0", "drain": "1s", "node": "x", "log": "json", "insecure": true, "kinds": {"k": {` + https + `,
			"headers": {"Authorization": "new"}, "concurrency": 7, "rate": {"runs": 1}, "timeout": 1}, "new": {` + https + `}, "there": {` + https + `}}}`,
			"admin drain insecure kinds.gone kinds.k.concurrency kinds.k.networks kinds.k.rate kinds.k.retry.attempts " +
				"kinds.k.retry.least kinds.k.retry.most kinds.k.timeout kinds.k.url kinds.new kinds.there.concurrency " +
				"kinds.there.content_type kinds.there.dedupe kinds.there.elsewhere kinds.there.method kinds.there.missed kinds.there.retry.attempts " +
				"kinds.there.retry.least kinds.there.retry.most kinds.there.timeout kinds.there.url listen log node"},
		{strings.Replace(before, `"admin": {`, `"admin": {"hosts": ["a"], `, 1), "admin.hosts"},
	} {
		f := newFile(t, strings.ReplaceAll(before, "$R", at))
		r := startOn(t, f.load(), Place{Dir: t.TempDir(), descriptors: 300})
		equal(t, "a warning of low descriptors", r.log.count("concurrency is lowered"), 1)
		f.write(strings.ReplaceAll(c.text, "$R", at))
		r.reloads(readAgain)
		line := ""
		for l := range strings.Lines(r.log.String()) {
			if _, fields, is := strings.Cut(l, "need a restart\" fields="); is {
				line = strings.Trim(fields, "\"\n")
			}
		}
		equal(t, "the fields", line, c.fields)
		r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
		want := "old"
		if c.fields == "" && c.text != before {
			want = "new"
		}
		equal(t, "the password with "+c.fields, <-passwords, want)
		r.ends("a")
		check(t, r.stop())
	}
}

// Reloads disturb neither requests of callers nor webhooks.
func TestReload_disturbsNoRequest(t *testing.T) {
	const callers, each = 4, 100
	var calls atomic.Int32
	at := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		if attempt := r.Header.Get(headerAttempt); attempt != "1" {
			t.Errorf("attempt %s", attempt)
		}
		calls.Add(1)
	})
	text := func(n int) string {
		return strings.ReplaceAll(fmt.Sprintf(`{"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}, "tokens": [
			{"name": "a", "token": "a token of the tests", "prefixes": [""], "kinds": ["*"], "rights": ["read", "write"]},
			{"name": "b%d", "token": "another token of the tests", "prefixes": [""], "kinds": ["*"], "rights": ["read"]}],
			"kinds": {"k": {%s, "headers": {"X": "%[1]d"}}}}`, n, local), "$R", at)
	}
	f := newFile(t, text(0))
	r := start(t, f.load())
	r.bearer = "a token of the tests"
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				req, err := http.NewRequest("PUT", r.url+"/tasks/"+keyOf("a", c*each+i), strings.NewReader(`{"kind": "k"}`))
				if err == nil {
					if got := r.send(req); got.status != 204 {
						t.Errorf("a request is answered with %d: %s", got.status, got.body)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			status(t, "http://"+r.srv.AdminAddr().String()+"/metrics")
		}
	})
	for n := range 20 {
		f.write(text(n))
		r.reloads(readAgain)
	}
	wg.Wait()
	until(t, "all have ended", func() bool { return r.srv.s.Len() == 0 })
	equal(t, "the number of calls", calls.Load(), callers*each)
}
