// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
)

// The document has exactly the routes of the server.
func TestDocument_hasTheRoutes(t *testing.T) {
	d := openDocument(t)
	var want, got []string
	for _, rt := range slices.Concat(routes, bulkRoutes) {
		want = append(want, rt.method+" "+rt.path)
	}
	for path, item := range d.object(d.root, "paths") {
		for method := range d.object(item) {
			if method != "parameters" {
				got = append(got, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the document has %q, and the server %q", got, want)
	}
}

// The schemas have exactly the fields of the types.
func TestDocument_hasTheFields(t *testing.T) {
	d := openDocument(t)
	for schema, v := range map[string]any{
		"NewTask": taskRequest{}, "Reschedule": rescheduleRequest{}, "Task": taskResponse{}, "List": listResponse{},
		"Outcome": lineResponse{}, "Stored": putResponse{},
		"Schedule": scheduleRequest{}, "Bulk": bulkRequest{}, "BulkResult": bulkResponse{}, "ScheduleResult": scheduleResponse{}, "Schedules": schedulesResponse{}, "ScheduleInfo": scheduleInfo{}, "Problem": problem{}, "Mistake": mistake{}, "Attempt": attemptResponse{}, "History": historyResponse{},
	} {
		of := d.object(d.root, "components", "schemas", schema)
		var want, required []string
		for i := range reflect.TypeOf(v).NumField() {
			name, options, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if name == "" {
				continue
			}
			if want = append(want, name); options == "" {
				required = append(required, name)
			}
		}
		var got []string
		for name := range d.object(of, "properties") {
			got = append(got, name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the properties %q, and the type %q", schema, got, want)
		}
		if schema == "NewTask" || schema == "Reschedule" || schema == "Schedule" || schema == "Bulk" { // what callers send
			continue
		}
		for _, name := range required {
			if !slices.Contains(of["required"].([]any), any(name)) {
				t.Errorf("%s: %s is not required", schema, name)
			}
		}
	}
	for schema, want := range map[string][]string{"State": stateNames(), "AttemptOutcome": durable.Outcomes(), "Effect": {string(effectNone), string(effectUnknown)}} {
		if got := d.object(d.root, "components", "schemas", schema)["enum"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is one of %q, and the server has %q", schema, got, want)
		}
	}
	var twice map[string]json.RawMessage
	if wrong := decode(openapi, &twice); wrong != nil {
		t.Errorf("the document is wrong: %v", wrong)
	}
	properties := d.object(d.object(d.root, "components", "schemas", "Line")["oneOf"].([]any)[0], "properties")
	for name := range d.object(d.root, "components", "schemas", "NewTask", "properties") {
		if properties[name] == nil {
			t.Errorf("a line has no %s", name)
		}
	}
}

// A schedule takes each property of a declared task, and no other one of a task.
func TestDocument_hasTheFieldsOfDeclaredTasks(t *testing.T) {
	d := openDocument(t)
	r := start(t, config(t, "127.0.0.1:1", strings.Replace(idle, `"k": {`, `"k": {"task_headers": ["X-A"], `, 1)))
	declared := d.object(d.root, "components", "schemas", "Declared")
	for field, value := range map[string]string{
		"payload": `{"a": 1}`, "payload_base64": `"AA=="`, "delay": `"1h"`, "at": `"2200-01-01T00:00:00Z"`, "interval": `"1h"`, "cron": `"@daily"`,
		"times": `-1`, "jitter": `1`, "until": `"2201-01-01T00:00:00Z"`, "group": `"g"`, "headers": `{"X-A": "1"}`,
		"max_delay": `"1m"`, "expires": `"1m"`, "idempotency_key": `"1"`,
	} {
		text := fmt.Sprintf(`{"key": "s:a", "kind": "k", %q: %s`, field, value)
		if field != "interval" && field != "cron" {
			text += `, "interval": 3600`
		}
		text += "}"
		var v any
		check(t, json.Unmarshal([]byte(text), &v))
		why, got := d.wrong(declared, v), r.do("PUT", "/schedules/s:", `{"tasks": [`+text+`]}`)
		if (why == "") != (got.status == 200) || (d.object(declared, "properties")[field] != nil) != (got.status == 200) {
			t.Errorf("%s: the document says %q, and the server %d %s", text, why, got.status, got.body)
		}
	}
	for name := range d.object(d.root, "components", "schemas", "NewTask", "properties") {
		if d.object(declared, "properties")[name] == nil && !slices.Contains([]string{"max_delay", "expires", "idempotency_key"}, name) {
			t.Errorf("a declared task has no %s", name)
		}
	}
}

// The server accepts each example, and refuses each kind of wrong request, with an answer of the document.
func TestDocument_holdsAgainstTheServer(t *testing.T) {
	cfg := config(t, "127.0.0.1:1", strings.Replace(idle, `"k": {`, `"mail": {"elsewhere": true}, "k": {"history": {}, `, 1))
	cfg.Kinds["k"].Retry.Attempts = mostFailures - 1
	most := 1 // there are more
	cfg.Tokens = []*Token{
		{Name: "a", Token: "aaaaaaaaaaaaaaaaaaaa", Prefixes: []string{""}, Kinds: []string{"*"}, Rights: []string{mayRead, mayWrite}},
		{Name: "b", Token: "bbbbbbbbbbbbbbbbbbbb", Prefixes: []string{"b"}, Kinds: []string{"l"}, Rights: []string{mayRead, mayWrite}},
		{Name: "c", Token: "cccccccccccccccccccc", Prefixes: []string{""}, Kinds: []string{"*"}, Rights: []string{mayWrite}, Quota: &Quota{Tasks: &most}},
	}
	r := start(t, cfg)
	d := openDocument(t)
	r.bearer = "aaaaaaaaaaaaaaaaaaaa"
	r.must(405, "PATCH", "/tasks/a", "") // of no operation, but in the description of the document
	if about := fmt.Sprint(d.at(d.root, "info", "description")); !strings.Contains(about, "405") {
		t.Errorf("the document does not have the status 405: %s", about)
	}
	seen := make(map[string]bool)
	expect := func(status int, path, method, url, body string, headers ...string) {
		t.Helper()
		seen[fmt.Sprint(method, path, status)] = true
		if got := d.holds(r, path, method, url, body, headers...); got != status {
			t.Errorf("%s %s %s: %d, want %d", method, url, body, got, status)
		}
	}
	examples := func(path, method, contentType string) map[string]string {
		content := d.object(d.root, "paths", path, method, "requestBody", "content", contentType)
		all := make(map[string]string)
		for name, example := range d.object(content, "examples") {
			v := d.at(example, "value")
			if why := d.wrong(content["schema"], v); why != "" {
				t.Errorf("the example %s of %s: %s", name, path, why)
			}
			text, err := json.Marshal(v)
			check(t, err)
			all[name] = string(text)
		}
		if len(all) == 0 {
			t.Errorf("%s %s has no examples", method, path)
		}
		return all
	}
	const one, move, many, past = "/tasks/{key}", "/tasks/{key}/reschedule", "/tasks", "/history"
	for name, body := range examples(one, "put", "application/json") {
		expect(201, one, "PUT", "/tasks/"+name, body, "Prefer", "")
		expect(200, one, "PUT", "/tasks/"+name, body, "Prefer", "")
		expect(204, one, "PUT", "/tasks/"+name, body)
		expect(200, one, "GET", "/tasks/"+name, "")
	}
	for _, body := range examples(move, "post", "application/json") {
		expect(204, move, "POST", "/tasks/time/reschedule", body)
	}
	const sets, set = "/schedules", "/schedules/{prefix}"
	for _, body := range examples(set, "put", "application/json") {
		expect(200, set, "PUT", "/schedules/nightly:", body)
		expect(409, set, "PUT", "/schedules/nightly:report", `{"version": 8, "tasks": []}`)
	}
	expect(200, sets, "GET", "/schedules", "")
	expect(400, sets, "GET", "/schedules?limit=1", "")
	lines := examples(many, "post", batchType)
	expect(200, many, "POST", "/tasks", strings.Join([]string{lines["put"], lines["add"],
		lines["reschedule"], lines["delete"]}, "\n"))
	expect(201, one, "PUT", "/tasks/once", `{"kind": "l", "delay": 3600, "payload_base64": "`+
		base64.StdEncoding.EncodeToString([]byte("\xff"))+`"}`, "If-None-Match", "*")
	for _, status := range []int{201, 200} {
		expect(status, one, "PUT", "/tasks/named", `{"kind": "k", "delay": 3600}`, "Prefer", "", "Idempotency-Key", "7")
	}
	expect(412, one, "PUT", "/tasks/once", `{"kind": "l"}`, "If-None-Match", "*")
	r.must(204, "PUT", "/tasks/fails", `{"kind": "k"}`) // no receiver listens
	until(t, "it is parked", func() bool { info, _ := r.info("fails"); return info.State == durable.Parked })
	expect(200, one, "GET", "/tasks/fails", "")
	expect(200, many, "GET", "/tasks?limit=2", "")
	until(t, "its attempts are in the history", func() bool {
		return strings.Contains(r.must(200, "GET", "/history?outcome=parked", ""), `"fails"`)
	})
	expect(200, past, "GET", "/history?limit=2", "")
	expect(400, past, "GET", "/history?outcome=done", "")
	expect(401, past, "GET", "/history", "", "Authorization", "Bearer x")
	expect(403, past, "GET", "/history", "", "Authorization", "Bearer bbbbbbbbbbbbbbbbbbbb")
	expect(200, "/openapi.json", "GET", "/openapi.json", "")
	expect(204, one, "DELETE", "/tasks/once", "")
	type request struct{ path, method, url, body string }
	all := []request{
		{one, "GET", "/tasks/x", ""}, {one, "PUT", "/tasks/x", `{"kind": "l"}`}, {one, "DELETE", "/tasks/x", ""},
		{move, "POST", "/tasks/x/reschedule", `{"delay": 1}`}, {many, "GET", "/tasks", ""}, {many, "POST", "/tasks", `{"key": "x", "kind": "l"}`},
		{set, "PUT", "/schedules/x", `{"version": 1, "tasks": []}`},
	}
	var bulks []request
	for _, rt := range bulkRoutes {
		bulks = append(bulks, request{rt.path, "POST", rt.path, `{"kind": "none"}`})
	}
	for _, q := range bulks {
		for _, body := range examples(q.path, "post", "application/json") {
			expect(200, q.path, q.method, q.url, body)
		}
		expect(400, q.path, q.method, q.url, `{"kin": "none"}`)
		expect(401, q.path, q.method, q.url, q.body, "Authorization", "Bearer x")
		expect(403, q.path, q.method, q.url, q.body, "Authorization", "Bearer bbbbbbbbbbbbbbbbbbbb")
		expect(415, q.path, q.method, q.url, q.body, "Content-Type", "text/plain")
		expect(413, q.path, q.method, q.url, strings.Repeat(" ", mostBody+1))
	}
	for _, q := range all {
		if q.method != "PUT" && q.path != many {
			expect(404, q.path, q.method, q.url, q.body)
		}
		if q.path != many {
			expect(400, q.path, q.method, strings.Replace(q.url, "x", "%FF", 1), q.body)
		}
		if q.body != "" {
			expect(415, q.path, q.method, q.url, q.body, "Content-Type", "text/plain")
			expect(413, q.path, q.method, q.url, strings.Repeat(" ", mostBatch+1))
		}
		expect(401, q.path, q.method, q.url, q.body, "Authorization", "Bearer x")
		if q.path != many || q.method == "GET" {
			expect(403, q.path, q.method, q.url, q.body, "Authorization", "Bearer bbbbbbbbbbbbbbbbbbbb")
		}
	}
	for _, q := range all {
		if q.method == "PUT" || q.path == many && q.method == "POST" {
			body := strings.Replace(q.body, `[]`, `[{"key": "x", "kind": "l", "interval": 1}]`, 1)
			expect(429, q.path, q.method, q.url, body, "Authorization", "Bearer cccccccccccccccccccc")
		}
	}
	expect(401, sets, "GET", "/schedules", "", "Authorization", "Bearer x")
	expect(400, many, "GET", "/tasks?limit=0", "")
	expect(400, many, "POST", "/tasks", "{")
	check(t, r.srv.s.Shutdown(t.Context()))
	for _, q := range all {
		if q.path != many || q.method == "GET" {
			expect(503, q.path, q.method, q.url, q.body)
		}
	}
	for _, q := range bulks {
		expect(503, q.path, q.method, q.url, q.body)
	}
	expect(503, past, "GET", "/history", "")
	expect(503, sets, "GET", "/schedules", "")
	expect(200, many, "POST", "/tasks", `{"key": "x", "kind": "l"}`) // each line has the status 503
	for path, item := range d.object(d.root, "paths") {
		for method, operation := range d.object(item) {
			for status := range d.object(operation, "responses") {
				name := strings.ToUpper(method) + path + status
				// A token without a right is tested elsewhere, and a flood of batches in which one waits for a minute is not.
				if !seen[name] && name != "POST/tasks403" && name != "GET/schedules403" && name != "POST/tasks503" {
					t.Errorf("no request of this test has the answer %s", name)
				}
			}
		}
	}
}

// Each operation has a name of its own, and the webhook has the headers of a request.
func TestDocument_hasNamesAndTheWebhook(t *testing.T) {
	d := openDocument(t)
	seen := make(map[string]string)
	for path, item := range d.object(d.root, "paths") {
		for method, operation := range d.object(item) {
			if method == "parameters" {
				continue
			}
			id, _ := d.at(operation, "operationId").(string)
			if other, is := seen[id]; is || id == "" {
				t.Errorf("%s %s has the name %q, as %s", method, path, id, other)
			}
			seen[id] = method + " " + path
		}
	}
	headers := make(chan http.Header, 1)
	r := start(t, config(t, receiver(t, func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header }), simple))
	r.must(204, "PUT", "/tasks/a", `{"kind": "k"}`, "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	sent := <-headers
	for _, name := range []string{"Content-Length", "Content-Type", "User-Agent", "Accept-Encoding"} {
		sent.Del(name)
	}
	parameters, _ := d.at(d.root, "webhooks", "run", "post", "parameters").([]any)
	for _, parameter := range parameters {
		name, _ := d.at(parameter, "name").(string)
		if sent.Get(name) == "" {
			t.Errorf("a webhook has no header %q", name)
		}
		sent.Del(name)
	}
	if len(sent) > 0 {
		t.Errorf("the document has no headers %v", sent)
	}
}
