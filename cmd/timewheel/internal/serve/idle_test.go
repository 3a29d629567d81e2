// SPDX-License-Identifier: MIT

package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A connection closes itself when it has been idle, and not during a request or a handshake.
func TestIdleConn_closesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		closed := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, far)
			close(closed)
		}()
		isClosed := func() bool {
			synctest.Wait()
			select {
			case <-closed:
				return true
			default:
				return false
			}
		}
		c := newIdleConn(near)
		time.Sleep(dialTimeout)
		for range 3 {
			first := c.take()
			second := c.take()
			c.leave(first) // whose answer is read late
			time.Sleep(time.Hour)
			c.leave(second)
			time.Sleep(idleWebhook - 1)
		}
		if isClosed() {
			t.Error("it was closed, and not idle for long")
		}
		if time.Sleep(time.Nanosecond); !isClosed() {
			t.Error("it is not closed")
		}

		near, far = net.Pipe()
		_ = newIdleConn(near) // of a request that has ended meanwhile
		began := time.Now()
		if _, err := io.ReadAll(far); err != nil || time.Since(began) != dialTimeout+idleWebhook {
			t.Errorf("without a request it is closed after %v: %v", time.Since(began), err)
		}
	})
}

// A request that takes a connection as that closes itself is sent once, on another one.
func TestIdleConn_isReplaced(t *testing.T) {
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer receiver.Close()
	var last *idleConn
	dial := closingIdle(new(net.Dialer).DialContext)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		last, _ = conn.(*idleConn)
		return conn, err
	}}}
	defer client.CloseIdleConnections()
	const n = 500
	for i := range n {
		ctx, leave := taking(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", receiver.URL, strings.NewReader("payload"))
		check(t, err)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		check(t, resp.Body.Close())
		leave()
		go last.end() // as by its timer
	}
	if calls.Load() != n {
		t.Errorf("%d calls of %d requests", calls.Load(), n)
	}
}
