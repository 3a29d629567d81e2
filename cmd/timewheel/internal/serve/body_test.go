// SPDX-License-Identifier: MIT

package serve

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A sender sends a request, and reads nothing before it has sent all, as many clients do.
type sender struct {
	head    string // method, path and headers
	size    int    // of the body
	chunked bool
	conn    net.Conn
}

// headers sends the headers.
func (s *sender) headers() error {
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", s.size)
	if s.chunked {
		length = "Transfer-Encoding: chunked\r\n\r\n"
	}
	_, err := io.WriteString(s.conn, s.head+"Host: localhost\r\n"+length)
	return err
}

// begin sends the headers, and half of the body.
func (s *sender) begin() error {
	if err := s.headers(); err != nil {
		return err
	}
	return s.some(s.size / 2)
}

// end sends the rest, and returns the status of the answer.
func (s *sender) end() (int, error) {
	if err := s.some(s.size - s.size/2); err != nil {
		return 0, err
	}
	if s.chunked {
		if _, err := io.WriteString(s.conn, "0\r\n\r\n"); err != nil {
			return 0, err
		}
	}
	return s.answer()
}

// some sends n bytes of the body.
func (s *sender) some(n int) error {
	const most = 64 << 10
	for ; n > 0; n -= min(n, most) {
		piece := bytes.Repeat([]byte(" "), min(n, most))
		if s.chunked {
			piece = fmt.Appendf(nil, "%x\r\n%s\r\n", len(piece), piece)
		}
		if _, err := s.conn.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// answer reads the answer, after those with 100.
func (s *sender) answer() (int, error) {
	for in := bufio.NewReader(s.conn); ; {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return 0, err
		}
		if resp.StatusCode == http.StatusContinue {
			continue
		}
		_, err = io.ReadAll(resp.Body)
		return resp.StatusCode, err
	}
}

// dial connects to the service.
func (r *rig) dial(with *tls.Config) net.Conn {
	r.Helper()
	c, err := net.Dial("tcp", r.srv.Addr().String())
	check(r.T, err)
	r.Cleanup(func() { c.Close() })
	check(r.T, c.SetDeadline(time.Now().Add(bound)))
	if with != nil {
		return tls.Client(c, with)
	}
	return c
}

const slowToken, otherToken = "takes all its places", "can only read, and not write"

// withCallers are tokens of a configuration.
const withCallers = `"tokens": [
	{"name": "slow", "token": "` + slowToken + `", "prefixes": [""], "kinds": ["*"], "rights": ["write"]},
	{"name": "new", "token": "has all its places left", "prefixes": [""], "kinds": ["*"], "rights": ["write"]},
	{"name": "reader", "token": "` + otherToken + `", "prefixes": [""], "kinds": ["*"], "rights": ["read"]}],`

// A client in the middle of a large body that is refused can send the rest, and reads the answer.
func TestBody_thatIsRefused_isAnswered(t *testing.T) {
	f := newFile(t, withTLS(withCallers))
	pool := certify(t, f.dir)
	for name, with := range map[string]*tls.Config{"TCP": nil, "TLS": {RootCAs: pool, ServerName: "127.0.0.1"}} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, "127.0.0.1:1", strings.Replace(idle, "{", "{"+withCallers, 1))
			if with != nil {
				cfg = f.load()
			}
			r := start(t, cfg)
			const batch = "POST /tasks HTTP/1.1\r\nContent-Type: " + batchType + "\r\n"
			bearer := func(token string) string { return "Authorization: Bearer " + token + "\r\n" }
			for range mostBatches { // the server asks for the body when it has given the place
				s := &sender{head: batch + bearer(slowToken) + "Expect: 100-continue\r\n", size: 1, conn: r.dial(with)}
				check(t, s.begin())
				if resp, err := http.ReadResponse(bufio.NewReader(s.conn), nil); err != nil || resp.StatusCode != http.StatusContinue {
					t.Fatalf("the answer is %v, %v", resp, err)
				}
			}
			type refusal struct {
				sender
				status int
			}
			var all []*refusal
			for _, c := range []struct {
				head         string
				size, status int
			}{
				{batch + bearer("of no caller"), mostBatch, 401}, {batch, mostBatch, 401}, {batch + bearer(otherToken), mostBatch, 403},
				{strings.Replace(batch, batchType, "text/plain", 1) + bearer(slowToken), mostBatch, 415},
				{batch + bearer("has all its places left"), mostBatch + 1, 413}, {batch + bearer("has all its places left"), mostDrained, 413},
				{"PUT /tasks/a HTTP/1.1\r\nContent-Type: application/json\r\n" + bearer(slowToken), mostBatch, 413},
				{batch + bearer(slowToken), mostBatch, 503},
				{"POST /none HTTP/1.1\r\n", mostBatch, 404}, {"PATCH /tasks HTTP/1.1\r\n", mostBatch, 405},
			} {
				for _, chunked := range []bool{false, true} {
					for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
						all = append(all, &refusal{sender{c.head + expect, c.size, chunked, r.dial(with)}, c.status})
					}
				}
			}
			var wait sync.WaitGroup
			for _, one := range all {
				wait.Go(func() {
					err := one.begin()
					got := 0
					if err == nil {
						time.Sleep(time.Second) // a server that does not read the rest has closed the connection by then
						got, err = one.end()
					}
					if err != nil || got != one.status {
						t.Errorf("%q with chunks %v: %d, %v, want %d", one.head, one.chunked, got, err, one.status)
					}
				})
			}
			wait.Wait()
		})
	}
}

