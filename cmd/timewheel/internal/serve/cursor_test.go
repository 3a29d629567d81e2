// SPDX-License-Identifier: MIT

package serve

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// A caller with a right to some kinds pages through lists, histories and bulk verbs, and no cursor shows a key: the page of a
// search that takes long ends at the task of any kind.
func TestCursor_ofALimitedCaller_showsNoKey(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", `{"listen": "127.0.0.1:0", "tokens": [
		{"name": "one", "token": "the token of one caller", "prefixes": [""], "kinds": ["k"], "rights": ["read", "write"]},
		{"name": "all", "token": "the token of another", "prefixes": [""], "kinds": ["*"], "rights": ["read", "write"]}],
		"kinds": {"k": {`+local+`}, "l": {`+local+`}}}`))
	const one, all = "the token of one caller", "the token of another"
	r.bearer = all
	for i := range 6 {
		r.must(204, "PUT", fmt.Sprint("/tasks/key-", i), fmt.Sprintf(`{"kind": %q, "delay": "1h"}`, []string{"k", "l"}[i%2]))
	}
	pages := func(path string) (got string, cursors []string) {
		for after := ""; ; {
			page := jsonOf(t, r.must(200, "GET", path+"&after="+url.QueryEscape(after), ""))
			for _, task := range page["tasks"].([]any) {
				got += " " + task.(map[string]any)["key"].(string)
			}
			if page["next"] == nil {
				return got, cursors
			}
			after = page["next"].(string)
			cursors = append(cursors, after)
		}
	}
	shows := func(cursor string) bool {
		text, err := base64.RawURLEncoding.DecodeString(cursor)
		return err != nil || strings.Contains(string(text), "key-")
	}
	for _, path := range []string{"/tasks?kind=k&limit=1", "/tasks?kind=k&limit=1&prefix=key"} {
		r.bearer = all
		got, plain := pages(path)
		equal(t, "all the tasks of "+path, got, " key-0 key-2 key-4")
		if len(plain) < 2 || !shows(plain[0]) {
			t.Fatalf("the cursors are %q", plain) // or the test finds nothing
		}
		r.bearer = one
		got, sealed := pages(path)
		equal(t, "the tasks of "+path, got, " key-0 key-2 key-4")
		for _, cursor := range sealed {
			if shows(cursor) {
				t.Errorf("%s: the cursor %s shows a key", path, cursor)
			}
		}
		for _, wrong := range []string{plain[0], sealed[0][1:], "x", "!"} {
			if got := r.do("GET", path+"&after="+wrong, ""); got.status != 400 || !strings.Contains(got.body, "is not the next of a page") {
				t.Errorf("after %s: %+v", wrong, got)
			}
		}
		body := `{"kind": "k", "after": "` + sealed[0] + `"}`
		if strings.Contains(path, "prefix") {
			body = `{"kind": "k", "prefix": "key", "after": "` + sealed[0] + `"}`
		}
		if got := r.must(200, "POST", "/tasks/count", body); !strings.Contains(got, `"tasks":2`) {
			t.Errorf("the count after the first is %s", got)
		}
	}
	if got := r.do("GET", "/history?kind=k&after=x", ""); got.status != 400 {
		t.Errorf("a wrong cursor of a history: %+v", got)
	}
}
