// SPDX-License-Identifier: MIT

package dashboard

import (
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// An AuditEntry says what a user has done, or was refused, by way of the dashboard.
type AuditEntry struct {
	Time   time.Time
	Who    string         // what the function says that was given to WithAudit
	Action string         // as the path of the request has it, such as pause-kind; of many, what the form says to do
	Source string         // the name of the wheel or the scheduler
	Key    string         // of the task; empty for many
	Query  *durable.Query // of many tasks; nil for one
	Kind   string         // of pause-kind and resume-kind
	Tasks  int            // to how many it was done
	Err    error          // why it was refused or failed; nil if it was done
}

// WithAudit calls f after each request that has changed something, or was to. Who says on whose behalf a
// request is, for example by what the guard in front of the handler has noted; it may be nil. Both may be
// called by several goroutines at a time. What is done to many tasks is done in parts of two seconds, with an
// entry for each part. Runs are cancelled in one part.
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
