// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const standardPackage = "standardwebhooks@1.1.1" // of npm

// A delivery is a webhook request, with the secret of a receiver. Valid says whether the receiver should accept it.
type delivery struct {
	Name    string            `json:"name"`
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Valid   bool              `json:"valid"`
}

// The verifiers of Standard Webhooks accept the requests of the service with each of its two secrets, and no forged one.
func TestStandardWebhooks(t *testing.T) {
	const text = "a text of the service"
	key := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a key of thirty-two random bytes"))
	headers, body := receive(t, text, key)
	if len(headers) != 3 {
		t.Fatalf("the headers are %v", headers)
	}
	ofText := "whsec_" + base64.StdEncoding.EncodeToString([]byte(text))
	all := []delivery{
		{"the text", ofText, headers, body, true},
		{"the key", key, headers, body, true},
		{"another secret", "whsec_" + base64.StdEncoding.EncodeToString([]byte("another secret of 24 bytes")), headers, body, false},
		{"another body", key, headers, strings.Replace(body, "ann", "eve", 1), false},
	}
	for name, value := range headers {
		forged := maps.Clone(headers)
		last := "1"
		if strings.HasSuffix(value, last) {
			last = "2"
		}
		forged[name] = value[:len(value)-1] + last
		all = append(all, delivery{"another " + name, key, forged, body, false})
	}
	t.Run("go", func(t *testing.T) {
		for _, d := range all {
			of, err := standardwebhooks.NewWebhook(d.Secret)
			if err != nil {
				t.Fatal(err)
			}
			h := make(http.Header)
			for name, value := range d.Headers {
				h.Set(name, value)
			}
			if err := of.Verify([]byte(d.Body), h); (err == nil) != d.Valid {
				t.Errorf("%s: %v", d.Name, err)
			}
		}
	})
	t.Run("javascript", func(t *testing.T) { verifyOnNode(t, all) })
}

// receive returns the headers of Standard Webhooks, and the body, of a request of a service with the secrets.
func receive(t *testing.T, secrets ...string) (headers map[string]string, body string) {
	t.Helper()
	got := make(chan *http.Request, 1)
	at := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		got <- r
	}))
	t.Cleanup(at.Close)
	command, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := new(load)
	service, err := l.start(command, t.TempDir(), at.Listener.Addr().String(), secrets...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = service.Process.Kill()
		_ = service.Wait()
	})
	req, err := http.NewRequest(http.MethodPut, l.url+"/a.b%2Fc%C3%BC", strings.NewReader(`{"kind": "k", "payload": {"to":  "ann"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("the task is answered with %s", resp.Status)
	}
	select {
	case r := <-got:
		headers = make(map[string]string)
		for name, values := range r.Header {
			if name = strings.ToLower(name); strings.HasPrefix(name, "webhook-") {
				headers[name] = values[0]
			}
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return headers, string(text)
	case <-time.After(time.Minute):
		t.Fatal("no webhook is called")
		return nil, ""
	}
}

const verifier = `
import { Webhook } from 'standardwebhooks';
import { readFileSync } from 'node:fs';
for (const { name, secret, headers, body, valid } of JSON.parse(readFileSync(0))) {
  let accepted = true;
  try {
    new Webhook(secret).verify(body, headers);
  } catch (error) {
    if (error.name !== 'WebhookVerificationError' && !/signature/i.test(error.message)) throw error;
    accepted = false;
  }
  console.log((accepted === valid ? 'ok: ' : 'WRONG: ') + name);
}
`

// verifyOnNode checks the deliveries with the package for JavaScript.
func verifyOnNode(t *testing.T, all []delivery) {
	dir := t.TempDir()
	missing := func(what string, err error) {
		t.Helper()
		if err != nil && os.Getenv("CI") != "" {
			t.Fatalf("%s: %v", what, err)
		} else if err != nil {
			t.Skipf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"node", "npm"} {
		_, err := exec.LookPath(name)
		missing(name, err)
	}
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", standardPackage)
	install.Dir = dir
	out, err := install.CombinedOutput()
	missing("npm install: "+string(out), err)
	script := filepath.Join(dir, "verify.mjs")
	if err := os.WriteFile(script, []byte(verifier), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command("node", script)
	run.Dir, run.Stdin = dir, bytes.NewReader(text)
	out, err = run.CombinedOutput()
	if err != nil || strings.Contains(string(out), "WRONG") || strings.Count(string(out), "ok: ") != len(all) {
		t.Errorf("%v:\n%s", err, out)
	}
}