// While the rest of a refused batch is read, its place is free.
func TestBody_thatIsRefused_hasNoPlace(t *testing.T) {
	r := start(t, config(t, "127.0.0.1:1", idle))
	for range 2 * mostBatches {
		s := &sender{head: "POST /tasks HTTP/1.1\r\nContent-Type: " + batchType + "\r\n", size: 2 * mostBatch, conn: r.dial(nil)}
		check(t, s.begin())
		got, err := s.answer() // at once, for a client that reads while it writes
		check(t, err)
		equal(t, "the status", got, 413)
		check(t, s.some(100))
	}
	r.must(200, "POST", "/tasks", `{"key": "a", "kind": "k", "delay": "1h"}`)
}

// A pipes is a listener whose connections are in memory, so that a test has its own time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, is := <-p
	if !is {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client whose request was refused cannot hold its connection longer than one whose request is read, nor send without end.
func TestBody_thatIsRefused_isReadForAWhile(t *testing.T) {
	cfg := &Config{Tokens: []*Token{{Token: "secret"}}}
	for name, c := range map[string]struct {
		expect string
		send   func(s *sender) error
	}{
		"silent":  {"", nil},
		"waiting": {"Expect: 100-continue\r\n", nil},
		"slow": {"", func(s *sender) error {
			time.Sleep(time.Second)
			return s.some(1)
		}},
		"endless": {"", func(s *sender) error { return s.some(1 << 20) }},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", chunked ", chunked), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log := slog.New(slog.DiscardHandler)
					counts := prometheus.NewCounterVec(prometheus.CounterOpts{}, []string{"method", "code"})
					server := newServer(newAPI(nil, cfg, log, counts).handler(), log)
					l := make(pipes)
					go func() { _ = server.Serve(l) }()
					mine, its := net.Pipe()
					l <- its
					begun := time.Now()
					s := &sender{head: "POST /tasks HTTP/1.1\r\n" + c.expect, size: 1 << 30, chunked: chunked, conn: mine}
					check(t, s.headers())
					got, err := s.answer()
					check(t, err)
					equal(t, "the status", got, 401)
					equal(t, "the time until the answer", time.Since(begun), 0)
					sent, ended := 0, make(chan bool)
					go func() {
						defer close(ended)
						for c.send != nil && c.send(s) == nil {
							sent++
						}
					}()
					_, err = mine.Read(make([]byte, 1))
					if took := time.Since(begun); err != io.EOF || took > readLimit+time.Second { // package http waits for half a second
						t.Errorf("the connection ended after %v: %v", took, err)
					}
					check(t, mine.Close())
					close(l)
					<-ended
					if name == "endless" && sent > (mostDrained>>20)+1 {
						t.Errorf("%d megabytes were read", sent)
					}
					check(t, server.Close())
				})
			})
		}
	}
}
