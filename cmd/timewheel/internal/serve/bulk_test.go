// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
)

// bulk changes all matching tasks, and returns their number.
func (r *rig) bulk(action, body string) (n int) {
	r.Helper()
	for after := ""; ; {
		var answer bulkResponse
		check(r.T, json.Unmarshal([]byte(r.must(200, "POST", "/tasks/"+action, strings.Replace(body, "}", after+"}", 1))), &answer))
		if n += answer.Tasks; answer.Next == "" {
			return n
		}
		after = fmt.Sprintf(`, "after": %q`, answer.Next)
	}
}

// The actions change exactly the tasks that match.
func TestBulk(t *testing.T) {
	var works atomic.Bool
	at := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		if !works.Load() {
			w.WriteHeader(http.StatusGone)
		}
	})
	r := start(t, config(t, at, strings.Replace(simple, `"k": {`, `"l": {"elsewhere": true}, "k": {`, 1)))
	for i := range 3 {
		r.must(204, "PUT", fmt.Sprint("/tasks/a", i), `{"kind": "k"}`)
		r.must(204, "PUT", fmt.Sprint("/tasks/b", i), `{"kind": "k", "delay": "1h", "group": "g"}`)
	}
	r.must(204, "PUT", "/tasks/other", `{"kind": "l", "delay": "1h"}`)
	until(t, "three are parked", func() bool { return r.bulk("count", `{"kind": "k", "state": "parked"}`) == 3 })
	for _, c := range []struct {
		action, body string
		want         int
	}{
		{"count", `{"kind": "k"}`, 6}, {"count", `{"kind": "k", "prefix": "a"}`, 3}, {"count", `{"kind": "k", "group": "g"}`, 3},
		{"count", `{"kind": "k", "failure": "answer 410"}`, 3}, {"count", `{"kind": "k", "failure": "answer 411"}`, 0},
		{"pause", `{"kind": "k", "prefix": "b", "group": "g"}`, 3}, {"pause", `{"kind": "k", "prefix": "b"}`, 0},
		{"count", `{"state": "paused"}`, 3}, {"run", `{"kind": "k", "state": "paused"}`, 0}, {"resume", `{"prefix": "b"}`, 3},
		{"cancel", `{"kind": "k"}`, 0}, {"remove", `{"kind": "l"}`, 1}, {"count", `{"prefix": ""}`, 6},
	} {
		equal(t, c.action+" "+c.body, r.bulk(c.action, c.body), c.want)
	}
	works.Store(true)
	equal(t, "unparked", r.bulk("unpark", `{"kind": "k", "failure": "410"}`), 3)
	for i := range 3 {
		r.ends(fmt.Sprint("a", i))
	}
	equal(t, "run now", r.bulk("run", `{"kind": "k"}`), 3)
	until(t, "nothing is left", func() bool { return r.srv.s.Len() == 0 })
}

// A task may have the key of an action, and rights to prefixes and kinds hold for actions, too.
func TestBulk_rights(t *testing.T) {
	cfg := config(t, "127.0.0.1:1", idle)
	cfg.Tokens = []*Token{
		{Name: "all", Token: "aaaaaaaaaaaaaaaaaaaa", Prefixes: []string{""}, Kinds: []string{"*"}, Rights: []string{mayRead, mayWrite}},
		{Name: "one", Token: "bbbbbbbbbbbbbbbbbbbb", Prefixes: []string{"b:"}, Kinds: []string{"k"}, Rights: []string{mayRead, mayWrite}},
		{Name: "reads", Token: "cccccccccccccccccccc", Prefixes: []string{""}, Kinds: []string{"*"}, Rights: []string{mayRead}},
		{Name: "two", Token: "dddddddddddddddddddd", Prefixes: []string{""}, Kinds: []string{"k", "l"}, Rights: []string{mayRead, mayWrite}},
	}
	r := start(t, cfg)
	r.bearer = "aaaaaaaaaaaaaaaaaaaa"
	for _, task := range []string{`unpark", "kind": "k`, `b:k", "kind": "k`, `b:l", "kind": "l`} {
		r.must(200, "POST", "/tasks", `{"key": "`+task+`", "delay": "1h"}`)
	}
	r.must(200, "GET", "/tasks/unpark", "")
	r.must(204, "DELETE", "/tasks/unpark", "")
	r.must(405, "POST", "/tasks/none", `{}`)
	for body, says := range map[string]string{
		`{}`: "at least one of", `{"state": "parkd"}`: "did you mean", `{"kind": "k", "after": "x"}`: "is not the next", `{"kinds": "k"}`: "unknown field",
	} {
		if got := r.do("POST", "/tasks/remove", body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	r.must(400, "POST", "/tasks/unpark", `{"state": "scheduled"}`)
	for _, c := range []struct {
		token, body string
		status      int
	}{
		{"bbbbbbbbbbbbbbbbbbbb", `{"kind": "k"}`, 403}, {"bbbbbbbbbbbbbbbbbbbb", `{"kind": "l", "prefix": "b:"}`, 403},
		{"cccccccccccccccccccc", `{"kind": "k"}`, 403}, {"dddddddddddddddddddd", `{"prefix": "b:"}`, 400},
		{"bbbbbbbbbbbbbbbbbbbb", `{"prefix": "b:"}`, 200}, // its only kind
	} {
		r.bearer = c.token
		equal(t, c.token[:1]+" removes "+c.body, r.do("POST", "/tasks/remove", c.body).status, c.status)
	}
	left, err := r.srv.s.Find(t.Context(), durable.Query{})
	check(t, err)
	if len(left.Tasks) != 1 || left.Tasks[0].Key != "b:l" {
		t.Errorf("these are left: %v", left.Tasks)
	}
	r.bearer = "cccccccccccccccccccc"
	equal(t, "a reader counts", r.bulk("count", `{"kind": "l"}`), 1)
}
