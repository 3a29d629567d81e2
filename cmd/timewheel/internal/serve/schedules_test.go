// SPDX-License-Identifier: MIT

package serve

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// A schedule is declared with each deploy. Tasks that have not changed keep their next runs, and lower versions change nothing.
func TestSchedules(t *testing.T) {
	cfg := config(t, "127.0.0.1:1", idle)
	cfg.Tokens = []*Token{
		{Name: "all", Token: "aaaaaaaaaaaaaaaaaaaa", Prefixes: []string{"n:"}, Kinds: []string{"*"}, Rights: []string{mayRead, mayWrite}},
		{Name: "one", Token: "bbbbbbbbbbbbbbbbbbbb", Prefixes: []string{""}, Kinds: []string{"k"}, Rights: []string{mayRead, mayWrite}},
		{Name: "reads", Token: "cccccccccccccccccccc", Prefixes: []string{"o:"}, Kinds: []string{"*"}, Rights: []string{mayRead}},
		{Name: "writes", Token: "dddddddddddddddddddd", Prefixes: []string{""}, Kinds: []string{"*"}, Rights: []string{mayWrite}},
	}
	r := start(t, cfg)
	r.bearer = "aaaaaaaaaaaaaaaaaaaa"
	declare := func(body string) string { return r.must(200, "PUT", "/schedules/n:", body) }
	const a, b, c = `{"key": "n:a", "kind": "k", "interval": "10m"}`, `{"key": "n:b", "kind": "l", "cron": "30 2 * * *", "payload": 1}`, `{"key": "n:c", "kind": "k", "cron": "@daily"}`
	for _, deploy := range []struct{ body, want string }{
		{`{"version": 1, "tasks": [` + a + `, ` + b + `]}`, `{"added":2,"changed":0,"removed":0,"unchanged":0}`},
		{`{"version": 2, "tasks": [` + a + `, ` + b + `]}`, `{"added":0,"changed":0,"removed":0,"unchanged":2}`},
		{`{"version": 3, "tasks": [` + strings.Replace(b, `1}`, `2}`, 1) + `, ` + c + `]}`, `{"added":1,"changed":1,"removed":1,"unchanged":0}`},
		{`{"version": 2, "tasks": []}`, `{"added":0,"changed":0,"removed":0,"unchanged":0,"newer":3}`},
	} {
		before, _ := r.info("n:a")
		equal(t, deploy.body, strings.TrimSpace(declare(deploy.body)), deploy.want)
		if after, is := r.info("n:a"); is && before.Key != "" && !after.Next.Equal(before.Next) {
			t.Errorf("%s moves a task from %v to %v", deploy.body, before.Next, after.Next)
		}
	}
	if got := r.must(200, "GET", "/schedules", ""); !strings.HasPrefix(got, `{"schedules":[{"prefix":"n:","version":3,"at":"`) {
		t.Errorf("the schedules are %s", got)
	}
	for token, want := range map[string]string{"cccccccccccccccccccc": `{"schedules":[]}`, "bbbbbbbbbbbbbbbbbbbb": `"n:"`} {
		r.bearer = token
		if got := r.must(200, "GET", "/schedules", ""); !strings.Contains(got, want) {
			t.Errorf("a token with other rights reads %s", got)
		}
	}
	for _, refused := range []struct{ token, method, path string }{
		{"bbbbbbbbbbbbbbbbbbbb", "PUT", "/schedules/n:"}, // which would remove a task of another kind
		{"aaaaaaaaaaaaaaaaaaaa", "PUT", "/schedules/o:"}, {"aaaaaaaaaaaaaaaaaaaa", "PUT", "/schedules/n"},
		{"cccccccccccccccccccc", "PUT", "/schedules/o:"}, {"dddddddddddddddddddd", "GET", "/schedules"},
	} {
		r.bearer = refused.token
		r.must(403, refused.method, refused.path, `{"version": 9, "tasks": []}`)
	}
	equal(t, "the tasks that are left", r.srv.s.Len(), 2)
	r.bearer = "bbbbbbbbbbbbbbbbbbbb"
	r.must(200, "PUT", "/schedules/own:", `{"version": 1, "tasks": [{"key": "own:a", "kind": "k", "interval": 60}]}`)
	r.must(403, "PUT", "/schedules/own:", `{"version": 2, "tasks": [{"key": "own:a", "kind": "l", "interval": 60}]}`)
}

