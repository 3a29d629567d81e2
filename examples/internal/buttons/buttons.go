// SPDX-License-Identifier: MIT

// Package buttons serves a demo page with buttons that cause trouble.
package buttons

import (
	"fmt"
	"net"
	"net/http"
)

const around = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Trouble</title>
<form method="post">
%s</form>
</html>
`

// Handler returns a handler that serves the page. The function body returns the content of the page's form as HTML. A
// button named make calls the function press with the button's value. If press returns an error, the response has
// status 400. Requests from other machines and other sites are refused.
func Handler(body func() string, press func(what string) error) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := OnThisMachine(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if r.Method == http.MethodPost {
			if err := press(r.PostFormValue("make")); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			http.Redirect(w, r, ".", http.StatusSeeOther)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, around, body())
	}))
}

// OnThisMachine returns nil if a request comes from this machine and its Host is localhost or a loopback address. Every
// user of the machine may therefore control the demo; a real check would authenticate the user. Without the check of
// the Host, a site in the user's browser could point its own name at this machine.
func OnThisMachine(r *http.Request) error {
	for _, address := range []string{r.RemoteAddr, r.Host} {
		host := address
		if h, _, err := net.SplitHostPort(address); err == nil {
			host = h
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("the demo is not controlled by way of %q", address)
		}
	}
	return nil
}
