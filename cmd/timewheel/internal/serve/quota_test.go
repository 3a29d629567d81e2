// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed581295f1/timewheel/durable"
	"github.com/seed581295f1/timewheel/durable/engine/memory"
)

// limited is a configuration with two kinds and two tokens, of which the first has a quota. Its prefix is a.
func limited(quota string) string {
	return `{"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}, "kinds": {"k": {` + https + `}, "l": {` + https + `}}, "tokens": [
		{"name": "a", "token": "a token of the tests", "prefixes": ["a"], "kinds": ["k"], "rights": ["read", "write"], "quota": ` + quota + `},
		{"name": "b", "token": "b token of the tests", "prefixes": [""], "kinds": ["*"], "rights": ["read", "write"]}]}`
}

// A quotaRig answers requests in a bubble, on an engine that is shared.
type quotaRig struct {
	*testing.T
	a *api
	h http.Handler
}

func newQuotaRig(t *testing.T, quota string) *quotaRig {
	cfg := config(t, "", limited(quota))
	s, err := durable.New(t.Context(), memory.New().Shared())
	check(t, err)
	t.Cleanup(func() { check(t, s.Shutdown(context.Background())) })
	for kind, of := range cfg.Kinds {
		check(t, s.Handle(kind, func(context.Context, durable.Run) error { return nil }, of.options()...))
	}
	check(t, s.Start())
	a := newAPI(s, cfg, slog.New(slog.DiscardHandler), prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests"}, []string{"method", "code"}))
	return &quotaRig{t, a, a.handler()}
}

// must sends a request of a token, which must have the status, and returns Retry-After and the body.
func (r *quotaRig) must(status int, token, method, path, body string) (retryAfter, text string) {
	r.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+token+" token of the tests")
	req.Header.Set("Content-Type", "application/json")
	if path == "/tasks" {
		req.Header.Set("Content-Type", batchType)
	}
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, req)
	if w.Code != status {
		r.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, w.Code, status, w.Body)
	}
	return w.Header().Get("Retry-After"), w.Body.String()
}

func (r *quotaRig) refusals(bound string) int {
	return int(testutil.ToFloat64(r.a.refused.WithLabelValues("a", bound)))
}

const later = `{"kind": "k", "delay": "1000h"}`

// A used quota comes back evenly, and the header says exactly when there is enough.
func TestQuota_adds_comeBackEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuotaRig(t, `{"adds": 4, "per": "40s"}`)
		for i := range 4 {
			r.must(201, "a", "PUT", "/tasks/"+keyOf("a", i), later)
		}
		after, text := r.must(429, "a", "PUT", "/tasks/a0000", later) // replaces a task
		equal(t, "Retry-After", after, "10")
		p := jsonOf(t, text)
		equal(t, "the title", p["title"].(string), "Too Many Requests")
		equal(t, "the detail", p["detail"].(string), "the token's quota of 4 tasks in 40s is used up; try again in 10 s")
		r.must(201, "b", "PUT", "/tasks/a1", later) // has no quota
		r.must(200, "a", "GET", "/tasks/a0000", "")
		time.Sleep(9*time.Second + 999*time.Millisecond)
		after, _ = r.must(429, "a", "PUT", "/tasks/a0000", later)
		equal(t, "Retry-After", after, "1")
		time.Sleep(time.Millisecond)
		r.must(200, "a", "PUT", "/tasks/a0000", later)
		after, _ = r.must(429, "a", "POST", "/tasks", strings.Repeat(`{"key": "a", "kind": "k"}`+"\n", 3))
		equal(t, "Retry-After", after, "30")
		time.Sleep(time.Hour) // nothing is saved up beyond the quota
		r.must(200, "a", "POST", "/tasks", strings.Repeat(`{"key": "a", "kind": "k", "delay": "1h"}`+"\n", 4))
		r.must(429, "a", "PUT", "/tasks/a", later)
		equal(t, "the refusals", r.refusals(quotaAdds), 4)
	})
}

// A request is refused as a whole before it changes anything. One that could never pass says so, and asks for no repetition.
func TestQuota_refusesTheWholeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuotaRig(t, `{"adds": 3, "per": "30s"}`)
		add := func(keys ...string) (lines string) {
			for _, key := range keys {
				lines += `{"op": "add", "key": "` + key + `", "kind": "k", "delay": "1h"}` + "\n"
			}
			return lines
		}
		schedule := func(n int) string {
			var tasks []string
			for i := range n {
				tasks = append(tasks, fmt.Sprintf(`{"key": "as%d", "kind": "k", "interval": "1h"}`, i))
			}
			return `{"version": 1, "tasks": [` + strings.Join(tasks, ", ") + `]}`
		}
		for _, one := range []struct{ method, path, text string }{
			{"POST", "/tasks", add("a", "b1", "ab", "ac", "ad")}, // b1 has another prefix, so it does not count
			{"PUT", "/schedules/as", schedule(4)},
		} {
			after, text := r.must(413, "a", one.method, one.path, one.text)
			equal(t, "Retry-After", after, "")
			equal(t, "the detail", jsonOf(t, text)["detail"].(string), "the request alone is more than the token's quota of 3 tasks in 30s")
		}
		_, text := r.must(200, "a", "POST", "/tasks", add("a", "b1"))
		equal(t, "the lines", strings.Count(text, "201")*10+strings.Count(text, "403"), 11)
		after, _ := r.must(429, "a", "POST", "/tasks", `{"op": "delete", "key": "a"}`+"\n"+add("ab", "ac", "ad"))
		equal(t, "Retry-After", after, "10")
		after, _ = r.must(429, "a", "PUT", "/schedules/as", schedule(3))
		equal(t, "Retry-After", after, "10")
		r.must(200, "a", "GET", "/tasks/a", "")
		r.must(404, "a", "GET", "/tasks/ab", "")
		r.must(404, "a", "GET", "/tasks/as0", "")
		r.must(200, "a", "PUT", "/schedules/as", schedule(2))
		r.must(429, "a", "PUT", "/tasks/ab", later)
		r.must(200, "a", "POST", "/tasks", `{"op": "delete", "key": "a"}`) // adds nothing
		r.must(204, "a", "POST", "/tasks/as0/reschedule", `{"delay": "1h"}`)
	})
}

