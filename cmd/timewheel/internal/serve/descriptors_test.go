// SPDX-License-Identifier: MIT

package serve

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/durable/pebble"
)

// The parts of the descriptors do not exceed the limit. If they do not suffice, the error or the warning names a limit
// that does.
func TestDivide_keepsTheReserve_andNamesALimitThatSuffices(t *testing.T) {
	of := func(kinds int, url string, concurrency int) string {
		text := `"elsewhere": {"elsewhere": true}`
		for i := range kinds {
			text += fmt.Sprintf(`, "k%d": {"url": "%s", "networks": ["127.0.0.1/32"], "secrets": ["$S"], "concurrency": %d}`, i, url, concurrency+i)
		}
		return text
	}
	for name, kinds := range map[string]string{
		"none": of(0, "", 0), "names": of(12, "https://hooks.example/", 100), "addresses": of(12, "http://127.0.0.1/", 100),
		"many": of(200, "https://hooks.example/", 1), "one": of(1, "http://127.0.0.1/", 100_000),
	} {
		for _, admin := range []string{"", `"admin": {"listen": "127.0.0.1:0"}, `} {
			for _, in := range []Place{{Dir: "."}, {DB: "x"}, {DB: "x", Connections: 200}} {
				for _, limit := range []int{10, 100, 255, 256, 500, 998, 999, 1000, 1023, 1024, 4096, 20_000, 1 << 20, math.MaxInt} {
					what := fmt.Sprint(name, admin, in, limit)
					cfg := func() *Config { return config(t, "", `{"listen": "127.0.0.1:0", `+admin+`"kinds": {`+kinds+`}}`) }
					in.descriptors = limit
					c := cfg()
					d, err := c.divide(in)
					if err != nil {
						words := strings.Fields(strings.SplitAfter(err.Error(), "at least ")[1])
						enough, convErr := strconv.Atoi(words[0])
						check(t, convErr)
						for in.descriptors = enough - 1; in.descriptors <= enough; in.descriptors++ { // the runtime may use one less
							if _, err := cfg().divide(in); err != nil || enough <= limit {
								t.Errorf("%s: %d should suffice: %v", what, enough, err)
							}
						}
						continue
					}
					reserve := 208 // the most connections of these places, and the others
					if in.Dir != "" {
						reserve = pebble.MaxDescriptors(limit)
					} else if in.Connections == 0 {
						reserve = 24
					}
					if reserve += 48; d.callers < 12 || d.callers+d.admin+d.webhooks > limit-reserve || admin != "" && d.admin < 4 {
						t.Errorf("%s: the parts are %+v", what, d)
					}
					lowered := c.fit(d)
					used := 0
					for _, k := range c.Kinds {
						if used += k.cost() * k.Concurrency; k.cost() > 0 && k.Concurrency < 1 {
							t.Errorf("%s: a concurrency is %d", what, k.Concurrency)
						}
					}
					if used > d.webhooks || used < d.webhooks*9/10-2*len(c.Kinds) {
						t.Errorf("%s: webhooks use %d of %d", what, used, d.webhooks)
					}
					said := c.shortage(d, lowered)
					if len(lowered) > 0 != (said != "") {
						t.Errorf("%s: it says %q", what, said)
					}
					if len(lowered) == 0 {
						continue
					}
					if !strings.Contains(said, fmt.Sprintf("Raise the limit to %d ", d.enough)) || len(said) > 700 {
						t.Errorf("%s: it says %q", what, said)
					}
					for in.descriptors = d.enough - 1; in.descriptors <= d.enough; in.descriptors++ {
						c := cfg()
						d, err := c.divide(in)
						if err != nil || len(c.fit(d)) > 0 {
							t.Errorf("%s: %d should be enough: %+v, %v", what, in.descriptors, d, err)
						}
					}
				}
			}
		}
	}
}

// Attempts that have no descriptor wait, and the metric and the log say so until they no longer wait.
func TestOpen_withFewDescriptors_letsAttemptsWait(t *testing.T) {
	hang := make(chan bool)
	at := receiver(t, func(http.ResponseWriter, *http.Request) { <-hang })
	cfg := config(t, at, strings.Replace(simple, "{", `{"admin": {"listen": "127.0.0.1:0"}, `, 1))
	cfg.Kinds["k"].Timeout = Duration(time.Hour)
	r := startOn(t, cfg, Place{Dir: t.TempDir(), descriptors: 256})
	release := sync.OnceFunc(func() { close(hang) })
	t.Cleanup(release) // before the service is stopped
	now := cfg.Kinds["k"].Concurrency
	if r.log.count("the kinds may need 100. The concurrency is lowered: k "+strconv.Itoa(now)+" of 100.") != 1 || now < 30 || now > 70 {
		t.Errorf("the concurrency is %d", now)
	}
	const more = 5
	for i := range now + more {
		r.must(204, "PUT", "/tasks/"+keyOf("a", i), `{"kind": "k"}`)
	}
	until(t, "the other attempts wait", func() bool { return r.srv.waiting() == more })
	equal(t, "the attempts in progress", r.srv.s.Kinds()[0].Running, now)
	api := r.url
	r.url = "http://" + r.srv.AdminAddr().String()
	metrics := r.must(200, "GET", "/metrics", "")
	for _, want := range []string{"\ntimewheel_serve_attempts_waiting_for_descriptors 5\n", "\ntimewheel_serve_refused_connections_total 0\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %q", want)
		}
	}
	r.url = api
	until(t, "the log says it", func() bool { return r.log.count("file descriptors are short") == 1 })
	release()
	until(t, "all have ended", func() bool { return r.srv.s.Len() == 0 })
	equal(t, "the attempts that wait", r.srv.waiting(), 0)
	_, err := Open(t.Context(), cfg, Place{Dir: filepath.Join(t.TempDir(), "none"), descriptors: 100}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "the process may have 100 file descriptors open, and needs at least") {
		t.Errorf("with 100 descriptors Open returns %v", err)
	}
}

