// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// handler returns the handler of all routes.
func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	methods := make(map[string][]string)
	for _, rt := range bulkRoutes { // the fallback of the path of a task is theirs, too
		mux.Handle(rt.method+" "+rt.path, a.serve(rt))
	}
	for _, rt := range routes {
		methods[rt.path] = append(methods[rt.path], rt.method)
		mux.Handle(rt.method+" "+rt.path, a.serve(rt))
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			a.refuse(w, r, problemf(http.StatusMethodNotAllowed, "the method must be %s", strings.Join(allowed, " or ")))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, problemf(http.StatusNotFound, "there is no %s; /openapi.json lists the paths", cut(r.URL.Path)))
	})
	next := clean(a.refuse, mux)
	if len(*a.callers.Load()) == 0 {
		next = a.protected(next)
	}
	return begin(recovered(a.log, a.answer, next))
}

// clean refuses a path that package http would replace by another one, which is the path of another key.
func clean(refuse func(http.ResponseWriter, *http.Request, *problem), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		is := r.URL.EscapedPath()
		cleaned := path.Clean(is)
		if strings.HasSuffix(is, "/") && cleaned != "/" {
			cleaned += "/"
		}
		if cleaned != is {
			refuse(w, r, problemf(http.StatusBadRequest, "the path %s has an empty segment, or one of . and ..; "+
				"in a key, write / as %%2F and . as %%2E", cut(is)))
			return
		}
		if slices.Contains(strings.Split(strings.ToUpper(is), "/"), "%2F") { // package http takes it for the end of the path
			refuse(w, r, problemf(http.StatusBadRequest, "the key / cannot be in a path; a batch can change it"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

const requestID = "X-Request-Id"

// newID returns the id of a request.
func newID() string { return rand.Text()[:20] }

// begin gives each request an id, which the answer has in a header, and a body that knows whether it has been read.
func begin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestID, newID())
		if r.Body != http.NoBody {
			r = r.WithContext(r.Context()) // the server needs its own
			r.Body = &body{ReadCloser: r.Body}
		}
		next.ServeHTTP(w, r)
	})
}

// protected refuses requests that a browser sends on behalf of a web page. It is for a service without tokens.
func (a *api) protected(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := foreign.Check(r)
		if host := r.Host; err == nil && !isOwnHost(host) {
			err = fmt.Errorf("host %q is neither an IP address nor localhost", cut(host))
		}
		if err != nil {
			a.refuse(w, r, problemf(http.StatusForbidden, "%v", err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether host is an IP address or localhost, which no web site can point at this machine.
func isOwnHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// serve checks the caller, and calls the route.
func (a *api) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := a.anyone
		if rt.right != "" {
			switch c = a.identify(r); {
			case c == nil:
				a.refuse(w, r, problemf(http.StatusUnauthorized, "the Authorization must be Bearer with a known token"))
				return
			case rt.right == mayRead && !c.read, rt.right == mayWrite && !c.write:
				a.refuse(w, r, problemf(http.StatusForbidden, "the token has no right to %s", rt.right))
				return
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
		defer cancel()
		counted := &counter{ResponseWriter: w}
		if err := rt.do(a, c, counted, r.WithContext(ctx)); err != nil {
			if rt.right == mayRead {
				err = unchanged{err}
			}
			a.refuse(w, r, problemOf(err))
			return
		}
		a.count(r, max(counted.status, http.StatusOK))
	})
}

// refuse answers a request with a problem.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	a.note(w, r, p)
	a.answer(w, r, p)
}

// answer answers a request with a problem that is in the log, or need not be there.
func (a *api) answer(w http.ResponseWriter, r *http.Request, p *problem) {
	a.count(r, p.Status)
	answerProblem(w, r, p)
}

// note writes a problem that an operator should know to the log.
func (a *api) note(w http.ResponseWriter, r *http.Request, p *problem) {
	if p.cause == nil && p.Status < http.StatusInternalServerError || r.Context().Err() != nil {
		return
	}
	cause := p.cause
	if cause == nil {
		cause = p
	}
	about := []any{"request", w.Header().Get(requestID), "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", cause}
	if id := r.Header.Get(requestID); isID(id) {
		about = append(about, "caller_request", id)
	}
	a.log.Error("a request failed", about...)
}

// isID reports whether the id that a caller gives to a request is short, and has no characters that confuse a log.
func isID(id string) bool {
	return id != "" && len(id) <= 64 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (a *api) count(r *http.Request, status int) {
	method := r.Method
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete:
	default:
		method = "other"
	}
	a.counts.WithLabelValues(method, strconv.Itoa(status)).Inc()
}
