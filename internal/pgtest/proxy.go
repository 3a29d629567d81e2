// SPDX-License-Identifier: MIT

package pgtest

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Fault is a fault that affects a client's message.
type Fault int

const (
	None Fault = iota
	Cut        // the message does not arrive, and the connection breaks
	Lose       // the server handles the message, and the connection breaks before the answer arrives
)

// A Direction is a direction of traffic through a Proxy.
type Direction int

const (
	Requests Direction = iota // from the clients to the server
	Answers
)

// A Proxy forwards traffic between clients and a server, and can disturb it. The server may be replaced.
type Proxy struct {
	l net.Listener

	mu      sync.Mutex // protects the fields below
	server  *Server
	conns   map[net.Conn]bool
	disturb func(message []byte) (f Fault, late time.Duration)
	held    [2]chan struct{} // one per direction; closed when the hold ends, or nil
}

// NewProxy returns a proxy for the server. It disturbs nothing yet.
func NewProxy(s *Server) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{server: s, l: l, conns: make(map[net.Conn]bool)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p, nil
}

// URL returns the URL of the server with the address of the proxy.
func (p *Proxy) URL() string {
	s := p.of()
	return strings.Replace(s.URL(), s.Addr(), p.Addr(), 1)
}

// To breaks all connections, and directs new connections to another server.
func (p *Proxy) To(s *Server) {
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	p.CutAll()
}

// of returns the current server.
func (p *Proxy) of() *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

// Addr returns the address that the proxy listens on.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Disturb sets a function that determines the fault and the delay of each client message. A delayed message arrives
// even if the client has given up. f is called by one goroutine at a time. A nil function ends the disturbance.
func (p *Proxy) Disturb(f func(message []byte) (Fault, time.Duration)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disturb = f
}

// Hold holds back all traffic in one direction, as if the network had failed in that direction only. The returned
// function lets the traffic arrive, even if the client has given up. The direction must not be held already.
func (p *Proxy) Hold(d Direction) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(chan struct{})
	p.held[d] = held
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held[d] = nil
		close(held)
	}
}

// await waits until the direction is not held.
func (p *Proxy) await(d Direction) {
	p.mu.Lock()
	held := p.held[d]
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// CutAll breaks all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
		delete(p.conns, conn)
	}
}

// Close breaks all connections and stops accepting new ones.
func (p *Proxy) Close() {
	_ = p.l.Close()
	p.CutAll()
}

func (p *Proxy) fault(message []byte) (f Fault, late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disturb == nil || len(message) == 0 {
		return None, 0
	}
	return p.disturb(message)
}

func (p *Proxy) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	up, err := net.Dial("tcp", p.of().Addr())
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	p.mu.Lock()
	p.conns[conn] = true
	p.mu.Unlock()
	var silent atomic.Bool
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		defer func() { _ = conn.Close() }()
		b := make([]byte, 1<<16)
		for {
			n, err := up.Read(b)
			if n > 0 && silent.Load() { // the server has handled the message
				return
			}
			p.await(Answers)
			if _, failed := conn.Write(b[:n]); err != nil || failed != nil {
				return
			}
		}
	}()
	b := make([]byte, 1<<16)
	for {
		n, err := conn.Read(b)
		f, late := p.fault(b[:n])
		if f == Cut {
			return
		}
		if f == Lose {
			silent.Store(true)
		}
		time.Sleep(late)
		p.await(Requests)
		if _, failed := up.Write(b[:n]); err != nil || failed != nil {
			break
		}
	}
	if silent.Load() {
		<-answered // without waiting, the server would roll back unfinished work
	}
}
