// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/engine/kv"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
	"github.com/seed581295f1/timewheel/durable/enginetest"
)

var errDisk = errors.New("the disk is on fire")

// A failing store refuses commits once it fails.
type failing struct {
	*memory.KV
	fails atomic.Bool
}

func (f *failing) Exclusive() {}

func (f *failing) Commit(ctx context.Context, txs ...engine.Tx) ([]bool, error) {
	if f.fails.Load() {
		return nil, errDisk
	}
	return f.KV.Commit(ctx, txs...)
}

// on returns the place of a store.
func on(store engine.KV) Place {
	return Place{scheduler: func(opts []durable.Option) (*durable.Scheduler, error) {
		e, err := kv.New(context.Background(), store)
		if err != nil {
			return nil, err
		}
		return durable.New(context.Background(), e, opts...)
	}}
}

// refuses checks the answer of a service whose store fails. The answer says whether the request has had an effect, and
// only the log has the cause, with the id of the request.
func (r *rig) refuses(method, path, body string, of effect, cause string) {
	r.Helper()
	got := r.do(method, path, body)
	p := map[string]any{}
	if got.header.Get("Content-Type") == "application/problem+json" {
		p = jsonOf(r.T, got.body)
	}
	id := fmt.Sprint(p["request"])
	if got.status != 503 || p["status"] != 503.0 || p["effect"] != string(of) || !strings.HasSuffix(fmt.Sprint(p["detail"]), advice[of]) ||
		got.header.Get("Retry-After") == "" || id != got.header.Get(requestID) || strings.Contains(got.body, cause) {
		r.Errorf("%s %s: %+v, want 503 with the effect %s", method, path, got, of)
	}
	if line := r.log.line("request=" + id); !strings.Contains(line, cause) {
		r.Errorf("%s %s: the log has %q, want %s", method, path, line, cause)
	}
}

// unhealthy checks the answer of a health address.
func (r *rig) unhealthy(admin, path, says string) {
	r.Helper()
	was := r.url
	defer func() { r.url = was }()
	r.url = admin
	if got := r.do("GET", path, ""); got.status != 503 || !strings.Contains(got.body, says) {
		r.Errorf("%s: %+v, want 503 with %q", path, got, says)
	}
}

// admin is simple with an address for operators.
var admin = strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0"}, `, 1)

// After the store has failed, changes are refused with the cause, health says it, and no further webhook is called.
// The requests go around Run, which would end the service within a second.
func TestStoreFails_requestsAndHealthSayWhy_andNoWebhookIsCalled(t *testing.T) {
	var calls atomic.Int32
	begun, end := make(chan bool, 100), make(chan bool)
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	at := receiver(t, func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		begun <- true
		<-end
	})
	cfg := config(t, at, strings.Replace(admin, `"retry"`, `"concurrency": 1, "retry"`, 1))
	store := &failing{KV: memory.New()}
	log := new(lines)
	srv, err := Open(t.Context(), cfg, on(store), slog.New(slog.NewTextHandler(log, nil)))
	check(t, err)
	defer srv.closeListeners()
	check(t, srv.s.Start())
	api, operators := httptest.NewServer(srv.api.Handler), httptest.NewServer(srv.admin.Handler)
	defer api.Close()
	defer operators.Close()
	r := &rig{T: t, srv: srv, url: api.URL, log: log}
	for i := range 5 {
		r.must(204, "PUT", "/tasks/"+keyOf("a", i), `{"kind": "k"}`)
	}
	r.must(204, "PUT", "/tasks/later", `{"kind": "k", "delay": "1h"}`)
	<-begun
	store.fails.Store(true)
	r.refuses("PUT", "/tasks/b", `{"kind": "k"}`, effectUnknown, errDisk.Error()) // it was on its way to the store
	for range 2 {
		for _, c := range [][3]string{
			{"PUT", "/tasks/later", `{"kind": "k"}`}, {"DELETE", "/tasks/later", ""}, {"POST", "/tasks/later/reschedule", `{"delay": 1}`},
		} {
			r.refuses(c[0], c[1], c[2], effectNone, errDisk.Error())
		}
		for _, op := range []string{"put", "add"} {
			logged := r.log.count(errDisk.Error())
			got := jsonLines(t, r.must(200, "POST", "/tasks", `{"op": "`+op+`", "key": "c", "kind": "k"}`))[0]
			if got["status"] != 503.0 || got["effect"] != "none" || strings.Contains(fmt.Sprint(got), errDisk.Error()) {
				t.Errorf("the outcome of a line is %v", got)
			}
			equal(t, "the number of causes in the log", r.log.count(errDisk.Error())-logged, 1)
		}
		r.unhealthy(operators.URL, "/healthz", errDisk.Error())
		r.unhealthy(operators.URL, "/readyz", errDisk.Error())
		store.fails.Store(false) // it is too late
	}
	r.must(200, "GET", "/tasks/later", "") // reads still work
	release()                              // the others waited for this run
	if err := srv.s.Shutdown(t.Context()); !errors.Is(err, errDisk) {
		t.Errorf("Shutdown: %v", err)
	}
	equal(t, "the number of calls", calls.Load(), 1)
}

