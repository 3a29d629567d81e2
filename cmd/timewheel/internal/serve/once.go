// SPDX-License-Identifier: MIT

package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/seed581295f1/timewheel/durable"
)

// mostIdempotencyKey is the maximum size of an idempotency key, in bytes.
const mostIdempotencyKey = 255

// once returns the name of the call that adds the task: "" if it has none. A name is of one task's key, and has one size.
func (t *taskRequest) once(key string, of *Kind) string {
	call := ""
	if t.IdempotencyKey != nil {
		call = *t.IdempotencyKey
	}
	switch {
	case of.DedupeKey:
		call = "" // the key alone is the name, because many clients give each call an idempotency key
	case call == "":
		return ""
	}
	sum := sha256.Sum256([]byte(key + "\x00" + call))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// checkOnce adds the mistakes of the idempotency key.
func (t *taskRequest) checkOnce(wrong *mistakes, key string, of *Kind) {
	if strings.HasPrefix(key, durable.OncePrefix) {
		wrong.add("key", "", "must not begin with %s, which is for idempotency keys", durable.OncePrefix)
	}
	if t.IdempotencyKey == nil {
		return
	}
	field := cmp.Or(t.onceField, "idempotency_key")
	switch n := len(*t.IdempotencyKey); {
	case n == 0:
		wrong.add(field, "", "must not be empty")
	case n > mostIdempotencyKey:
		checkSize(wrong, field, n, mostIdempotencyKey)
	case of != nil && of.Elsewhere:
		wrong.add(field, "", "is not allowed for a kind that other nodes run")
	}
}

// fromHeader takes the idempotency key of the header.
func (t *taskRequest) fromHeader(h http.Header, wrong *mistakes) {
	const name = "Idempotency-Key"
	switch all := h.Values(name); {
	case len(all) == 0:
	case len(all) > 1 || all[0] == "":
		wrong.add(name, "", "must be one text that is not empty")
	case t.IdempotencyKey != nil && *t.IdempotencyKey != all[0]:
		wrong.add("idempotency_key", fmt.Sprintf("%q", *t.IdempotencyKey), "is not that of the header, %q", cut(all[0]))
		t.IdempotencyKey = nil
	default:
		t.IdempotencyKey, t.onceField = &all[0], name
	}
}

// A putResponse is the answer to a put.
type putResponse struct {
	Task     *taskResponse    `json:"task,omitempty"` // as it was stored; of a repeated request as it is, if it exists and the caller may read
	Replaced bool             `json:"replaced"`       // another task had the key
	Repeated bool             `json:"repeated"`       // an earlier request had the same idempotency key
	Last     *attemptResponse `json:"last,omitempty"` // of a task that has ended, if its kind has a history and the caller may read
}

// preferences are the parts of the header Prefer between commas (RFC 7240).
var preferences = regexp.MustCompile(`(?:[^,"]|"(?:[^"\\]|\\.)*")+`)

// isMinimal reports whether the caller wants no body. The first preference of a name counts.
func isMinimal(h http.Header) bool {
	for _, preference := range preferences.FindAllString(strings.Join(h.Values("Prefer"), ","), -1) {
		preference, _, _ = strings.Cut(preference, ";")
		if name, value, _ := strings.Cut(preference, "="); strings.EqualFold(strings.TrimSpace(name), "return") {
			value = strings.TrimSpace(value)
			return value == "minimal" || value == `"minimal"`
		}
	}
	return false
}

// stored answers with the outcome of a put.
func (a *api) stored(c *caller, w http.ResponseWriter, r *http.Request, task durable.Task, info durable.Info, replaced bool, err error) error {
	repeated := errors.Is(err, durable.ErrRepeated)
	if err != nil && !repeated {
		return err
	}
	status := http.StatusCreated
	if replaced || repeated {
		status = http.StatusOK
	}
	if isMinimal(r.Header) {
		w.Header().Set("Preference-Applied", "return=minimal")
		if repeated || r.Header.Get("If-None-Match") == "" {
			status = http.StatusNoContent
		}
		w.WriteHeader(status)
		return nil
	}
	if repeated {
		answer := putResponse{Repeated: true}
		if c.read {
			if err := a.outcome(r.Context(), task, &answer); err != nil {
				return asUnchanged(err)
			}
		}
		return writeJSON(w, answer)
	}
	response := newTaskResponse(info, false)
	return writeJSONAs(w, status, putResponse{Task: &response, Replaced: replaced})
}

// outcome adds to the answer the outcome of the task that an earlier request added. Another task may have its key now.
func (a *api) outcome(ctx context.Context, task durable.Task, answer *putResponse) error {
	name, is, err := a.s.Get(ctx, durable.OncePrefix+task.Once)
	if err != nil || !is {
		return err
	}
	generation := name.Generation - 1
	info, is, err := a.s.Get(ctx, task.Key)
	if err != nil {
		return err
	}
	if is {
		if info.Generation == generation && info.Kind == task.Kind {
			response := newTaskResponse(info, false)
			answer.Task = &response
		}
		return nil
	}
	if a.of[task.Kind].History == nil {
		return nil
	}
	h, err := a.s.History(ctx, durable.HistoryQuery{Key: task.Key, Kind: task.Kind, Limit: 1})
	for _, run := range h.Runs {
		if run.Token.Generation == generation {
			last := newAttemptResponse(run)
			answer.Last = &last
		}
	}
	return err
}