// The log says once that descriptors are short, and once that they suffice again, however often it changes within ten
// seconds.
func TestLookout_saysTheBeginningAndTheEnd(t *testing.T) {
	var log lines
	l := lookout{log: slog.New(slog.NewTextHandler(&log, nil))}
	at := time.Now()
	look := func(waiting int, refused uint64, after time.Duration, short, again int) {
		t.Helper()
		at = at.Add(after)
		l.look(waiting, refused, at)
		if got := [2]int{log.count("are short"), log.count("suffice again")}; got != [2]int{short, again} {
			t.Errorf("it has said %v, want %d, %d", got, short, again)
		}
	}
	look(0, 0, time.Second, 0, 0)
	look(3, 0, time.Second, 1, 0)
	look(0, 0, time.Second, 1, 0)
	look(0, 2, time.Second, 1, 0) // a connection was refused
	look(0, 2, shortFor, 1, 0)
	look(0, 2, time.Second, 1, 1)
	look(0, 2, time.Hour, 1, 1)
	look(0, 3, time.Second, 2, 1)
}

// Connections beyond the bound get 503, and a closed connection frees its place.
func TestGate_answersOtherConnectionsWith503(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			check(t, err)
			reads := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
			s := newServer(http.HandlerFunc(reads), slog.New(slog.DiscardHandler))
			g := &gate{Listener: l, most: 2, server: s, refusing: make(chan struct{}, 1)}
			at := net.Listener(g)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			if scheme == "https" {
				dir := t.TempDir()
				pool := certify(t, dir)
				files := TLS{Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
				k := &checker{config: new(Config)}
				k.certificate("tls", &files)
				check(t, k.err())
				g.tls = files.forConnections()
				at = tls.NewListener(g, g.tls)
				client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
			}
			go s.Serve(at)
			t.Cleanup(func() { s.Close() })
			get := func() answered {
				t.Helper()
				resp, err := client.Post(scheme+"://"+l.Addr().String(), "text/plain", strings.NewReader(strings.Repeat("x", 20_000)))
				check(t, err)
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				check(t, err)
				return answered{resp.StatusCode, resp.Header, string(text)}
			}
			equal(t, "the status", get().status, 200)
			until(t, "the connection is closed", func() bool { return g.open.Load() == 0 })
			var half []net.Conn
			for range 2 {
				c, err := net.Dial("tcp", l.Addr().String())
				check(t, err)
				defer c.Close()
				half = append(half, c)
			}
			until(t, "both are accepted", func() bool { return g.open.Load() == 2 })
			got := get()
			if got.status != 503 || got.header.Get("Retry-After") != "1" || jsonOf(t, got.body)["effect"] != "none" ||
				jsonOf(t, got.body)["request"] != got.header.Get(requestID) {
				t.Errorf("the answer is %+v", got)
			}
			equal(t, "the number of refused connections", g.refused.Load(), 1)
			check(t, half[0].Close())
			until(t, "a place is free", func() bool { return g.open.Load() < 2 })
			equal(t, "the status", get().status, 200)
		})
	}
}

// When more than half of the places are taken, connections are closed after their answer, and idle ones at once.
func TestGate_ofACrowd_keepsNoIdleConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	s := newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	g := &gate{Listener: l, most: 8, server: s, refusing: make(chan struct{}, 1)}
	go s.Serve(g)
	t.Cleanup(func() { s.Close() })
	dial := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		t.Cleanup(func() { c.Close() })
		check(t, c.SetDeadline(time.Now().Add(bound)))
		return c, bufio.NewReader(c)
	}
	closes := func(c net.Conn, from *bufio.Reader) bool {
		t.Helper()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		check(t, err)
		resp, err := http.ReadResponse(from, nil)
		check(t, err)
		return resp.Close
	}
	idle, from := dial()
	if closes(idle, from) {
		t.Error("the first connection is not kept")
	}
	var others []net.Conn
	for range 4 {
		c, _ := dial()
		others = append(others, c)
	}
	if _, err := from.ReadByte(); err != io.EOF { // the idle one is closed
		t.Errorf("the idle connection: %v", err)
	}
	c, from := dial()
	if !closes(c, from) {
		t.Error("a connection is kept in a crowd")
	}
	for _, c := range others {
		check(t, c.Close())
	}
	until(t, "the others are gone", func() bool { return g.open.Load() == 0 })
	if c, from = dial(); closes(c, from) {
		t.Error("after the crowd a connection is not kept")
	}
}

// A client that sends nothing does not hold up the refusal of others for long.
func TestGate_silentConnection_isClosedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		g := new(gate)
		go g.refuse(there)
		before := time.Now()
		if n, err := here.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%d bytes, %v", n, err)
		}
		equal(t, "the wait", time.Since(before), refusalTime)
	})
}
