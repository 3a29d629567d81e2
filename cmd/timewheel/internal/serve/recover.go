// SPDX-License-Identifier: MIT

package serve

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime/debug"
)

// recovered logs the panic of a handler, and answers the request with a problem. If the answer has begun, it closes the
// connection, so that the client does not mistake the part for the whole.
func recovered(log *slog.Logger, answer func(http.ResponseWriter, *http.Request, *problem), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &counter{ResponseWriter: w}
		defer func() {
			of := recover()
			if of == nil {
				return
			}
			if of == http.ErrAbortHandler { // the handler closes the connection
				panic(of)
			}
			log.Error("a handler has panicked", "request", w.Header().Get(requestID), "method", r.Method, "path", r.URL.Path,
				"panic", of, "stack", string(debug.Stack()))
			if seen.status != 0 {
				panic(http.ErrAbortHandler)
			}
			answer(w, r, failure(http.StatusInternalServerError, effectUnknown, nil, "the service has failed"))
		}()
		next.ServeHTTP(seen, r)
	})
}

// A counter is a response that knows its status: 0 before it has begun.
type counter struct {
	http.ResponseWriter
	status int
}

func (c *counter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(b []byte) (int, error) {
	c.status = cmp.Or(c.status, http.StatusOK)
	return c.ResponseWriter.Write(b)
}

// FlushError sends the header and the text so far.
func (c *counter) FlushError() error {
	c.status = cmp.Or(c.status, http.StatusOK)
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Unwrap lets the deadlines of the connection be set.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
