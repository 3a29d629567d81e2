// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Every attempt of a run has the same identifier, and each secret signs it: text is a key, and so is base64 after whsec_.
func TestStandard_eachSecretSigns_andAttemptsShareTheIdentifier(t *testing.T) {
	key := []byte("a key of 24 to 64 bytes.")
	type request struct {
		header http.Header
		body   string
	}
	got := make(chan request, 2)
	at := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header, string(body)}
		if r.Header.Get(headerAttempt) == "1" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r := start(t, config(t, at, strings.Replace(simple, `"$S"`,
		`"$S", "whsec_`+base64.StdEncoding.EncodeToString(key)+`"`, 1)))
	r.must(204, "PUT", "/tasks/"+"a.b%2Fc%C3%BC", `{"kind": "k", "payload": {"a":  1.5}}`)
	r.ends("a.b/cü")
	first, second := <-got, <-got
	for _, one := range []request{first, second} {
		id, unix := one.header.Get("webhook-id"), one.header.Get("webhook-timestamp")
		equal(t, "the identifier", id, strings.ReplaceAll(first.header.Get(headerToken), ".", "%2E"))
		if !strings.HasSuffix(id, "%2Ea%2Eb/c%C3%BC") {
			t.Errorf("the identifier is %s", id)
		}
		seconds, err := strconv.ParseInt(unix, 10, 64)
		check(t, err)
		if time.Since(time.Unix(seconds, 0)).Abs() > time.Hour {
			t.Errorf("the time is %s", unix)
		}
		var want []string
		for _, key := range [][]byte{[]byte(secret), key} {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(id + "." + unix + "." + one.body))
			want = append(want, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		}
		equal(t, "the signature", one.header.Get("webhook-signature"), strings.Join(want, " "))
	}
}

// A secret that begins with whsec_ is a key of the specification, or an error says why not.
func TestSecret_ofStandardWebhooks_isChecked(t *testing.T) {
	of := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for secret, want := range map[string]string{
		of(24): "", of(25): "", of(64): "", "whsecret of sixteen": "",
		of(23):                         "it has 23 bytes after whsec_; 24 to 64 are allowed",
		of(65):                         "it has 65 bytes",
		strings.TrimRight(of(25), "="): "is not base64",
		of(24) + "\n":                  "is not base64",
		"whsec_" + base64.URLEncoding.EncodeToString([]byte(strings.Repeat("\xff", 24))): "is not base64",
	} {
		k := &checker{config: new(Config)}
		k.webhook("kinds.k", &Kind{URL: "https://a/", Secrets: []Secret{Secret(secret)}})
		switch {
		case want == "" && len(k.problems) > 0:
			t.Errorf("%q: %v", secret, k.problems)
		case want != "" && (len(k.problems) != 1 || !strings.Contains(k.problems[0].String(), "kinds.k.secrets[0]: ") ||
			!strings.Contains(k.problems[0].String(), want)):
			t.Errorf("%q: problems %v, want %q", secret, k.problems, want)
		}
	}
}

// The signature is that of HTTP.md.
func TestStandard_isThatOfTheDocument(t *testing.T) {
	m := message{token: "17979cfe362a0000.0.order:42", body: []byte(`{"to":"ann"}`)}
	got := m.standardSignature([]Secret{"0123456789abcdef"}, time.Unix(1_700_000_000, 0))
	readme, err := os.ReadFile("../../HTTP.md")
	check(t, err)
	for _, text := range []string{m.standardID(), got} {
		if !strings.Contains(string(readme), "`"+text+"`") {
			t.Errorf("HTTP.md does not contain %s", text)
		}
	}
}
