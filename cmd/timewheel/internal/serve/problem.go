// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/seed581295f1/timewheel/durable"
)

// A problem is an error with an HTTP status. It is written as a problem document of RFC 9457. Its text is for the caller,
// so it never has the text of an error of the store, which may name hosts and files.
type problem struct {
	Title   string   `json:"title"`
	Status  int      `json:"status"`
	Detail  string   `json:"detail"`
	Errors  mistakes `json:"errors,omitempty"`
	Effect  effect   `json:"effect,omitempty"` // of a request that failed with a status of 500 or more
	Request string   `json:"request"`          // its id, as in the header and in the log

	cause      error // for the log
	retryAfter int64 // seconds, with the status 429
}

// An effect says whether a request that failed has changed something.
type effect string

const (
	effectNone    effect = "none"
	effectUnknown effect = "unknown"
)

// advice is what a caller does next.
var advice = map[effect]string{
	effectNone:    "nothing was changed: try again",
	effectUnknown: "the request may have taken effect: try again with the same key",
}

func (p *problem) Error() string { return p.Detail }

func problemf(status int, format string, args ...any) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// failure returns the problem of a request that failed through no fault of the caller.
func failure(status int, of effect, cause error, what string) *problem {
	p := problemf(status, "%s; %s", what, advice[of])
	p.Effect, p.cause = of, cause
	return p
}

// An unchanged is the error of a verb that has certainly changed nothing.
type unchanged struct{ error }

func (u unchanged) Unwrap() error { return u.error }

// problemOf returns the problem of an error of a verb.
func problemOf(err error) *problem {
	var p *problem
	of := effectUnknown
	if errors.As(err, new(unchanged)) || errors.Is(err, durable.ErrStopped) {
		of = effectNone
	}
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, errOtherKind):
		return problemf(http.StatusForbidden, "%v", errOtherKind)
	case errors.Is(err, durable.ErrTaskKeyNotFound):
		return problemf(http.StatusNotFound, "no task has the key")
	case errors.Is(err, durable.ErrDuplicateTaskKey):
		return problemf(http.StatusPreconditionFailed, "a task has the key already")
	case errors.Is(err, durable.ErrInvalidTask):
		p = problemf(http.StatusBadRequest, "the store refuses the request; the log of the service says why")
		p.cause = err
		return p
	case errors.Is(err, durable.ErrStopped):
		return failure(http.StatusServiceUnavailable, of, nil, "the service is stopping")
	case errors.Is(err, durable.ErrUnavailable):
		return failure(http.StatusServiceUnavailable, of, err, "the store does not answer")
	case errors.Is(err, durable.ErrBroken):
		return failure(http.StatusServiceUnavailable, of, err, "the store has failed")
	case errors.Is(err, context.DeadlineExceeded):
		return failure(http.StatusServiceUnavailable, of, err, "the request took too long")
	case errors.Is(err, context.Canceled):
		return failure(http.StatusServiceUnavailable, of, nil, "the request was cancelled")
	}
	return failure(http.StatusInternalServerError, of, err, "the service has failed")
}

// write writes the whole answer, which is complete before the request's body has ended.
func (p *problem) write(w http.ResponseWriter) {
	text, _ := json.Marshal(p)
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	switch p.Status {
	case http.StatusTooManyRequests:
		h.Set("Retry-After", strconv.FormatInt(p.retryAfter, 10))
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="timewheel"`)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(text, '\n'))
}