// Only an empty list removes all tasks: a list that was left out by mistake removes none.
func TestSchedules_withoutTasks_areRefused(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	r.must(200, "PUT", "/schedules/n:", `{"version": 1, "tasks": [{"key": "n:a", "kind": "k", "interval": "10m"}]}`)
	for _, body := range []string{`{"version": 2}`, `{"version": 2, "tasks": null}`, `{}`} {
		if got := r.must(400, "PUT", "/schedules/n:", body); !strings.Contains(got, `"field":"tasks"`) {
			t.Errorf("%s: %s", body, got)
		}
	}
	equal(t, "the tasks", r.srv.s.Len(), 1)
	equal(t, "the change", r.must(200, "PUT", "/schedules/n:", `{"version": 2, "tasks": []}`), `{"added":0,"changed":0,"removed":1,"unchanged":0}`+"\n")
}

// A schedule whose prefix begins the keys of remembered idempotency keys, or is one, forgets none of them. A bulk change neither.
func TestSchedules_forgetNoIdempotencyKeys(t *testing.T) {
	cfg := config(t, "127.0.0.1:1", idle)
	cfg.Tokens = []*Token{
		{Name: "one", Token: "bbbbbbbbbbbbbbbbbbbb", Prefixes: []string{""}, Kinds: []string{"l"}, Rights: []string{mayRead, mayWrite}},
		{Name: "all", Token: "aaaaaaaaaaaaaaaaaaaa", Prefixes: []string{""}, Kinds: []string{"*"}, Rights: []string{mayRead, mayWrite}},
	}
	r := start(t, cfg)
	r.bearer = "aaaaaaaaaaaaaaaaaaaa"
	r.put(201, "a", `{"kind": "k", "delay": "1h"}`, "Idempotency-Key", "1")
	names, err := r.srv.s.Find(t.Context(), durable.Query{Kind: durable.OnceKind})
	check(t, err)
	name := url.PathEscape(names.Tasks[0].Key)
	for _, token := range []string{"bbbbbbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaaaaaa"} {
		r.bearer = token
		for _, prefix := range []string{"t", "timew", "timewheel", "timewheel%2Fonce%2F", name} {
			r.must(200, "PUT", "/schedules/"+prefix, `{"tasks": []}`)
		}
		for _, action := range []string{"pause", "run", "remove"} {
			r.must(200, "POST", "/tasks/"+action, `{"prefix": "time"}`)
		}
	}
	r.bearer = "bbbbbbbbbbbbbbbbbbbb"
	r.must(404, "DELETE", "/tasks/"+name, "") // as if there were no such task
	r.must(404, "POST", "/tasks/"+name+"/reschedule", `{"delay": 0}`)
	r.must(403, "POST", "/tasks/remove", `{"kind": "timewheel/once"}`)
	r.bearer = "aaaaaaaaaaaaaaaaaaaa"
	if again := r.put(200, "a", `{"kind": "k", "delay": "1h"}`, "Idempotency-Key", "1"); !again.Repeated {
		t.Errorf("the repeated put is answered with %+v", again)
	}
}

