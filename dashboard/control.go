// SPDX-License-Identifier: MIT

package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// AllowControl permits requests for which check returns nil to remove tasks, run them now, and reschedule
// them, by key. Other requests get the text of check's error. A request that a browser sends on behalf of
// another site is refused before check is called ([http.CrossOriginProtection]).
//
// Check must identify the user, by a cookie, a client certificate or what a proxy adds: the page cannot send a
// custom header. The Host of the request was checked before ([AllowHosts]). Check is also called for a GET
// request, to find out whether the page shows the buttons. It may be called by several goroutines at a time.
// The check is for all sources.
func AllowControl(check func(*http.Request) error) Option {
	return func(h *handler) { h.check = check }
}

// control calls do for the key of a request that may change something.
func (h *handler) control(do func(tw *timewheel.TimeWheel, key, delay string) error) serveWheel {
	return func(w http.ResponseWriter, r *http.Request, hub *hub) {
		if err := h.mayControl(r); err != nil {
			fail(w, http.StatusForbidden, err.Error())
			return
		}
		key, ok := keyOf(w, r.PostForm)
		if !ok {
			return
		}
		switch err := do(hub.tw, key, r.PostForm.Get("delay")); {
		case err == nil:
			send(w, http.StatusOK, struct{}{})
		case errors.Is(err, timewheel.ErrTaskKeyNotFound):
			fail(w, http.StatusNotFound, "no live task has that key")
		case errors.Is(err, timewheel.ErrStopped):
			fail(w, http.StatusConflict, "the wheel was stopped")
		default:
			fail(w, http.StatusBadRequest, err.Error())
		}
	}
}

func (h *handler) mayControl(r *http.Request) error {
	if h.check == nil {
		return errors.New("this dashboard is for reading only")
	}
	if err := h.foreign.Check(r); err != nil {
		return err
	}
	return h.check(r)
}

func remove(tw *timewheel.TimeWheel, key, _ string) error { return tw.RemoveTask(key) }

func runNow(tw *timewheel.TimeWheel, key, _ string) error { return tw.Reschedule(key, 0) }

func reschedule(tw *timewheel.TimeWheel, key, delay string) error {
	d, err := time.ParseDuration(delay)
	if err != nil {
		return fmt.Errorf("delay %q is not a duration such as 90s or 1h30m, or is longer than 292 years", delay)
	}
	if d < 0 {
		return fmt.Errorf("delay %v is negative", d)
	}
	return tw.Reschedule(key, d)
}
