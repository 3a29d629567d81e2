// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const https = `"url": "https://hooks.example/k", "secrets": ["0123456789abcdef"]`

// Each mistake has an error that names the field.
func TestLoad_ofAMistake_namesTheField(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serve.json")
	kind := func(fields string) string {
		return `{"listen": "127.0.0.1:0", "kinds": {"k": {` + fields + `}}}`
	}
	token := func(fields string) string {
		return `{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `}}, "tokens": [{` + fields + `}]}`
	}
	admin := func(fields string) string {
		return `{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `}}, "admin": {` + fields + `}}`
	}
	const whole = `"name": "a", "token": "0123456789abcdef", "prefixes": [""], "kinds": ["*"], "rights": ["read"]`
	for text, want := range map[string]string{
		``:                                  "EOF",
		"{\n\"listen\": 1,,}":               "line 2",
		`{"listn": "x"}`:                    "listn: unknown field",
		kind(https) + "{}":                  "text after the configuration",
		`{"kinds": {"k": {` + https + `}}}`: `listen: "" is neither`,
		`{"listen": "unix:", "kinds": {"k": {` + https + `}}}`:                  "listen: the path",
		`{"listen": "127.0.0.1:0"}`:                                             "kinds: none",
		`{"listen": "127.0.0.1:0", "drain": "-1s", "kinds": {}}`:                "drain: -1s is negative",
		`{"listen": "127.0.0.1:0", "drain": "soon"}`:                            "drain: duration \"soon\" is neither text such as",
		`{"listen": "127.0.0.1:0", "log": "xml"}`:                               "log: \"xml\" must be one of text, json",
		`{"listen": ":0", "kinds": {"k": {` + https + `}}}`:                     "listen: :0 is beyond loopback",
		`{"listen": ":0", "insecure": true, "kinds": {"k": {` + https + `}}}`:   "tokens: none are given",
		`{"listen": "10.0.0.1:0", "kinds": {"k": {` + https + `}}}`:             "tokens: none are given",
		`{"listen": "127.0.0.1:0", "tls": {}, "kinds": {"k": {` + https + `}}}`: "tls: ",
		`{"listen": "127.0.0.1:0", "kinds": {"k": null}}`:                       "kinds.k: null",
		`{"listen": "127.0.0.1:0", "kinds": {"*": {` + https + `}}}`:            "name \"*\"",
		kind(``):                                                                              "kinds.k.url: it is missing",
		kind(`"url": "ftp://a/"`):                                                             "kinds.k.url: \"ftp://a/\" is not an http",
		kind(`"url": "https:///path"`):                                                        "with a host",
		kind(`"url": "https://u:p@a/"`):                                                       "a user and a fragment",
		kind(`"url": "http://a/"`):                                                            "kinds.k.url: http needs networks",
		kind(`"url": "https://a/"`):                                                           "kinds.k.secrets: none",
		kind(`"url": "https://a/", "secrets": ["short"]`):                                     "kinds.k.secrets[0]: it has 5 bytes",
		kind(`"url": "https://a/", "secrets": ["env:NONE"]`):                                  "variable NONE is empty",
		kind(`"url": "https://a/", "secrets": ["file:none"]`):                                 "kinds.k.secrets[0]: open",
		kind(https + `, "networks": ["10.0.0.1/8"]`):                                          "do you mean 10.0.0.0/8?",
		kind(https + `, "networks": [""]`):                                                    "kinds.k.networks[0]",
		kind(https + `, "networks": ["x"]`):                                                   "kinds.k.networks[0]: netip.ParsePrefix",
		kind(https + `, "timeout": "-1s"`):                                                    "kinds.k.timeout",
		kind(https + `, "concurrency": -1`):                                                   "kinds.k.concurrency",
		kind(https + `, "cluster_concurrency": -1`):                                           "kinds.k.cluster_concurrency",
		kind(https + `, "rate": {}`):                                                          "kinds.k.rate",
		kind(https + `, "cluster_rate": {"runs": 1, "burst": -1}`):                            "kinds.k.cluster_rate",
		kind(https + `, "retry": {"least": "2s", "most": "1s"}`):                              "kinds.k.retry",
		kind(https + `, "history": {"attempts": -1}`):                                         "kinds.k.history.attempts: -1",
		kind(https + `, "history": {"attempts": 100001}`):                                     "kinds.k.history.attempts: 100001",
		kind(https + `, "history": {"answer": -1}`):                                           "kinds.k.history.answer: -1",
		kind(https + `, "history": {"answer": 257}`):                                          "kinds.k.history.answer: 257",
		kind(https + `, "history": {"age": "-1s"}`):                                           "kinds.k.history.age",
		kind(https + `, "method": "GET"`):                                                     "kinds.k.method: \"GET\" must be one of POST, PUT, PATCH, DELETE",
		kind(https + `, "missed": "none"`):                                                    "kinds.k.missed",
		kind(https + `, "elsewhere": true`):                                                   "kinds.k.elsewhere",
		`{"listen": "127.0.0.1:0", "kinds": {"k": {"elsewhere": true, "rate": {"runs": 1}}}}`: "kinds.k.elsewhere: a kind",
		`{"listen": 1, "kinds": {}}`:                                                          "listen: a JSON number is not allowed here",
		`[]`:                                                                                  "a JSON array is not allowed here",
		kind(https + `, "tiemout": "1s"`):                                                     "kinds.k.tiemout: unknown field",
		kind(https + `, "timeout": true`):                                                     "kinds.k.timeout: duration true",
		kind(https + `, "concurrency": "5"`):                                                  "kinds.k.concurrency: a JSON string",
		kind(https + `, "rate": {"runs": 1.5}`):                                               "kinds.k.rate.runs: a JSON number 1.5",
		kind(https + `, "rate": {"runs": 1, "per": "-1s"}`):                                   "kinds.k.rate.per: -1s",
		kind(https + `, "rate": {"runs": 1, "per": "x"}`):                                     "kinds.k.rate.per: duration",
		kind(https + `, "retry": {"attempts": -1}`):                                           "kinds.k.retry: -1 attempts",
		kind(https + `, "retry": {"least": "-1s"}`):                                           "kinds.k.retry.least: -1s",
		kind(https + `, "headers": {"X": 1}`):                                                 "kinds.k.headers.X: a JSON number",
		kind(https + `, "headers": {"X": "env:NONE"}`):                                        "kinds.k.headers.X: the environment variable NONE",
		kind(https + `, "secrets": [1]`):                                                      "kinds.k.secrets[0]: a JSON number",
		kind(https + `, "headers": {"Timewheel-Key": "a"}`):                                   "kinds.k.headers.Timewheel-Key",
		kind(https + `, "headers": {"content-length": "a"}`):                                  "kinds.k.headers.content-length",
		kind(https + `, "headers": {"webhook-id": "a"}`):                                      "kinds.k.headers.webhook-id",
		kind(https + `, "headers": {"User-Agent": "a"}`):                                      "kinds.k.headers.User-Agent",
		kind(https + `, "headers": {"idempotency-key": "a"}`):                                 "kinds.k.headers.idempotency-key",
		kind(https + `, "headers": {"X-Idempotency-Key": "a"}`):                               "kinds.k.headers.X-Idempotency-Key",
		kind(https + `, "headers": {"X": "a\nb"}`):                                            "kinds.k.headers.X",
		kind(https + `, "content_type": "a\nb"`):                                              "kinds.k.content_type",
		token(strings.Replace(whole, `"a"`, `""`, 1)):                                         "tokens[0].name",
		token(whole + `}, {` + whole):                                                         `tokens[1].name: "a" is used twice`,
		token(whole + `}, {` + strings.Replace(whole, `"a"`, `"b"`, 1)):                       "tokens[1].token: it is that of tokens[0]",
		token(strings.Replace(whole, `["read"]`, `"read"`, 1)):                                "tokens[0].rights: a JSON string",
		token(strings.Replace(whole, `0123456789abcdef`, `0`, 1)):                             "tokens[0].token: it has 1 bytes",
		token(strings.Replace(whole, `[""]`, `[]`, 1)):                                        "tokens[0].prefixes",
		token(strings.Replace(whole, `["*"]`, `[]`, 1)):                                       "tokens[0].kinds: none",
		token(strings.Replace(whole, `["*"]`, `["mial"]`, 1)):                                 `tokens[0].kinds: "mial"`,
		token(strings.Replace(whole, `["read"]`, `[]`, 1)):                                    "tokens[0].rights: none",
		token(strings.Replace(whole, `["read"]`, `["all"]`, 1)):                               `tokens[0].rights: "all"`,
		`{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `}}, "tokens": [null]}`:        "tokens[0]: null",
		admin(`"listen": "127.0.0.1:0", "tls": {"certificate": "none.pem"}`):                  "admin.tls: open",
		admin(`"listen": "127.0.0.1:0", "hosts": "a"`):                                        "admin.hosts: a JSON string",
		admin(``):               "admin.listen",
		admin(`"listen": ":0"`): "admin.insecure",
		admin(`"listen": ":0", "insecure": true, "control": true`): "admin.control",
		admin(`"listen": ":0", "insecure": true, "backup": true`):  "admin.backup",
	} {
		check(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path, func(string) string { return "" })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestLoad_readsSecrets_andSetsDefaults(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("of a file 123456\n"), 0o600))
	path := filepath.Join(dir, "serve.json")
	check(t, os.WriteFile(path, []byte(`{"listen": "unix:socket", "kinds": {
		"k": {"url": "https://a/", "secrets": ["file:secret", "env:OTHER"], "headers": {"Authorization": "env:OTHER"},
			"rate": {"runs": 5}, "retry": {"attempts": 3}, "timeout": 0.5, "history": {}, "park_repeating": true},
		"e": {"elsewhere": true}}}`), 0o600))
	c, err := Load(path, func(name string) string { return "of " + name + " 1234567890" })
	check(t, err)
	k := c.Kinds["k"]
	equal(t, "listen", c.Listen, "unix:"+filepath.Join(dir, "socket"))
	equal(t, "the first secret", string(k.Secrets[0]), "of a file 123456")
	equal(t, "the second secret", string(k.Secrets[1]), "of OTHER 1234567890")
	equal(t, "the header", k.headers.Get("Authorization"), "of OTHER 1234567890")
	equal(t, "the timeout", time.Duration(k.Timeout), 500*time.Millisecond)
	equal(t, "the drain", time.Duration(c.Drain), defaultDrain)
	equal(t, "the concurrency", k.Concurrency, defaultConcurrency)
	equal(t, "the burst", k.Rate.Burst, 5)
	equal(t, "the retries", k.Retry, Retry{3, Duration(time.Second), Duration(time.Hour)})
	equal(t, "the history", *k.History, History{1000, Duration(24 * time.Hour), 0})
	equal(t, "whether repeating tasks are parked", k.ParkRepeating, true)
	equal(t, "the content type", k.ContentType, "application/json")
	equal(t, "the number of workers", c.workers(), defaultConcurrency)
	if text := fmt.Sprintf("%v %+v %s", k.Secrets, *k, k.Secrets[0]); strings.Contains(text, "of a file") {
		t.Errorf("a secret is printed: %s", text)
	}
}

// All mistakes are named at once.
func TestLoad_ofManyMistakes_namesThemAll(t *testing.T) {
	for text, want := range map[string]string{
		`{"listen": "x", "log": "xml", "kinds": {"k": {"url": "ftp://a"}}}`:  "listen log kinds.k.url kinds.k.secrets",
		`{"listen": 1, "kinds": {"k": {"uri": "", "timeout": "x"}, "l": 5}}`: "kinds.k.timeout kinds.k.uri kinds.l listen",
	} {
		err := new(Config).parse([]byte(text), func(string) string { return "" })
		var got []string
		for line := range strings.Lines(fmt.Sprint(err)) {
			field, _, _ := strings.Cut(line, ":")
			got = append(got, field)
		}
		equal(t, text, strings.Join(got, " "), want)
	}
}
