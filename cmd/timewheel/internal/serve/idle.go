// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync"
	"time"
)

// An idleConn is a connection to a receiver. It closes itself when it has been idle for idleWebhook.
//
// With the IdleConnTimeout of [net/http.Transport], a request that has been answered may fail, and the webhook is called
// again. The transport counts a connection as idle before it delivers an answer without a body, and a timer that was
// started when the connection was idle before may close it in between, in the window of golang/go issue 41600. Of
// 147,000 requests that often took a connection as its time was over, two failed, and of 161,000 with an idleConn none.
// An idleConn is idle from when the answer has been read until it is taken for the next request.
type idleConn struct {
	net.Conn

	mu       sync.Mutex // held while the connection is closed, so that a request is either written before or not at all
	busy     bool
	requests int
	timer    *time.Timer
}

// newIdleConn returns a new connection. The request for which it was made may have ended meanwhile.
func newIdleConn(conn net.Conn) *idleConn {
	c := &idleConn{Conn: conn}
	c.timer = time.AfterFunc(dialTimeout+idleWebhook, c.end) // a TLS handshake may take dialTimeout
	return c
}

// closingIdle returns a function like dial, whose connections are idleConns.
func closingIdle(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newIdleConn(conn), nil
	}
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// take begins a request and returns its number. If the connection has been closed, the transport takes another one, because
// nothing of the request can be written.
func (c *idleConn) take() (number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = true
	c.requests++
	return c.requests
}

// leave ends a request. The transport may already have given the connection to the next one.
func (c *idleConn) leave(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number == c.requests {
		c.busy = false
		c.timer.Reset(idleWebhook)
	}
}

func (c *idleConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.busy {
		_ = c.Close()
	}
}

// taking returns a context for a request that takes its connection. Call leave when the answer has been read.
func taking(ctx context.Context) (_ context.Context, leave func()) {
	var taken *idleConn
	number := 0
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		conn := i.Conn
		if secure, is := conn.(*tls.Conn); is {
			conn = secure.NetConn()
		}
		if c, is := conn.(*idleConn); is {
			taken, number = c, c.take()
		}
	}})
	return ctx, func() {
		if taken != nil {
			taken.leave(number)
		}
	}
}
