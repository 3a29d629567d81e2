// SPDX-License-Identifier: MIT

package orders

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/timewheel"
)

// A webPage shows the wheel in the browser while the program is running. It is read-only.
type webPage struct {
	listener net.Listener
	recorder *dashboard.Recorder
}

// newWebPage returns a webPage that listens on the address.
func newWebPage(address string) (*webPage, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("-http: %w", err)
	}
	return &webPage{listener, dashboard.NewRecorder()}, nil
}

func (p *webPage) address() string { return "http://" + p.listener.Addr().String() + "/" }

// serve starts serving the page, and returns a function that stops serving it.
func (p *webPage) serve(wheel *timewheel.TimeWheel) (end func()) {
	open, closeAll := context.WithCancel(context.Background())
	srv := &http.Server{
		Handler:           dashboard.Handler([]dashboard.Source{dashboard.Wheel("orders", wheel, p.recorder)}),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return open },
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(p.listener) // returns when the server is closed
	}()
	return func() {
		closeAll()
		_ = srv.Close()
		<-served
	}
}
