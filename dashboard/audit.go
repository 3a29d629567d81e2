// SPDX-License-Identifier: MIT

package dashboard

import (
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// An AuditEntry describes an action that a user took through the dashboard, whether it was carried out or refused.
type AuditEntry struct {
	Time   time.Time
	Who    string         // the result of the function passed to WithAudit
	Action string         // as in the path of the request, such as pause-kind; for many tasks, the action in the form
	Source string         // the name of the wheel or the scheduler
	Key    string         // of the task; empty for many tasks
	Query  *durable.Query // for many tasks; nil for one
	Kind   string         // of pause-kind and resume-kind
	Tasks  int            // the number of tasks changed
	Err    error          // why the action was refused or failed; nil if it was done
}

// WithAudit calls f after each request to change something. who returns the user of a request, for example from a
// header set by a proxy; it may be nil. Both may be called concurrently. An action on many tasks is done in parts of
// two seconds, with an entry for each part. Runs are cancelled in one part.
func WithAudit(who func(*http.Request) string, f func(AuditEntry)) Option {
	return func(h *handler) { h.who, h.audit = who, f }
}

// note calls the user's function with the entry.
func (h *handler) note(r *http.Request, e AuditEntry) {
	if h.audit == nil {
		return
	}
	e.Time = time.Now()
	if h.who != nil {
		e.Who = h.who(r)
	}
	h.audit(e)
}
