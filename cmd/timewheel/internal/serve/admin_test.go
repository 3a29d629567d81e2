// SPDX-License-Identifier: MIT

package serve

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// operators is a configuration with tokens on the address of operators, and with more fields there.
func operators(tokens, more string) string {
	return `{"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0", "control": true, "backup": true, "tokens": [` + tokens + `]` + more +
		`}, "kinds": {"k": {` + https + `}}}`
}

func operator(name, token, rights string) string {
	return `{"name": "` + name + `", "token": "` + token + `", "rights": [` + rights + `]}`
}

const (
	anns     = "the token of ann, of the tests"
	scrapers = "the token of a scraper"
	form     = "application/x-www-form-urlencoded"
)

// A token has exactly its rights. Health needs none, and a browser sends the token as a password.
func TestAdmin_withTokens_letsEachDoWhatItMay(t *testing.T) {
	f := newFile(t, operators(operator("ann", anns, `"page", "control"`)+", "+operator("prometheus", scrapers, `"metrics"`)+", "+
		operator("night", "the token of backups", `"backup"`), ""))
	r := start(t, f.load())
	api := r.url
	r.url = "http://" + r.srv.AdminAddr().String()
	basic := func(name, token string) string {
		req := &http.Request{Header: make(http.Header)}
		req.SetBasicAuth(name, token)
		return req.Header.Get("Authorization")
	}
	for _, c := range []struct {
		authorization                          string
		page, metrics, health, control, backup int
	}{
		{"", 401, 401, 200, 401, 401},
		{"Bearer wrong", 401, 401, 200, 401, 401},
		{"Bearer " + anns, 200, 403, 200, 200, 403},
		{basic("ann", anns), 200, 403, 200, 200, 403},
		{basic("prometheus", anns), 401, 401, 200, 401, 401},
		{basic("ann", ""), 401, 401, 200, 401, 401},
		{"Bearer " + scrapers, 403, 200, 200, 403, 403},
		{basic("prometheus", scrapers), 403, 200, 200, 403, 403},
		{basic("night", "the token of backups"), 403, 403, 200, 403, 200},
	} {
		for _, request := range []struct {
			method, path string
			want         int
		}{
			{"GET", "/", c.page}, {"GET", "/api/sources", c.page}, {"GET", "/metrics", c.metrics}, {"GET", "/healthz", c.health},
			{"GET", "/readyz", c.health}, {"POST", "/api/pause-all", c.control}, {"POST", "/backup", c.backup},
		} {
			got := r.do(request.method, request.path, "scheduler=serve", "Content-Type", form, "Authorization", c.authorization)
			equal(t, c.authorization+": the status of "+request.path, got.status, request.want)
			equal(t, "whether a browser is asked", strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Basic "), got.status == 401)
		}
	}
	r.must(403, "GET", "/", "", "Host", "evil.example", "Authorization", "Bearer "+anns)
	r.url = api
	r.must(200, "GET", "/tasks", "") // of callers, who have no tokens

	f.write(operators(operator("ann", "another token of ann", `"page"`), ""))
	r.reloads(readAgain)
	r.url = "http://" + r.srv.AdminAddr().String()
	r.must(401, "GET", "/", "", "Authorization", "Bearer "+anns)
	r.must(401, "GET", "/metrics", "", "Authorization", "Bearer "+scrapers)
	r.must(200, "GET", "/", "", "Authorization", "Bearer another token of ann")
	r.must(403, "POST", "/api/pause-all", "scheduler=serve", "Content-Type", form, "Authorization", "Bearer another token of ann")
	f.write(operators("", ""))
	r.reloads(readAgain)
	equal(t, "the fields that need a restart", r.log.count("fields=admin.tokens"), 1)
	r.must(401, "GET", "/", "")
}

// Without a token health says no more than that it is bad, or that the service is stopping.
func TestAdmin_withTokens_keepsTheReasonOfBadHealth(t *testing.T) {
	f := newFile(t, operators(operator("ann", anns, `"page"`), ""))
	r := start(t, f.load())
	r.url = "http://" + r.srv.AdminAddr().String()
	r.term <- syscall.SIGTERM
	until(t, "it is not ready", func() bool { return r.do("GET", "/readyz", "").status == 503 })
	equal(t, "the answer", r.must(503, "GET", "/readyz", ""), "the service is stopping\n")
	equal(t, "the answer for ann", r.must(503, "GET", "/readyz", "", "Authorization", "Bearer "+anns), "the service is stopping\n")
	for authorization, want := range map[string]string{"": "failed; the log and the page say why\n", "Bearer " + anns: "the disk of db.example is full\n"} {
		w, request := httptest.NewRecorder(), httptest.NewRequest("GET", "/healthz", nil)
		request.Header.Set("Authorization", authorization)
		r.srv.answer(w, request, errors.New("the disk of db.example is full"))
		equal(t, "the answer of a failure", w.Body.String(), want)
	}
}

func TestAdmin_withMetricsOnly_hasNoPage(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0", "metrics_only": true}, `, 1)))
	r.url = "http://" + r.srv.AdminAddr().String()
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/": 404, "/api/sources": 404, "/backup": 404} {
		r.must(want, "GET", path, "")
	}
}

