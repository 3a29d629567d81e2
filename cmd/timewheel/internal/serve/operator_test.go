// SPDX-License-Identifier: MIT

package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed581295f1/timewheel/dashboard"
	"github.com/seed581295f1/timewheel/durable"
)

// Requests without a token, whose bodies never come, are answered, and leave their places to health.
func TestOperators_strangersWithoutBodies_leaveTheirPlaces(t *testing.T) {
	const descriptors = 700
	cfg := newFile(t, operators(operator("ann", anns, `"operate", "page"`), `, "operate": true`)).load()
	r := startOn(t, cfg, Place{Dir: t.TempDir(), Commander: says, descriptors: descriptors})
	admin := r.srv.AdminAddr().String()
	r.url = "http://" + admin
	for _, c := range []struct {
		request string
		status  int // of an answer that does not wait for the body; 0: any
	}{
		{"POST /command HTTP/1.1\r\nHost: 127.0.0.1\r\n", 401},
		{"POST /command HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n", 401},
		{"POST /command HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n", 401},
		{"POST /backup HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + anns + "\r\n", 403},
		{"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", 401},
		{"GET / HTTP/1.1\r\nHost: evil.example\r\n", 403},
		{"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", 0},
		{"PUT /command HTTP/1.1\r\nHost: 127.0.0.1\r\n", 0},
	} {
		for _, length := range []string{"Content-Length: 1000", "Content-Length: 1000000", "Transfer-Encoding: chunked"} {
			var open []net.Conn
			for range descriptors / adminPart {
				conn, err := net.Dial("tcp", admin)
				check(t, err)
				defer conn.Close()
				check(t, conn.SetDeadline(time.Now().Add(bound)))
				_, err = io.WriteString(conn, c.request+length+"\r\n\r\n1")
				check(t, err)
				open = append(open, conn)
			}
			for _, conn := range open {
				if c.status == 0 {
					break
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || resp.StatusCode != c.status && resp.StatusCode != 503 || resp.StatusCode == c.status && !resp.Close {
					t.Fatalf("%q with %s: %+v, %v", c.request, length, resp, err)
				}
			}
			until(t, "health is answered during "+c.request, func() bool { return r.do("GET", "/healthz", "").status == 200 })
		}
	}
}

// slowly calls do in a bubble, with a function that connects to the address of operators with one commander.
func slowly(t *testing.T, do func(t *testing.T, connect func(Commander) net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		srv := &Server{log: log}
		srv.operators.Store(&[]*Operator{})
		do(t, func(run Commander) net.Conn {
			handler := srv.adminHandler(&Admin{MetricsOnly: true, Operate: true}, prometheus.NewRegistry(), dashboard.Source{}, run)
			server, l := newServer(handler, log), make(pipes)
			go func() { _ = server.Serve(l) }()
			mine, its := net.Pipe()
			l <- its
			t.Cleanup(func() {
				check(t, mine.Close())
				close(l)
				check(t, server.Close())
			})
			return mine
		})
	})
}

// sendCommand sends a command.
func sendCommand(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		CommandPath, len(commandLine), commandLine)
	check(t, err)
}

// A command may take any time, also without an output.
func TestCommand_mayTakeLong(t *testing.T) {
	run := func(ctx context.Context, _ *durable.Scheduler, c Call) int {
		time.Sleep(24 * time.Hour)
		if ctx.Err() != nil {
			return 1
		}
		fmt.Fprint(c.Out, strings.Repeat("a", 3*mostFrame))
		return 0
	}
	slowly(t, func(t *testing.T, connect func(Commander) net.Conn) {
		c := connect(run)
		sendCommand(t, c)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		check(t, err)
		size := 0
		for in := json.NewDecoder(resp.Body); ; {
			var one Frame
			check(t, in.Decode(&one))
			if size += len(one.Out); one.Exit != nil {
				equal(t, "the exit code", *one.Exit, 0)
				break
			}
			time.Sleep(frameLimit / 2) // a slow client
		}
		equal(t, "the size of the output", size, 3*mostFrame)
	})
}

// A command ends if its client takes nothing.
func TestCommand_whoseClientDoesNotRead_ends(t *testing.T) {
	slowly(t, func(t *testing.T, connect func(Commander) net.Conn) {
		ended := make(chan error, 1)
		c := connect(func(ctx context.Context, _ *durable.Scheduler, c Call) int {
			for {
				if _, err := c.Out.Write(make([]byte, mostFrame)); err != nil {
					<-ctx.Done()
					ended <- err
					return 1
				}
			}
		})
		sendCommand(t, c)
		_, err := http.ReadResponse(bufio.NewReader(c), nil)
		check(t, err)
		begun := time.Now()
		if err := <-ended; !errors.As(err, new(net.Error)) {
			t.Errorf("the output ended with %v", err)
		}
		equal(t, "the time until the end", time.Since(begun), frameLimit)
	})
}

// A client that has a right to commands has a minute for one.
func TestCommand_thatComesTooSlowly(t *testing.T) {
	slowly(t, func(t *testing.T, connect func(Commander) net.Conn) {
		c := connect(says)
		begun := time.Now()
		go fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Content-Length: 1000\r\n\r\n1", CommandPath)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		check(t, err)
		equal(t, "the status", resp.StatusCode, 400)
		equal(t, "the time until the answer", time.Since(begun), readLimit)
	})
}
