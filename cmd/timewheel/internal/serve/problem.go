// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed581295f1/timewheel/durable"
)

// A problem is an error with an HTTP status. It is written as a problem document of RFC 9457.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	retry bool // the caller should try again
}

func (p *problem) Error() string { return p.Detail }

func problemf(status int, format string, args ...any) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// problemOf returns the problem of an error of a verb.
func problemOf(err error) *problem {
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, durable.ErrInvalidTask), errors.Is(err, durable.ErrUnknownKind):
		return problemf(http.StatusBadRequest, "%v", err)
	case errors.Is(err, durable.ErrTaskKeyNotFound):
		return problemf(http.StatusNotFound, "%v", err)
	case errors.Is(err, durable.ErrDuplicateTaskKey):
		return problemf(http.StatusPreconditionFailed, "%v", err)
	case errors.Is(err, durable.ErrStopped):
		p = problemf(http.StatusServiceUnavailable, "the service is stopping")
	case errors.Is(err, durable.ErrUnavailable), errors.Is(err, durable.ErrBroken), errors.Is(err, context.DeadlineExceeded):
		p = problemf(http.StatusServiceUnavailable, "%v; the request may or may not have taken effect", err)
	case errors.Is(err, context.Canceled):
		return problemf(http.StatusServiceUnavailable, "the request was cancelled, and may or may not have taken effect")
	default:
		return problemf(http.StatusInternalServerError, "%v", err)
	}
	p.retry = true
	return p
}

func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	switch {
	case p.retry:
		h.Set("Retry-After", "1")
	case p.Status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="timewheel"`)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}
