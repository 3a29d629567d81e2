// SPDX-License-Identifier: MIT

// Package backup serves copies of an engine over HTTP while its scheduler is using it.
//
//	http.Handle("/debug/timewheel/backup", backup.Handler(s, func(r *http.Request) error {
//		return mayBackup(r) // checks a client certificate, a password, or a header that a proxy adds
//	}))
//
// The project's command downloads a copy:
//
//	timewheel backup -url https://shop.example/debug/timewheel/backup tasks.tar
package backup

import (
	"errors"
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// Handler returns a handler that responds to a POST request with a backup of the scheduler's own engine, in the format
// of [durable.Scheduler.Backup]. If the backup fails after part of it has been sent, the handler aborts the connection,
// so that the client does not mistake the part for a complete backup.
//
// If allow returns an error for a request, the handler refuses the request and sends the text of the error. allow must
// authenticate the user, because the response contains the keys and payloads of all tasks. If allow is nil, every
// request is refused. A request that a browser sends on behalf of a web page is always refused. allow may be called
// concurrently.
//
// A client that reads nothing for a minute is disconnected, so it can delay Shutdown by at most that long.
func Handler(s *durable.Scheduler, allow func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "the method must be POST", http.StatusMethodNotAllowed)
			return
		}
		// Browsers add these headers to every POST request of a web page, whichever host the page comes from. Programs
		// do not.
		if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			http.Error(w, "a backup is for programs, not for a page in a browser", http.StatusForbidden)
			return
		}
		if allow == nil {
			http.Error(w, "backups are not allowed here", http.StatusForbidden)
			return
		}
		if err := allow(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		out := &response{w: w, deadlines: http.NewResponseController(w)}
		err := s.Backup(r.Context(), out)
		switch {
		case err == nil:
		case out.begun:
			panic(http.ErrAbortHandler) // the client must not mistake the part for a complete copy
		case errors.Is(err, errors.ErrUnsupported):
			http.Error(w, err.Error(), http.StatusNotImplemented)
		case errors.Is(err, durable.ErrStopped):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// patience is how long a client may take to read a part of the response.
const patience = time.Minute

// A response writes the backup to the client. The first Write sets the header.
type response struct {
	w         http.ResponseWriter
	deadlines *http.ResponseController
	begun     bool
}

func (r *response) Write(b []byte) (int, error) {
	if !r.begun {
		r.begun = true
		r.w.Header().Set("Content-Type", "application/x-tar")
	}
	// The deadline replaces the server's WriteTimeout, which applies to the whole response. The error is ignored
	// because some ResponseWriters do not support deadlines.
	_ = r.deadlines.SetWriteDeadline(time.Now().Add(patience))
	return r.w.Write(b)
}
