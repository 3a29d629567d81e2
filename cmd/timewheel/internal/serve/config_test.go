// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
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
		``:                                  "the text is empty",
		"{\n\"listen\": 1,,}":               "of line 2",
		`{"listn": "x"}`:                    "listn: unknown field (did you mean listen?)",
		kind(https) + "{}":                  "'{' is in the place of the end of the text",
		`{"kinds": {"k": {` + https + `}}}`: `listen: "" is neither`,
		`{"listen": "unix:", "kinds": {"k": {` + https + `}}}`:                  "listen: the path",
		`{"listen": "127.0.0.1:0"}`:                                             "kinds: none",
		`{"listen": "127.0.0.1:0", "drain": "-1s", "kinds": {}}`:                "drain: \"-1s\" must be more than 0",
		`{"listen": "127.0.0.1:0", "drain": "soon"}`:                            "drain: \"soon\" must be a number of seconds or text such as",
		`{"listen": "127.0.0.1:0", "grace": "-1s", "kinds": {}}`:                "grace: -1s is negative",
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
		kind(https + `, "networks": ["x"]`):                                                   "kinds.k.networks[0]: \"x\" must be a network",
		kind(https + `, "timeout": "-1s"`):                                                    "kinds.k.timeout",
		kind(https + `, "task_headers": ["Host"]`):                                            "kinds.k.task_headers[0]: a header of the name \"Host\" cannot be set",
		kind(https + `, "task_headers": ["X A"]`):                                             "kinds.k.task_headers[0]",
		kind(https + `, "headers": {"x-a": "1"}, "task_headers": ["X-A"]`):                    "kinds.k.task_headers[0]: \"X-A\" is one of headers",
		kind(https + `, "on_failure": "other"`):                                               "kinds.k.on_failure: \"other\" must be one of the kinds",
		kind(https + `, "on_failure": "k"`):                                                   "kinds.k.on_failure",
		kind(https + `, "concurrency": -1`):                                                   "kinds.k.concurrency",
		kind(https + `, "cluster_concurrency": -1`):                                           "kinds.k.cluster_concurrency",
		kind(https + `, "rate": {}`):                                                          "kinds.k.rate.runs: it is missing",
		kind(https + `, "cluster_rate": {"runs": 1, "burst": -1}`):                            "kinds.k.cluster_rate",
		kind(https + `, "retry": {"least": "2s", "most": "1s"}`):                              "kinds.k.retry.most: 1s is shorter than least, 2s",
		kind(https + `, "history": {"attempts": -1}`):                                         "kinds.k.history.attempts: -1",
		kind(https + `, "history": {"attempts": 100001}`):                                     "kinds.k.history.attempts: 100001",
		kind(https + `, "history": {"answer": -1}`):                                           "kinds.k.history.answer: -1",
		kind(https + `, "history": {"answer": 4097}`):                                         "kinds.k.history.answer: 4097",
		kind(https + `, "history": {"age": "-1s"}`):                                           "kinds.k.history.age",
		kind(https + `, "method": "GET"`):                                                     "kinds.k.method: \"GET\" must be one of POST, PUT, PATCH, DELETE",
		kind(https + `, "missed": "none"`):                                                    "kinds.k.missed",
		`{"Listen": "127.0.0.1:0"}`:                                                           "Listen: unknown field (did you mean listen?)",
		kind(https + `, "timeout": "1s", "timeout": "2s"`):                                    "kinds.k.timeout: \"2s\" is given twice",
		kind(https + `}, "k": {` + https):                                                     "kinds.k: is given twice",
		kind(https + `, "elsewhere": true`):                                                   "kinds.k.elsewhere",
		`{"listen": "127.0.0.1:0", "kinds": {"k": {"elsewhere": true, "rate": {"runs": 1}}}}`: "kinds.k.elsewhere: a kind",
		`{"listen": 1, "kinds": {}}`:                                                          "listen: 1 must be text",
		`[]`:                                                                                  "must be an object",
		kind(https + `, "tiemout": "1s"`):                                                     "kinds.k.tiemout: unknown field (did you mean timeout?)",
		kind(https + `, "timeout": true`):                                                     "kinds.k.timeout: true must be a number of seconds",
		kind(https + `, "concurrency": "5"`):                                                  "kinds.k.concurrency: \"5\" must be an integer",
		kind(https + `, "rate": {"runs": 1.5}`):                                               "kinds.k.rate.runs: 1.5 must be an integer",
		kind(https + `, "rate": {"runs": 1, "per": "-1s"}`):                                   "kinds.k.rate.per: \"-1s\" must be more than 0",
		kind(https + `, "rate": {"runs": 1, "per": "x"}`):                                     "kinds.k.rate.per: \"x\" must be a number of seconds",
		kind(https + `, "retry": {"attempts": -1}`):                                           "kinds.k.retry.attempts: -1 must be more than 0",
		kind(https + `, "retry": {"least": "-1s"}`):                                           "kinds.k.retry.least: \"-1s\" must be more than 0",
		kind(https + `, "headers": {"X": 1}`):                                                 "kinds.k.headers.X: must be text",
		kind(https + `, "headers": {"X": "env:NONE"}`):                                        "kinds.k.headers.X: the environment variable NONE",
		kind(`"url": "https://a/", "secrets": [1]`):                                           "kinds.k.secrets[0]: must be text",
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
		token(strings.Replace(whole, `["read"]`, `"read"`, 1)):                                "tokens[0].rights: \"read\" must be an array",
		token(strings.Replace(whole, `0123456789abcdef`, `0`, 1)):                             "tokens[0].token: it has 1 bytes",
		token(strings.Replace(whole, `[""]`, `[]`, 1)):                                        "tokens[0].prefixes",
		token(strings.Replace(whole, `["*"]`, `[]`, 1)):                                       "tokens[0].kinds: none",
		token(strings.Replace(whole, `["*"]`, `["mial"]`, 1)):                                 `tokens[0].kinds[0]: "mial"`,
		token(strings.Replace(whole, `["read"]`, `[]`, 1)):                                    "tokens[0].rights: none",
		token(strings.Replace(whole, `["read"]`, `["all"]`, 1)):                               `tokens[0].rights[0]: "all"`,
		token(whole + `, "quota": {}`):                                                        "tokens[0].quota: none of adds, bytes and tasks",
		token(whole + `, "quota": {"per": "1h"}`):                                             "tokens[0].quota: none of adds, bytes and tasks",
		token(whole + `, "quota": {"adds": 0}`):                                               "tokens[0].quota.adds: 0 is not positive",
		token(whole + `, "quota": {"adds": 1, "bytes": -1}`):                                  "tokens[0].quota.bytes: -1 is not positive",
		token(whole + `, "quota": {"tasks": 1e19}`):                                           "tokens[0].quota.tasks: 1e19 must be an integer",
		token(whole + `, "quota": {"adds": 1, "per": "-1s"}`):                                 "tokens[0].quota.per: \"-1s\" must be more than 0",
		token(whole + `, "quota": {"adds": 1, "per": "24h1s"}`):                               "tokens[0].quota.per: 24h0m1s is more than 24h0m0s",
		`{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `}}, "tokens": [null]}`:        "tokens[0]: null",
		admin(`"listen": "127.0.0.1:0", "tls": {"certificate": "none.pem"}`):                  "admin.tls: open",
		admin(`"listen": "127.0.0.1:0", "hosts": "a"`):                                        "admin.hosts: \"a\" must be an array",
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
			"rate": {"runs": 0.5e1}, "retry": {"attempts": 3}, "timeout": 0.5, "history": {}, "park_repeating": true},
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
	equal(t, "the grace", time.Duration(*c.Grace), defaultGrace)
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
		`{"listen": 1, "kinds": {"k": {"uri": "", "timeout": "x"}, "l": 5}}`: "listen kinds.k.uri kinds.k.timeout kinds.l kinds.k.url kinds.k.secrets",
		`{"listn": "x", "kinds": {"k": {` + https + `, "missed": "x"}}}`:     "listn listen kinds.k.missed",
		`[]`: "must be an object", `{"kinds": 5, "tokens": 5, "listen": ":0", "tls": 5}`: "kinds tokens tls",
		// A value of a wrong form is not missed by other fields.
		`{"listen": ":0", "insecure": "yes", "kinds": {"k": {"url": "http://127.0.0.1/", "secrets": [1], "networks": ["x"], "on_failure": "l"},
			"l": 5, "m": {"elsewhere": "yes"}, "n": {` + https + `, "client_certificate": {"certificate": 1}, "rate": {"runs": "1"}}},
			"tokens": [{"name": 1, "token": 1, "prefixes": 1, "kinds": ["l", "x", 1], "rights": 1, "quota": {"adds": "1"}}, 1]}`: `insecure
			kinds.k.secrets[0] kinds.k.networks[0] kinds.l kinds.m.elsewhere kinds.n.client_certificate.certificate kinds.n.rate.runs
			tokens[0].name tokens[0].token tokens[0].prefixes tokens[0].kinds[2] tokens[0].rights tokens[0].quota.adds tokens[1] tokens[0].kinds[1]`,
		`{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `}}, "admin": {"listen": ":0", "tls": 1, "tokens": 1, "control": true, "operate": 1}}`: `admin.tls
			admin.tokens admin.operate`,
		`{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `}}, "admin": {"listen": "127.0.0.1:0", "operate": 1, "tokens": [
			{"name": "a", "token": "a-token-of-the-tests", "rights": ["operate", "read", 1]}]}}`: "admin.operate admin.tokens[0].rights[2] admin.tokens[0].rights[1]",
	} {
		err := new(Config).parse([]byte(text), func(string) string { return "" })
		var got []string
		for line := range strings.Lines(fmt.Sprint(err)) {
			field, _, _ := strings.Cut(line, ":")
			got = append(got, field)
		}
		equal(t, text, strings.Join(got, " "), strings.Join(strings.Fields(want), " "))
	}
}

// A configuration that can never work is refused, and one that differs from it in this alone is not.
func TestLoad_ofAConfigurationThatCannotWork_isRefused(t *testing.T) {
	to := func(url, networks string) string {
		return `{"listen": "127.0.0.1:0", "kinds": {"k": {"url": "` + url + `", "secrets": ["0123456789abcdef"], "networks": [` + networks + `]}}}`
	}
	at := func(listen, admin string) string {
		return `{"listen": "` + listen + `", "admin": {"listen": "` + admin + `", "insecure": true}, "insecure": true,
			"tokens": [{"name": "a", "token": "a-token-of-the-tests", "prefixes": [""], "kinds": ["*"], "rights": ["read"]}],
			"kinds": {"k": {` + https + `}}}`
	}
	secrets := func(first, second, other, token string) string {
		return `{"listen": "127.0.0.1:0", "kinds": {"k": {"url": "https://a/", "secrets": ["` + first + `", "` + second + `"]},
			"l": {"url": "https://a/", "secrets": ["` + other + `"]}},
			"tokens": [{"name": "a", "token": "` + token + `", "prefixes": [""], "kinds": ["*"], "rights": ["read"]}]}`
	}
	with := func(more string) string {
		return `{"listen": "127.0.0.1:0", ` + more + `, "kinds": {"k": {` + https + `}}}`
	}
	kind := func(more string) string {
		return `{"listen": "127.0.0.1:0", "kinds": {"k": {` + https + `, ` + more + `}}}`
	}
	token := func(text, prefix, rights string) string {
		return with(`"tokens": [{"name": "a", "token": "` + text + `", "prefixes": ["` + prefix + `"], "kinds": ["*"], "rights": ` + rights + `}]`)
	}
	const s1, s2, s3 = "the first of the secrets", "the second of the secrets", "the third of the secrets"
	for _, c := range []struct{ works, not, says string }{
		{to("https://127.0.0.1/", `"127.0.0.0/8"`), to("https://127.0.0.1/", ``),
			`kinds.k.url: 127.0.0.1 can be called only if networks contain it, such as "127.0.0.1/32"`},
		{to("https://8.8.8.8/", ``), to("https://10.1.2.3/", ``), `such as "10.1.2.3/32"`},
		{to("http://10.1.2.3/", `"10.1.2.0/24"`), to("http://10.1.2.3/", `"10.1.3.0/24"`), `such as "10.1.2.3/32"`},
		{to("http://8.8.8.8/", `"8.8.8.0/24"`), to("http://8.8.8.8/", `"10.1.3.0/24"`), `such as "8.8.8.8/32"`},
		{to("https://[fd00::1]/", `"fd00::/8"`), to("https://[fd00::1]/", ``), `such as "fd00::1/128"`},
		{to("https://[::ffff:127.0.0.1]/", `"127.0.0.1/32"`), to("https://[::ffff:127.0.0.1]/", ``), `such as "127.0.0.1/32"`},
		{to("https://localhost/", `"127.0.0.1/32"`), to("https://localhost/", ``), `localhost can be called only`},
		{to("https://localhost/", `"::1/128"`), to("https://localhost/", `"::2/128"`), `localhost can be called only`},
		{to("https://a:65535/", ``), to("https://a:65536/", ``), "kinds.k.url: port 65536 is not between 1 and 65535"},
		{to("https://a/", ``), to("https://a:0/", ``), "kinds.k.url: port 0 is not"},
		{to("https://a/", `"10.1.0.0/16"`), to("https://a/", `"10.1.0.0"`),
			`kinds.k.networks[0]: "10.1.0.0" must be a network such as "10.1.0.0/16"; do you mean 10.1.0.0/32 or 10.1.0.0/16?`},
		{to("https://a/", `"10.1.2.3/32"`), to("https://a/", `"10.1.2.3"`), `do you mean 10.1.2.3/32?`},
		{to("https://a/", `"fd00::/8"`), to("https://a/", `"fd00::"`), `do you mean fd00::/128 or fd00::/8?`},
		{to("https://a/", `"0.0.0.0/0"`), to("https://a/", `"0.0.0.0"`), `do you mean 0.0.0.0/32?`},

		{at("127.0.0.1:65535", "127.0.0.1:8471"), at("127.0.0.1:65536", "127.0.0.1:8471"), `listen: port "65536" is neither`},
		{at("127.0.0.1:8470", "127.0.0.1:8471"), at("127.0.0.1:8470", "127.0.0.1:99999"), `admin.listen: port "99999" is neither`},
		{at("127.0.0.1:0", "127.0.0.1:0"), at("127.0.0.1:8470", "127.0.0.1:8470"),
			"admin.listen: 127.0.0.1:8470 is the address of listen, 127.0.0.1:8470"},
		{at("127.0.0.1:8470", "127.0.0.2:8470"), at("127.0.0.1:8470", "localhost:8470"), "admin.listen: localhost:8470 is"},
		{at("0.0.0.0:8470", "[::1]:8470"), at("0.0.0.0:8470", "127.0.0.1:8470"), "admin.listen: 127.0.0.1:8470 is"},
		{at(":8470", "[::1]:8471"), at(":8470", "[::1]:8470"), "admin.listen: [::1]:8470 is"},
		{at("a.example:8470", "b.example:8470"), at("a.example:8470", "a.example:8470"), "admin.listen: a.example:8470 is"},
		{at("unix:a", "unix:b"), at("unix:a", "unix:./a"), "is the address of listen"},

		{to("https://a.localhost./", `"127.0.0.1/32"`), to("https://LOCALHOST./", ``), `localhost can be called only`},
		{to("https://1.a/", ``), to("https://127.1/", ``), "kinds.k.url: 127.1 is neither a name nor an IP address"},
		{to("https://99.1.1.1/", ``), to("https://999.1.1.1/", ``), "999.1.1.1 is neither"},

		{at("unix:a", "127.0.0.1:8471"), at("unix:none/a", "127.0.0.1:8471"), "none is no folder for the Unix socket"},
		{at("unix:a", "127.0.0.1:8471"), at("unix:"+strings.Repeat("a", 200), "127.0.0.1:8471"), "; this system allows 10"},
		{with(`"node": "` + strings.Repeat("n", durable.MaxNodeName) + `"`), with(`"node": "n` + strings.Repeat("n", durable.MaxNodeName) + `"`),
			"node: it must have at most 200 bytes"},
		{with(`"admin": {"listen": "127.0.0.1:0", "hosts": ["a.example", "*"]}`), with(`"admin": {"listen": "127.0.0.1:0", "hosts": ["http://a:80/"]}`),
			`admin.hosts[0]: "http://a:80/" is not the name of a host`},
		{token(`a-token-of-the-tests`, ``, `["write"], "quota": {"adds": 1}`), token(`a-token-of-the-tests`, ``, `["read"], "quota": {"adds": 1}`),
			"tokens[0].quota: it has no effect without the right write"},
		{token(`a-token-of-the-tests`, strings.Repeat("k", durable.MaxKey), `["read"]`), token(`a-token-of-the-tests`, strings.Repeat("k", durable.MaxKey+1), `["read"]`),
			"tokens[0].prefixes[0]: it has 1025 bytes; a key has at most 1024"},
		{token(`a-token-of-the-tests`, ``, `["read"]`), token(`a-token-of-the-tests\n.`, ``, `["read"]`), "tokens[0].token: a header cannot have it"},
		{kind(`"headers": {"X-A": "1", "X-B": "2"}`), kind(`"headers": {"X-A": "1", "x-a": "2"}`), "kinds.k.headers.x-a: it is given twice"},

		{secrets(s1, s2, s1, s3), secrets(s1, s1, s1, s3), "kinds.k.secrets[1]: it is that of kinds.k.secrets[0]"},
		{secrets(s1, s2, s2, s3), secrets(s1, s2, s2, s1), "tokens[0].token: it is that of kinds.k.secrets[0]"},
	} {
		load := func(text string) error {
			return (&Config{dir: t.TempDir()}).parse([]byte(text), func(string) string { return "" })
		}
		if err := load(c.works); err != nil {
			t.Errorf("%s: %v", c.works, err)
		}
		if err := load(c.not); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.not, err, c.says)
		}
	}
}

// A zero that would mean the default is refused. A field that is left out or null has its default.
func TestLoad_ofAZero(t *testing.T) {
	const top, retry, history, rate, shared = "%s", `"retry": {%s}`, `"history": {%s}`, `"rate": {"runs": 1, %s}`, `"cluster_rate": {"runs": 1, %s}`
	in := func(form, field string) string {
		kind := https + ", " + fmt.Sprintf(form, field)
		if form == top {
			return `{"listen": "127.0.0.1:0", ` + field + `, "kinds": {"k": {` + https + `}}}`
		}
		return `{"listen": "127.0.0.1:0", "kinds": {"k": {` + kind + `}}}`
	}
	for _, c := range []struct{ form, name, path string }{
		{top, "drain", "drain"}, {" %s", "timeout", "kinds.k.timeout"}, {" %s", "concurrency", "kinds.k.concurrency"}, {" %s", "dedupe", "kinds.k.dedupe"},
		{" %s", "cluster_concurrency", "kinds.k.cluster_concurrency"}, {retry, "attempts", "kinds.k.retry.attempts"},
		{retry, "least", "kinds.k.retry.least"}, {retry, "most", "kinds.k.retry.most"}, {history, "attempts", "kinds.k.history.attempts"},
		{history, "age", "kinds.k.history.age"}, {rate, "per", "kinds.k.rate.per"}, {rate, "burst", "kinds.k.rate.burst"},
		{shared, "per", "kinds.k.cluster_rate.per"}, {`"rate": {%s}`, "runs", "kinds.k.rate.runs"}, {shared, "burst", "kinds.k.cluster_rate.burst"},
	} {
		for given, works := range map[string]bool{"0": false, "-1": false, "0.0": false, "1": true, "null": c.name != "runs"} {
			err := (&Config{dir: t.TempDir()}).parse([]byte(in(c.form, fmt.Sprintf("%q: %s", c.name, given))), func(string) string { return "" })
			want := c.path + ": " + given + " must be more than 0"
			if given == "null" {
				want = c.path + ": it is missing"
			}
			if works != (err == nil) || !works && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s of %s: %v", c.path, given, err)
			}
		}
	}
	c := config(t, "", in(top, `"grace": 0`))
	equal(t, "the grace", time.Duration(*c.Grace), 0)
	c = config(t, "", in(history, `"answer": 0`))
	equal(t, "the answer", c.Kinds["k"].History.Answer, 0)
	c = config(t, "", in(retry, `"attempts": null, "least": null`))
	equal(t, "the retries", c.Kinds["k"].Retry, Retry{defaultAttempts, Duration(defaultLeast), Duration(defaultMost)})
	err := new(Config).parse([]byte(in(retry, `"attempts": 0, "least": "1h", "most": "1s"`)), func(string) string { return "" })
	equal(t, "the mistakes of retry", fmt.Sprint(err),
		"kinds.k.retry.attempts: 0 must be more than 0; without the field it is the default\nkinds.k.retry.most: 1s is shorter than least, 1h0m0s")
}