// A service whose store fails ends by itself with the cause, after it has answered the request that met it.
func TestRun_whenTheStoreFails_endsWithTheCause(t *testing.T) {
	store := &failing{KV: memory.New()}
	log := new(lines)
	srv, err := Open(t.Context(), config(t, receiver(t, fail(t)), admin), on(store), slog.New(slog.NewTextHandler(log, nil)))
	check(t, err)
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(context.Background(), nil, nil) }()
	r := &rig{T: t, srv: srv, url: "http://" + srv.Addr().String(), log: log}
	r.must(204, "PUT", "/tasks/later", `{"kind": "k", "delay": "1h"}`)
	store.fails.Store(true)
	r.refuses("PUT", "/tasks/a", `{"kind": "k"}`, effectUnknown, errDisk.Error())
	if err := <-ended; !errors.Is(err, durable.ErrBroken) || !errors.Is(err, errDisk) {
		t.Errorf("Run: %v", err)
	}
}

// While a database does not answer, requests are refused and the service is not ready. When it is back, all works again.
func TestDatabaseAway_requestsAndReadinessSayIt_untilItIsBack(t *testing.T) {
	at := receiver(t, func(http.ResponseWriter, *http.Request) {})
	link := enginetest.NewLink(memory.New().Shared())
	r := startOn(t, config(t, at, admin), Place{scheduler: func(opts []durable.Option) (*durable.Scheduler, error) {
		return durable.New(context.Background(), link, opts...)
	}})
	operators := "http://" + r.srv.AdminAddr().String()
	r.must(204, "PUT", "/tasks/later", `{"kind": "k", "delay": "1h"}`)
	link.SetDown(true)
	for _, c := range []struct {
		method, path, body string
		of                 effect
	}{
		{"PUT", "/tasks/a", `{"kind": "k"}`, effectUnknown}, {"GET", "/tasks/later", "", effectNone}, {"GET", "/tasks", "", effectNone},
		{"GET", "/history", "", effectNone}, {"DELETE", "/tasks/later", "", effectUnknown},
		{"POST", "/tasks/later/reschedule", `{"delay": 1}`, effectUnknown},
	} {
		r.refuses(c.method, c.path, c.body, c.of, "unavailable")
	}
	lines := jsonLines(t, r.must(200, "POST", "/tasks", `{"key": "a", "kind": "k"}`))
	equal(t, "the effect of a line", lines[0]["effect"], any("unknown"))
	r.unhealthy(operators, "/readyz", "the database does not answer")
	equal(t, "the health", status(t, operators+"/healthz"), 200) // a restart would not help
	link.SetDown(false)
	until(t, "the service is ready", func() bool { return status(t, operators+"/readyz") == 200 })
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`)
	r.ends("a")
}
