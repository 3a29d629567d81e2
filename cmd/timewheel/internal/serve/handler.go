// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// handler returns the handler of all routes.
func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	methods := make(map[string][]string)
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
		a.refuse(w, r, problemf(http.StatusNotFound, "there is no %s; /openapi.json lists the paths", r.URL.Path))
	})
	if len(a.callers) > 0 {
		return mux
	}
	return a.protected(mux)
}

// protected refuses requests that a browser sends on behalf of a web page. It is for a service without tokens.
func (a *api) protected(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := foreign.Check(r)
		if host := r.Host; err == nil && !isOwnHost(host) {
			err = problemf(http.StatusForbidden, "host %q is neither an IP address nor localhost", host)
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
			a.refuse(w, r, problemOf(err))
			return
		}
		a.count(r, max(counted.status, http.StatusOK))
	})
}

// A counter is a response that knows its status.
type counter struct {
	http.ResponseWriter
	status int
}

func (c *counter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (a *api) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		a.log.Error("a request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", p.Detail)
	}
	a.count(r, p.Status)
	p.write(w)
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

// body reads the body of a request, which must have the content type.
func (a *api) body(w http.ResponseWriter, r *http.Request, contentType string, most int64) ([]byte, error) {
	is, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || is != contentType {
		return nil, problemf(http.StatusUnsupportedMediaType, "the Content-Type must be %s", contentType)
	}
	tooLarge := problemf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", most)
	var text []byte
	if r.ContentLength <= most {
		text, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	}
	if r.ContentLength > most || errors.As(err, new(*http.MaxBytesError)) {
		w.Header().Set("Connection", "close") // the rest is not read
		return nil, tooLarge
	}
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "the body cannot be read: %v", err)
	}
	return text, nil
}
