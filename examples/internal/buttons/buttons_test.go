// SPDX-License-Identifier: MIT

package buttons

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestControl_fromAnotherMachineOrByAnotherName_isRefused(t *testing.T) {
	for _, c := range []struct {
		from, host string
		may        bool
	}{
		{"127.0.0.1:5000", "127.0.0.1:8080", true},
		{"127.0.0.1:5000", "localhost:8080", true},
		{"[::1]:5000", "[::1]:8080", true},
		{"127.0.0.1:5000", "localhost", true},
		{"127.0.0.1:5000", "127.0.0.1", true},
		{"127.0.0.1:5000", "evil.test:8080", false},
		{"127.0.0.1:5000", "localhost.evil.test", false},
		{"127.0.0.1:5000", "8.8.8.8:8080", false},
		{"127.0.0.1:5000", "", false},
		{"192.0.2.2:5000", "localhost:8080", false},
		{"", "localhost:8080", false},
	} {
		if err := OnThisMachine(&http.Request{RemoteAddr: c.from, Host: c.host}); (err == nil) != c.may {
			t.Errorf("from %q by way of %q: %v", c.from, c.host, err)
		}
	}
}

func TestHandler(t *testing.T) {
	pressed := ""
	h := Handler(func() string { return "the buttons" }, func(what string) error {
		if what == "nothing" {
			return errors.New("there is no such trouble")
		}
		pressed = what
		return nil
	})
	for _, c := range []struct {
		method, what, from, site string
		want                     int
	}{
		{"GET", "", "127.0.0.1:5000", "", http.StatusOK},
		{"POST", "jam", "127.0.0.1:5000", "same-origin", http.StatusSeeOther},
		{"POST", "nothing", "127.0.0.1:5000", "", http.StatusBadRequest},
		{"POST", "jam", "127.0.0.1:5000", "cross-site", http.StatusForbidden},
		{"POST", "jam", "192.0.2.2:5000", "", http.StatusForbidden},
		{"GET", "", "192.0.2.2:5000", "", http.StatusForbidden},
	} {
		pressed = ""
		r := httptest.NewRequestWithContext(t.Context(), c.method, "http://localhost/trouble/",
			strings.NewReader(url.Values{"make": {c.what}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", c.site)
		r.RemoteAddr = c.from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || (pressed == "jam") != (c.want == http.StatusSeeOther) ||
			strings.Contains(w.Body.String(), "the buttons") != (c.want == http.StatusOK) {
			t.Errorf("%+v is %d, pressed is %q:\n%s", c, w.Code, pressed, w.Body)
		}
	}
}
