// SPDX-License-Identifier: MIT

package dashboard

import (
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// An AuditEntry describes an action that a user requested through the dashboard, whether it was carried out or refused.
type AuditEntry struct {
	Time   time.Time
	Who    string         // the user, as returned by the first function passed to WithAudit
	Action string         // the action, such as pause-kind, from the request path or, for a bulk request, from the form
	Source string         // the name of the wheel or the scheduler
	Key    string         // the key of the task; empty for an action on many tasks or on kinds
	Query  *durable.Query // the query of an action on many tasks; nil for other actions
	Kind   string         // the kind that was paused or resumed
	Node   string         // the name of the node that was drained or undrained
	Tasks  int            // the number of tasks changed
	Err    error          // why the action was refused or failed; nil if it succeeded
}

// WithAudit calls f after each request for a change. who returns the user who made a request, for example from a header
// set by a proxy; it may be nil. Both functions may be called concurrently. An action on many tasks runs in parts of
// two seconds, with an entry for each part. A request to cancel runs is handled in a single part.
func WithAudit(who func(*http.Request) string, f func(AuditEntry)) Option {
	return func(h *handler) { h.who, h.audit = who, f }
}

// note completes the entry and passes it to the function given to WithAudit.
func (h *handler) note(r *http.Request, e AuditEntry) {
	if h.audit == nil {
		return
	}
	e.Time, e.Who = time.Now(), h.user(r)
	h.audit(e)
}

// user returns the user who made a request, or an empty string if that is unknown.
func (h *handler) user(r *http.Request) string {
	if h.who == nil {
		return ""
	}
	return h.who(r)
}
