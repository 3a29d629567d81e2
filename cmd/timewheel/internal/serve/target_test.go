// SPDX-License-Identifier: MIT

package serve

import (
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/seed581295f1/timewheel/durable"
)

// The key is a part of the URL, percent-encoded, and the request has the method of the kind.
func TestWebhook_urlWithTheKey_andMethod(t *testing.T) {
	type request struct{ line, body string }
	got := make(chan request, 1)
	at := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Method + " " + r.RequestURI, string(body)}
	})
	for _, c := range []struct{ method, url, key, want string }{
		{"", "/hook", "a", "POST /hook"},
		{"POST", "/{key}", "order:42", "POST /order%3A42"},
		{"PUT", "/orders/{key}/mail?id={key}&b=1", "a/b?c&d#e%2f", "PUT /orders/a%2Fb%3Fc%26d%23e%252f/mail?id=a%2Fb%3Fc%26d%23e%252f&b=1"},
		{"PATCH", "/v1/order-{key}.json", "..", "PATCH /v1/order-...json"},
		{"DELETE", "/?k={key}", "..", "DELETE /?k=.."},
		{"POST", "/{key}{key}", "ü +;", "POST /%C3%BC%20%2B%3B%C3%BC%20%2B%3B"},
		{"POST", "/%7Bkey%7D", "a", "POST /%7Bkey%7D"},
	} {
		text := strings.Replace(simple, "/hook", c.url, 1)
		if c.method != "" {
			text = strings.Replace(text, `"url"`, `"method": "`+c.method+`", "url"`, 1)
		}
		r := start(t, config(t, at, text))
		r.must(204, "PUT", "/tasks/"+strings.ReplaceAll(url.PathEscape(c.key), ".", "%2E"), `{"kind": "k", "payload": {"a": 1}}`)
		one := <-got
		equal(t, "the request", one.line, c.want)
		equal(t, "the body", one.body, `{"a": 1}`)
		r.ends(c.key)
	}
}

// A key that would change the path parks its task, and is not sent.
func TestWebhook_keyThatIsNoSegment_parks(t *testing.T) {
	r := start(t, config(t, receiver(t, fail(t)), strings.Replace(simple, "/hook", "/a/{key}/b", 1)))
	for _, key := range []string{".", ".."} {
		r.must(201, "PUT", "/tasks/"+strings.ReplaceAll(key, ".", "%2E"), `{"kind": "k"}`, "If-None-Match", "*")
		until(t, "the task is parked", func() bool { info, _ := r.info(key); return info.State == durable.Parked })
		info, _ := r.info(key)
		equal(t, "the failure", info.Failure, `webhook: the key "`+key+`" cannot be in the path of the url`)
	}
}

func TestLoad_ofAURLWithTheKey_allowsSegmentsAndValues(t *testing.T) {
	const allowed, refused = "", "kinds.k.url: "
	for text, want := range map[string]string{
		"https://a.example/{key}":         allowed,
		"https://a.example/b/c-{key}?x":   allowed,
		"https://a.example/?a={key}&b=1":  allowed,
		"https://a.example/?a=x{key}":     allowed,
		"https://{key}/":                  refused,
		"https://{key}.example/":          refused,
		"https://a.example{key}/":         refused,
		"https://a.example:{key}/":        refused,
		"https://a.example:8{key}/":       refused,
		"https://{key}@a.example/":        refused,
		"{key}://a.example/":              refused,
		"http{key}://a.example/":          refused,
		"{key}":                           refused,
		"https:{key}":                     refused,
		"//{key}/":                        refused,
		"https://a.example/#{key}":        refused,
		"https://a.example/?{key}":        refused,
		"https://a.example/?{key}=1":      refused,
		"https://a.example/?a=1&b{key}=1": refused,
		"https://a.example/{kind}":        refused,
		"https://a.example/{key":          refused,
		"https://a.example/}?a={key}":     refused,
		"https://a.example/../{key}":      refused,
		"https://a.example/%2e%2E/{key}":  refused,
	} {
		k := &checker{config: new(Config)}
		k.webhook("kinds.k", &Kind{URL: text, Secrets: []Secret{secret}})
		switch {
		case want == allowed && len(k.problems) > 0:
			t.Errorf("%s: %v", text, k.problems)
		case want == refused && (len(k.problems) != 1 || !strings.HasPrefix(k.problems[0].String(), refused)):
			t.Errorf("%s: problems %v", text, k.problems)
		}
	}
}

// A key changes only its segment of the path and its value of the query.
func FuzzTarget(f *testing.F) {
	for _, key := range []string{
		"a", "/", "//", "..", ".", "...", "../..", "%2e%2e", "%2f", "\\", "a/../b", "?x=1", "&x=1", "#", "@evil.example", ":80", "\r\n\r\n", "\x00",
		"ü", "\xff", "{key}", " ", "+", ";", "=",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" {
			t.Skip("no task has an empty key")
		}
		for _, prefix := range []string{"", ".", "%2e"} {
			for _, suffix := range []string{"", "-c"} {
				of := "https://a.example:8443/b/" + prefix + "{key}" + suffix + "/d?x={key}&y=1"
				text, err := fill(of, key)
				plain := strings.ReplaceAll(prefix, "%2e", ".") + key + suffix
				if plain == "." || plain == ".." {
					if err == nil {
						t.Errorf("%q: %s", key, text)
					}
					continue
				}
				if err != nil {
					t.Errorf("%q: %v", key, err)
					continue
				}
				u, err := url.Parse(text)
				if err != nil {
					t.Errorf("%q: %v", key, err)
					continue
				}
				equal(t, "the origin", u.Scheme+"://"+u.Host, "https://a.example:8443")
				if u.User != nil || u.Fragment != "" {
					t.Errorf("%q: %s", key, text)
				}
				segments := strings.Split(u.EscapedPath(), "/")
				if len(segments) != 4 || path.Clean(u.EscapedPath()) != u.EscapedPath() {
					t.Errorf("%q: the path is %s", key, u.EscapedPath())
				} else if is, err := url.PathUnescape(segments[2]); err != nil || is != plain {
					t.Errorf("%q: the segment is %q, %v", key, is, err)
				}
				if q, err := url.ParseQuery(u.RawQuery); err != nil || len(q) != 2 || q.Get("x") != key || q.Get("y") != "1" ||
					strings.Count(u.RawQuery, "&") != 1 || strings.Contains(u.RawQuery, ";") {
					t.Errorf("%q: the query is %s, %v", key, u.RawQuery, err)
				}
				if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
					t.Errorf("%q: %q", key, text)
				}
			}
		}
	})
}
