// SPDX-License-Identifier: MIT

package serve

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The history has, by pages, the attempts to which the token has a right, also of tasks that are gone.
func TestHistory_hasTheAttempts_ofTasksThatAreGone(t *testing.T) {
	at := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(headerKey)
		if strings.HasSuffix(key, "parks") {
			w.WriteHeader(http.StatusGone)
		} else if r.Header.Get(headerAttempt) == "1" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r := start(t, config(t, at, `{"listen": "127.0.0.1:0", "tokens": [
		{"name": "all", "token": "all all all all all", "prefixes": [""], "kinds": ["*"], "rights": ["read", "write"]},
		{"name": "k", "token": "kind k and m under a", "prefixes": ["a/"], "kinds": ["k", "m"], "rights": ["read"]}],
		"kinds": {"k": {`+local+`, "history": {"attempts": 100, "age": "1h"}}, "l": {`+local+`, "history": {}}, "m": {`+local+`}}}`))
	r.bearer = "all all all all all"
	tasks := map[string]string{"a/one": "k", "a/parks": "k", "a/other": "l", "c/one": "k", "a/none": "m"}
	for key, kind := range tasks {
		r.must(204, "PUT", "/tasks/"+url.PathEscape(key), `{"kind": "`+kind+`", "group": "g"}`)
	}
	for key := range tasks {
		if key != "a/parks" {
			r.ends(key)
		}
	}
	// read returns the key and the outcome of each attempt.
	read := func(query string) (all []string) {
		t.Helper()
		for after := ""; ; {
			page := jsonOf(t, r.must(200, "GET", "/history?"+query+after, ""))
			for _, one := range page["attempts"].([]any) {
				run := one.(map[string]any)
				all = append(all, strings.Join([]string{run["key"].(string), run["outcome"].(string)}, " "))
				if run["group"] != "g" || run["node"] == "" || (run["failure"] != nil) == (run["outcome"] == "succeeded") ||
					!strings.Contains(run["token"].(string), run["key"].(string)) {
					t.Errorf("an attempt is %v", run)
				}
			}
			if page["next"] == nil {
				return all
			}
			after = "&after=" + url.QueryEscape(page["next"].(string))
		}
	}
	until(t, "the history has all attempts", func() bool { return len(read("")) == 7 })
	for _, c := range []struct{ token, query, want string }{
		{"all all all all all", "key=a/one", "a/one succeeded, a/one failed"},
		{"all all all all all", "key=a/one&kind=k&limit=1", "a/one succeeded, a/one failed"},
		{"all all all all all", "key=a/one&kind=l", ""},
		{"all all all all all", "outcome=parked", "a/parks parked"},
		{"all all all all all", "key=a/other&outcome=failed", "a/other failed"},
		{"all all all all all", "key=a/none", ""}, // its kind keeps none
		{"kind k and m under a", "key=a/one&kind=k", "a/one succeeded, a/one failed"},
		{"kind k and m under a", "key=a/other&kind=k", ""},
		{"kind k and m under a", "prefix=a/&kind=k&outcome=succeeded&limit=1", "a/one succeeded"},
	} {
		r.bearer = c.token
		if got := strings.Join(read(c.query), ", "); got != c.want {
			t.Errorf("%s: the history is %s, want %s", c.query, got, c.want)
		}
	}
	// A page of several kinds could show in its next what the token may not see.
	for _, path := range []string{"/history?key=a/one", "/history?prefix=a/", "/tasks?prefix=a/"} {
		if got := r.must(400, "GET", path, ""); !strings.Contains(got, "kind: is missing: it must be one of k, m") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// The history has the beginning of each answer that completes a run, if the kind asks for it. That of a failed attempt is
// in its error.
func TestHistory_hasTheAnswers_thatItsKindKeeps(t *testing.T) {
	at := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerAttempt) == "1" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte("done\r\n\x00\xff" + strings.Repeat("x", 10_000)))
	})
	r := start(t, config(t, at, `{"listen": "127.0.0.1:0", "kinds": {
		"most": {`+local+`, "history": {"answer": 4096}}, "some": {`+local+`, "history": {"answer": 300}},
		"brief": {`+local+`, "history": {"answer": 256}}, "few": {`+local+`, "history": {"answer": 7}},
		"none": {`+local+`, "history": {}}}}`))
	notes := map[string]string{"few": "done", "none": ""}
	for kind, most := range map[string]int{"most": 4096, "some": 300, "brief": 256} {
		notes[kind] = "done " + strings.Repeat("x", most-len("done\r\n\x00\xff"))
	}
	for kind := range notes {
		r.must(204, "PUT", "/tasks/"+kind, `{"kind": "`+kind+`"}`)
	}
	for kind, want := range notes {
		var all []any
		until(t, "the history has both attempts", func() bool {
			all = jsonOf(t, r.must(200, "GET", "/history?kind="+kind+"&key="+kind, ""))["attempts"].([]any)
			return len(all) == 2
		})
		last, first := all[0].(map[string]any), all[1].(map[string]any)
		if got, _ := last["note"].(string); got != want {
			t.Errorf("%s: the note is %q, want %q", kind, got, want)
		}
		if failure := first["failure"].(string); first["note"] != nil || !strings.Contains(failure, "done x") {
			t.Errorf("%s: the note of a failed attempt is %v, and its failure %s", kind, first["note"], failure)
		}
	}
}

// A page of long answers has fewer attempts, and its next continues. One of short answers has as many as before.
func TestHistory_ofLongAnswers_hasSmallerPages(t *testing.T) {
	const tasks, most = 70, 62
	at := receiver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat("x", 5000))) })
	r := start(t, config(t, at, `{"listen": "127.0.0.1:0", "kinds": {
		"long": {`+local+`, "history": {"answer": 4096}}, "short": {`+local+`, "history": {"answer": 256}}}}`))
	for _, kind := range []string{"long", "short"} {
		lines := ""
		for i := range tasks {
			lines += `{"key": "` + keyOf(kind, i) + `", "kind": "` + kind + `"}` + "\n"
		}
		r.must(200, "POST", "/tasks", lines)
	}
	page := func(parameters string) (n int, next string) {
		t.Helper()
		p := jsonOf(t, r.must(200, "GET", "/history?limit=1000"+parameters, ""))
		next, _ = p["next"].(string)
		return len(p["attempts"].([]any)), next
	}
	until(t, "the history has all attempts", func() bool {
		n, next := page("&kind=long")
		if next == "" {
			return false
		}
		more, _ := page("&kind=long&after=" + next)
		short, _ := page("&kind=short")
		return n == most && more == tasks-most && short == tasks
	})
	n, next := page("")
	equal(t, "the attempts of all kinds in a page", n, most)
	if next == "" {
		t.Error("there is no other page")
	}
}