// Requests that are refused for another reason use up nothing, and the quota is the token's own.
func TestQuota_isUsedOnlyByRequestsThatMayAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuotaRig(t, `{"adds": 2, "bytes": 100, "per": "30s"}`)
		for range 5 {
			r.must(401, "x", "PUT", "/tasks/a", later)
			r.must(403, "a", "PUT", "/tasks/b", later)
			r.must(403, "a", "PUT", "/tasks/a", `{"kind": "l"}`)
			r.must(400, "a", "PUT", "/tasks/a", `{"kind": "k", "delay": "soon"}`)
			r.must(400, "a", "POST", "/tasks", `{"key": "a", "kind": "k"}`+"\n{")
			r.must(400, "a", "PUT", "/schedules/a", `{"tasks": [{"key": "a", "kind": "k"}]}`)
			r.must(201, "b", "PUT", "/tasks/b", later)
			r.must(204, "b", "DELETE", "/tasks/b", "")
		}
		r.must(201, "a", "PUT", "/tasks/a0", later)
		r.must(201, "a", "PUT", "/tasks/a1", later)
		r.must(429, "a", "PUT", "/tasks/a2", later)
	})
}

// Keys, payloads and texts count as they are stored. A request that exceeds the bytes uses up no adds.
func TestQuota_bytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuotaRig(t, `{"adds": 3, "bytes": 20, "per": "20s"}`)
		r.must(413, "a", "PUT", "/tasks/ab", `{"kind": "k", "payload": "this is too long."}`) // 21 bytes with the key and the quotation marks
		r.must(201, "a", "PUT", "/tasks/ab", `{"kind": "k", "delay": "1h", "payload": "8 by", "group": "8 of them"}`)
		after, text := r.must(429, "a", "PUT", "/tasks/ac", `{"kind": "k", "delay": "1h", "payload_base64": "YWFhYQ=="}`)
		equal(t, "Retry-After", after, "3")
		equal(t, "the detail", jsonOf(t, text)["detail"].(string), "the token's quota of 20 bytes in 20s is used up; try again in 3 s")
		for range 2 {
			r.must(201, "a", "PUT", "/tasks/a", `{"kind": "k", "delay": "1h", "cron": ""}`)
			r.must(204, "a", "DELETE", "/tasks/a", "")
		}
		after, _ = r.must(429, "a", "PUT", "/tasks/a", `{"kind": "k", "delay": "1h"}`)
		equal(t, "Retry-After", after, "7")
		equal(t, "the refusals", r.refusals(quotaBytes)*10+r.refusals(quotaAdds), 21)
	})
}

// Enormous bounds bound nothing, and overflow nothing.
func TestQuota_ofEnormousBounds_allowsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := fmt.Sprint(math.MaxInt64)
		r := newQuotaRig(t, `{"adds": `+most+`, "bytes": `+most+`, "tasks": `+most+`, "per": "24h"}`)
		for range 10 {
			r.must(200, "a", "POST", "/tasks", strings.Repeat(`{"key": "a", "kind": "k", "delay": "1h"}`+"\n", 100))
		}
		r = newQuotaRig(t, `{"adds": 1, "bytes": 1, "per": "1ns"}`) // the shortest period
		r.must(201, "a", "PUT", "/tasks/a", later)
		r.must(413, "a", "PUT", "/tasks/ab", later)
		time.Sleep(time.Nanosecond)
		r.must(200, "a", "PUT", "/tasks/a", later)
	})
}