// Beyond loopback the address of operators has both TLS and tokens, or is declared insecure. Changes and backups need both.
func TestLoad_ofAnAddressOfOperatorsBeyondLoopback(t *testing.T) {
	f := newFile(t, "")
	certify(t, f.dir)
	const files, tokens = `"tls": {"certificate": "cert.pem", "key": "key.pem"}`, `"tokens": [{"name": "a", "token": "` + anns + `", "rights": ["page"]}]`
	token := func(name, token, rights string) string {
		return `"tokens": [` + operator("a", anns, `"page"`) + ", " + operator(name, token, rights) + "]"
	}
	for admin, says := range map[string]string{
		`"listen": ":0", ` + files + ", " + tokens + `, "control": true, "backup": true`:            "",
		`"listen": ":0", "insecure": true`:                                                          "",
		`"listen": "127.0.0.1:0", ` + tokens:                                                        "",
		`"listen": ":0", ` + files:                                                                  "admin.insecure: anyone who reaches :0",
		`"listen": ":0", ` + tokens:                                                                 "admin.listen: :0 is beyond loopback and needs tls",
		`"listen": ":0", "insecure": true, "control": true, ` + files:                               "admin.control: it is allowed only with tls and tokens",
		`"listen": ":0", "insecure": true, "backup": true, ` + tokens:                               "admin.backup: it is allowed only with tls and tokens",
		`"listen": "127.0.0.1:0", "metrics_only": true, "control": true`:                            "admin.control: metrics_only leaves it out",
		`"listen": "127.0.0.1:0", "metrics_only": true, "backup": true`:                             "admin.backup: metrics_only leaves it out",
		`"listen": "127.0.0.1:0", "tokens": [null]`:                                                 "admin.tokens[0]: null",
		`"listen": "127.0.0.1:0", ` + token("b", "another token of the tests", `"metrics"`):         "",
		`"listen": "127.0.0.1:0", ` + token("a", "another token of the tests", `"metrics"`):         `admin.tokens[1].name: "a" is used twice`,
		`"listen": "127.0.0.1:0", ` + token("b:c", "another token of the tests", `"metrics"`):       `admin.tokens[1].name: "b:c" is empty, or has a colon`,
		`"listen": "127.0.0.1:0", ` + token("b", anns, `"metrics"`):                                 "admin.tokens[1].token: it is that of admin.tokens[0].token",
		`"listen": "127.0.0.1:0", ` + token("b", "0123456789abcdef", `"metrics"`):                   "admin.tokens[1].token: it is that of kinds.k.secrets[0]",
		`"listen": "127.0.0.1:0", ` + token("b", "short", `"metrics"`):                              "admin.tokens[1].token: it has 5 bytes",
		`"listen": "127.0.0.1:0", ` + token("b", "another token of the tests", ``):                  "admin.tokens[1].rights: none are given",
		`"listen": "127.0.0.1:0", ` + token("b", "another token of the tests", `"metrics", "read"`): `admin.tokens[1].rights[1]: "read" must be one of`,
	} {
		f.write(`{"listen": "127.0.0.1:0", "admin": {` + admin + `}, "kinds": {"k": {` + https + `}}}`)
		if _, err := Load(f.path, func(string) string { return "" }); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", admin, err, says)
		}
	}
}

// Metrics, health and the page are on an address of their own.
func TestAdmin_hasMetricsHealthAndPage(t *testing.T) {
	at := receiver(t, func(http.ResponseWriter, *http.Request) {})
	r := start(t, config(t, at, strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0", "backup": true}, `, 1)))
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
	r.ends("a")
	api := r.url
	r.url = "http://" + r.srv.AdminAddr().String()
	for path, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ok\n", "/": "<html", "/api/sources": `"serve"`,
		"/metrics": "timewheel_serve_webhook_answers_total{code=\"200\",kind=\"k\"} 1",
	} {
		if got := r.must(200, "GET", path, ""); !strings.Contains(got, want) {
			t.Errorf("%s is %.2000s, want %s", path, got, want)
		}
	}
	for _, want := range []string{
		`timewheel_serve_requests_total{code="204",method="PUT"} 1`, `timewheel_durable_runs_succeeded_total{scheduler="serve"} 1`,
		`timewheel_durable_run_lateness_seconds_count{kind="k",scheduler="serve"} 1`, "go_goroutines",
	} {
		metrics := ""
		for range 100 { // the end of a run is counted after the task is gone
			if metrics = r.must(200, "GET", "/metrics", ""); strings.Contains(metrics, want) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	if got := r.do("POST", "/backup", ""); got.status != 200 || !strings.Contains(got.body, "FORMAT") {
		t.Errorf("the backup is %d with %d bytes", got.status, len(got.body))
	}
	r.must(403, "POST", "/api/pause-all", "scheduler=serve", "Content-Type", "application/x-www-form-urlencoded")
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz", "/backup"} {
		r.must(403, "GET", path, "", "Host", "evil.example")
	}
	r.must(200, "GET", "/", "", "Host", "timewheel.localhost")
	r.url = api
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/", "/backup"} {
		r.must(404, "GET", path, "")
	}
}

func TestAdmin_withControl_changesTasks(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0", "control": true}, `, 1)))
	r.url = "http://" + r.srv.AdminAddr().String()
	r.must(200, "POST", "/api/pause-all", "scheduler=serve", "Content-Type", "application/x-www-form-urlencoded")
	if p, err := r.srv.s.Paused(t.Context()); err != nil || !p.All {
		t.Errorf("the pauses are %v, %v", p, err)
	}
	r.must(404, "POST", "/backup", "")
}
