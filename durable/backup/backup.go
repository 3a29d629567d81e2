// SPDX-License-Identifier: MIT

// Package backup serves a copy of a store over HTTP, while a scheduler uses the store.
//
//	http.Handle("/debug/timewheel/backup", backup.Handler(s, func(r *http.Request) error {
//		return mayBackup(r) // the user, by a client certificate, a password, or what a proxy adds
//	}))
//
// The command of this project asks for it:
//
//	timewheel backup -url https://shop.example/debug/timewheel/backup tasks.tar
package backup

import (
	"errors"
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/durable"
)

// Handler returns a handler that answers a POST request with a backup of the scheduler's store, as
// [durable.Scheduler.Backup] writes it. If the backup fails, the connection is aborted, so that the client does not
// mistake a part for the whole.
//
// A request is refused, with the text of the error, unless allow returns nil for it. allow must identify the user: the
// answer contains the keys and payloads of all tasks. If allow is nil, every request is refused. A request that a
// browser sends on behalf of a web page is always refused. allow may be called concurrently.
//
// A client that reads nothing for a minute is disconnected, so that it does not delay a Shutdown for longer.
func Handler(s *durable.Scheduler, allow func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "the method must be POST", http.StatusMethodNotAllowed)
			return
		}
		// Browsers add these to each POST request of a page, whichever host it comes from. Programs do not.
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
			panic(http.ErrAbortHandler) // so that the client does not mistake it for a whole copy
		case errors.Is(err, errors.ErrUnsupported):
			http.Error(w, err.Error(), http.StatusNotImplemented)
		case errors.Is(err, durable.ErrStopped):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// patience is how long a client may take to read a part of the answer.
const patience = time.Minute

// A response receives the backup. Its first part starts the answer.
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
	// It replaces the server's WriteTimeout, which is for the whole answer. A server without deadlines has none.
	_ = r.deadlines.SetWriteDeadline(time.Now().Add(patience))
	return r.w.Write(b)
}