// A task of a schedule that has ended does not come back with the next deploy.
func TestSchedules_ofATaskThatHasEnded(t *testing.T) {
	at, calls := counting(t)
	r := start(t, config(t, at, simple))
	first := time.Now().Add(-2 * time.Hour).Format(time.RFC3339) // so the next run is not before an end in an hour
	declare := func(version int, end time.Time) string {
		return strings.TrimSpace(r.must(200, "PUT", "/schedules/u:", fmt.Sprintf(`{"version": %d, "tasks": [
			{"key": "u:a", "kind": "k", "at": %q, "interval": "24h", "until": %q}]}`, version, first, end.Format(time.RFC3339))))
	}
	const added, unchanged = `{"added":1,"changed":0,"removed":0,"unchanged":0}`, `{"added":0,"changed":0,"removed":0,"unchanged":1}`
	equal(t, "a task whose end is over", declare(1, time.Now().Add(-time.Hour)), unchanged)
	equal(t, "the tasks", r.srv.s.Len(), 0)
	equal(t, "a task whose end is to come", declare(2, time.Now().Add(time.Hour)), added)
	r.ends("u:a")
	for version := 2; version < 4; version++ {
		equal(t, "a task that has ended", declare(version, time.Now().Add(-time.Second)), unchanged)
	}
	equal(t, "the webhooks", calls.Load(), int64(1))
}

// A wrong schedule is answered with all of its mistakes, and changes nothing.
func TestSchedules_wrong_areAnsweredWithAllMistakes(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	got := r.do("PUT", "/schedules/n:", `{"version": -1, "tasks": [
		{"key": "n:a", "kind": "k"}, {"key": "n:a", "kind": "k", "cron": "@daily"}, {"key": "x", "kind": "k", "cron": "@daily"},
		{"key": "n:c", "kind": "none", "interval": -1}, {"key": "n:d", "kind": "k", "interval": 1, "times": 3},
		{"key": "n:e", "kind": "k", "interval": 1, "delay": 1, "max_delay": 2, "idempotency_key": "7"},
		{"key": "n:f", "kind": "k", "cron": "61 * * * *"}]}`)
	for _, want := range []string{
		`"version","given":"-1"`, `"tasks[0].cron","detail":"is missing`, `"tasks[1].key","given":"\"n:a\"","detail":"is that of tasks[0]`,
		`"tasks[2].key","given":"\"x\"","detail":"must begin with`, `"tasks[3].kind"`, `"tasks[3].interval"`, `"tasks[4].times","given":"3"`,
		`"tasks[5].max_delay"`, `"tasks[5].idempotency_key"`, `"tasks[6].cron"`,
	} {
		if got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%d: it does not say %s: %s", got.status, want, got.body)
		}
	}
	for body, fields := range map[string]string{
		`{"version": "x", "taks": 1, "tasks": [{"key": "n:a", "kind": "k", "croon": ""}, {"key": "x", "kind": "none", "interval": -1}, 5,
			{"key": 1, "kind": 2, "cron": true}, {"key": "n:a", "kind": "k", "interval": "x"}, null]}`: `version taks tasks[0].croon tasks[2] tasks[3].key
			tasks[3].kind tasks[3].cron tasks[4].interval tasks[0].cron tasks[1].kind tasks[1].interval tasks[1].key tasks[4].key tasks[5].kind
			tasks[5].key tasks[5].cron`,
		`{"version": -1, "tasks": {}}`: "tasks version", `{"taks": []}`: "taks tasks", `[]`: "", `{"tasks": 1, "tasks": []}`: "tasks tasks",
	} {
		r.speaks(r.do("PUT", "/schedules/n:", body), strings.Split(strings.Join(strings.Fields(fields), " "), " ")...)
	}
	for body, want := range map[string]string{
		`{"version": 1, "tasks": [{"key": "n:a", "kind": "k", "interval": 1, "croon": ""}]}`: `did you mean`,
		`{"version": 1.5, "tasks": []}`: "an integer",
	} {
		if got := r.do("PUT", "/schedules/n:", body); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	equal(t, "the tasks", r.srv.s.Len(), 0)
	r.must(400, "GET", "/schedules?prefix=n", "")
}