// On a database the tasks are counted each second.
func TestQuota_tasksOfADatabase_areCountedEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuotaRig(t, `{"tasks": 2}`)
		_, text := r.must(413, "a", "POST", "/tasks", strings.Repeat(`{"key": "a", "kind": "k"}`+"\n", 3))
		equal(t, "the detail", jsonOf(t, text)["detail"].(string), "the request alone is more than the token's quota of 2 tasks at the same time")
		r.must(201, "a", "PUT", "/tasks/a0", later)
		r.must(201, "b", "PUT", "/tasks/l", `{"kind": "l", "delay": "1h"}`) // of a kind that is not the token's
		r.must(201, "b", "PUT", "/tasks/b", later)
		time.Sleep(countEvery)
		after, text := r.must(429, "a", "PUT", "/tasks/a1", later)
		equal(t, "Retry-After", after, "10")
		equal(t, "the detail", jsonOf(t, text)["detail"].(string), "the tasks of the token's kinds have reached its quota of 2; try again in 10 s")
		r.must(204, "a", "DELETE", "/tasks/a0", "")
		r.must(429, "a", "PUT", "/tasks/a1", later)
		time.Sleep(countEvery)
		r.must(201, "a", "PUT", "/tasks/a1", later)
		equal(t, "the refusals", r.refusals(quotaTasks), 3)
	})
}

// A store has at no time more tasks than the quota, although many requests at the same time want to add them. The metric
// counts the refused ones.
func TestQuota_tasksOfAStore_areExact(t *testing.T) {
	const most = 10
	r := start(t, config(t, "", limited(`{"tasks": 10}`)))
	r.bearer = "a token of the tests"
	var stored, refused atomic.Int32
	var all sync.WaitGroup
	for c := range 8 {
		all.Go(func() {
			for i := range 5 {
				switch got := r.do("PUT", "/tasks/"+keyOf(fmt.Sprint("a", c), i), later); got.status {
				case 204:
					stored.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("%d: %s", got.status, got.body)
				}
			}
		})
	}
	all.Wait()
	for i := stored.Load(); i < most; i++ { // a task may count twice while its request ends
		r.must(204, "PUT", "/tasks/"+keyOf("an", int(i)), later)
	}
	r.must(429, "PUT", "/tasks/a", later)
	equal(t, "the number of tasks", r.srv.s.Len(), most)
	r.must(200, "POST", "/tasks/remove", `{"prefix": "an"}`)
	r.must(200, "POST", "/tasks/remove", `{"prefix": "a0"}`)
	r.must(200, "POST", "/tasks/remove", `{"prefix": "a"}`)
	r.must(204, "PUT", "/tasks/a", later)
	admin := &rig{T: t, url: "http://" + r.srv.AdminAddr().String()}
	want := fmt.Sprintf(`timewheel_serve_quota_refusals_total{quota="tasks",token="a"} %d`, refused.Load()+1)
	if text := admin.must(200, "GET", "/metrics", ""); !strings.Contains(text, want+"\n") {
		t.Errorf("the metrics have no %s", want)
	}
}

// A reload changes the quota, but not how much of it was used.
func TestReload_keepsWhatWasUsedOfAQuota(t *testing.T) {
	f := newFile(t, limited(`{"adds": 4, "per": "24h"}`))
	r := start(t, f.load())
	r.bearer = "a token of the tests"
	for i := range 3 {
		r.must(204, "PUT", "/tasks/"+keyOf("a", i), later)
	}
	r.reloads(readAgain)
	r.must(204, "PUT", "/tasks/a", later)
	r.must(429, "PUT", "/tasks/a", later)
	f.write(limited(`{"adds": 6, "per": "24h"}`))
	r.reloads(readAgain)
	r.must(204, "PUT", "/tasks/a", later)
	r.must(204, "PUT", "/tasks/a", later)
	r.must(429, "PUT", "/tasks/a", later)
	f.write(limited(`{"adds": 0}`))
	r.reloads(staysSo)
	r.must(429, "PUT", "/tasks/a", later)
	f.write(limited(`null`))
	r.reloads(readAgain)
	r.must(204, "PUT", "/tasks/a", later)
	f.write(limited(`{"adds": 1, "per": "24h"}`))
	r.reloads(readAgain)
	r.must(429, "PUT", "/tasks/a", later)
}

// Reloads that happen during requests let none more through.
func TestReload_duringRequests_countsEachOnce(t *testing.T) {
	const most, each, callers = 100, 60, 4
	f := newFile(t, limited(`{"adds": 100, "per": "24h"}`))
	r := start(t, f.load())
	r.bearer = "a token of the tests"
	var passed atomic.Int32
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if r.do("PUT", "/tasks/a", later).status == 204 {
					passed.Add(1)
				}
			}
		})
	}
	for range 10 {
		r.reloads(readAgain)
	}
	all.Wait()
	equal(t, "the number of requests that passed", passed.Load(), most)
}

// Every text of a task counts that a caller can make long, also one that package durable adds later.
func TestSizeOf_countsEachText(t *testing.T) {
	all := reflect.TypeFor[durable.Task]()
	for i := range all.NumField() {
		var task durable.Task
		want := 3
		switch v := reflect.ValueOf(&task).Elem().Field(i); {
		case v.Kind() == reflect.String:
			v.SetString("abc")
		case v.Type() == reflect.TypeFor[[]byte]():
			v.SetBytes([]byte("abc"))
		default:
			want = 0
		}
		if name := all.Field(i).Name; name == "Kind" || name == "Once" { // of the configuration, and of one size
			want = 0
		}
		equal(t, "the size of "+all.Field(i).Name, sizeOf(&task), want)
	}
}
