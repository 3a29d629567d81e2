// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/examples/internal/buttons"
)

// serveButtons serves the page with the buttons and prints its address. The returned function stops serving the page.
func (d *driver) serveButtons(out io.Writer) (closeButtons func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/trouble/", buttons.Handler(d.form, d.press))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(listener) }()
	fmt.Fprintf(out, "to make trouble http://%s/trouble/\n", listener.Addr())
	return func() { _ = web.Close() }, nil
}

// form returns the buttons, and links to the dashboards of the running processes.
func (d *driver) form() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<h1>Trouble for the shop</h1>
<p><button name="make" value="%s">Kill a process</button> at random: the others take its tasks over
<p><button name="make" value="%s">Stop a process</button> at random, which gives its tasks back
<p><button name="make" value="%s">Take PostgreSQL away</button> for %v, and have a backlog then
<p><button name="make" value="%s">Send no more orders</button> and have the report
<h1>The dashboard</h1>
`, killed, stopped, away, d.config.away, ended)
	for _, p := range d.all() {
		fmt.Fprintf(&b, "<p><a href=\"http://%s%s\" target=\"dashboard\">%s</a>\n", p.addr, page, p.name)
	}
	return b.String()
}

// press makes disturb cause the trouble. It returns an error if other trouble is still in progress.
func (d *driver) press(what string) error {
	switch {
	case what != killed && what != stopped && what != away && what != ended:
		return fmt.Errorf("there is no trouble %q", what)
	case what == away && d.server == nil:
		return errors.New("the PostgreSQL of -db is not taken away")
	}
	select {
	case d.asked <- what:
		return nil
	default:
		return errors.New("the last trouble is not over, or no orders are sent")
	}
}
