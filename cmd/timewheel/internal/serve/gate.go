// SPDX-License-Identifier: MIT

package serve

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	mostRefusing = 24                     // connections of all gates that are being refused at once
	refusalTime  = 250 * time.Millisecond // for the beginning of a request
	lingerTime   = 50 * time.Millisecond  // for the rest of it, after the answer
	mostRefused  = 64 << 10               // bytes of a refused request that are read
)

// A gate is a listener that bounds the connections that are open at once. It answers others with 503. When more than half
// of the places are taken, the server closes idle connections.
type gate struct {
	net.Listener
	most    int
	server  *http.Server
	tls     *tls.Config // nil without TLS
	open    atomic.Int64
	refused atomic.Uint64

	crowded  bool          // used only by Accept
	refusing chan struct{} // has an element for each connection that is being refused, by any gate
}

// Accept returns the next connection for which there is a place.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		open := int(g.open.Add(1))
		if is := open > g.most/2 || g.crowded && open > g.most/4; is != g.crowded {
			g.crowded = is
			g.server.SetKeepAlivesEnabled(!is)
		}
		if open <= g.most {
			return &place{Conn: conn, leave: sync.OnceFunc(func() { g.open.Add(-1) })}, nil
		}
		g.open.Add(-1)
		g.refused.Add(1)
		g.refusing <- struct{}{}
		go func() {
			defer func() { <-g.refusing }()
			g.refuse(conn)
		}()
	}
}

// refuse answers the beginning of a request with 503, and closes the connection.
func (g *gate) refuse(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(refusalTime))
	if g.tls != nil {
		conn = tls.Server(conn, g.tls)
	}
	if _, err := conn.Read(make([]byte, 4<<10)); err != nil {
		return
	}
	p := failure(http.StatusServiceUnavailable, effectNone, nil, "there are too many connections")
	p.Request = newID()
	text, err := json.Marshal(p)
	if err != nil {
		return
	}
	_, err = fmt.Fprintf(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n%s: %s\r\n\r\n%s", len(text), requestID, p.Request, text)
	_ = conn.SetDeadline(time.Now().Add(lingerTime))
	if half, is := conn.(interface{ CloseWrite() error }); is && err == nil && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, conn, mostRefused) // closing a connection with unread data would discard the answer
	}
}

// A place is a connection that a gate has let in.
type place struct {
	net.Conn
	leave func()
}

func (p *place) Close() error {
	err := p.Conn.Close()
	p.leave()
	return err
}
