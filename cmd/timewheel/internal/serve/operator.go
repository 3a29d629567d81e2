// SPDX-License-Identifier: MIT

package serve

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/seed581295f1/timewheel/internal/host"
)

// strangerLimit is how long the body of a request to the address of operators may take before its token is checked, and
// how long the rest of a refused one is read. Without it, requests without bodies would take the places of health.
const strangerLimit = time.Second

// hasten sets strangerLimit.
func hasten(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerLimit))
		}
		next.ServeHTTP(w, r)
	})
}

// onHosts refuses requests to other names, as the page does.
func onHosts(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !host.IsAllowed(r.Host, hosts) {
			answerText(w, r, http.StatusForbidden, fmt.Sprintf("the host %q is none of admin.hosts", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// with lets only operators with the right in. It asks a browser for a name and a token. It reads the whole body, and lifts
// the limits of the server, because an open page, a backup or a command may take any time.
func (srv *Server) with(right string, most int64, next http.Handler) http.Handler {
	may := srv.may(right)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := may(r)
		switch {
		case err == nil:
		case srv.operatorOf(r) == nil:
			w.Header().Set("WWW-Authenticate", `Basic realm="timewheel", charset="UTF-8"`)
			answerText(w, r, http.StatusUnauthorized, "give a name and its token, or the token as Bearer")
			return
		default:
			answerText(w, r, http.StatusForbidden, err.Error())
			return
		}
		control := http.NewResponseController(w)
		if r.Body != http.NoBody {
			_ = control.SetReadDeadline(time.Now().Add(readLimit))
			text, err := readAll(r, most)
			if err != nil {
				p := problemOf(err)
				answerText(w, r, p.Status, p.Detail)
				return
			}
			r = r.WithContext(r.Context()) // the server needs its own body
			r.Body = io.NopCloser(bytes.NewReader(text))
		}
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		next.ServeHTTP(w, r)
	})
}

// answerText answers with one line, at once.
func answerText(w http.ResponseWriter, r *http.Request, status int, text string) {
	if b, is := r.Body.(*body); is && !b.ended {
		w.Header().Set("Connection", "close") // package http would read the body first
	}
	answerEarly(w, r, func(w http.ResponseWriter) {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Length", strconv.Itoa(len(text)+1))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n")
	})
}

// answerProblem answers with a problem.
func answerProblem(w http.ResponseWriter, r *http.Request, p *problem) {
	p.Request = w.Header().Get(requestID)
	answerEarly(w, r, p.write)
}
