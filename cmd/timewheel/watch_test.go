// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
)

// deaf connects to a server that accepts every connection and reads its input, but never answers.
func deaf(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	return ours, nil
}

// A server that hangs is named, without the password, and the command waits for it as long as -timeout says.
func TestTimeout_ofAServerThatHangs(t *testing.T) {
	const said = "timewheel: the database at 10.0.0.1 has not answered for 3 s\n"
	for _, c := range []struct {
		args []string
		err  string
		code int
		took time.Duration
	}{
		{[]string{"ls"}, said + "timewheel: the database at 10.0.0.1 has not answered for 10 s; -timeout sets how long to wait\n", failed, 10 * time.Second},
		{[]string{"export"}, said + "timewheel: the database at 10.0.0.1 has not answered for 10 s; -timeout sets how long to wait\n", failed, 10 * time.Second},
		{[]string{"rm", "-all", "-yes", "-timeout", "2s"}, "timewheel: the database at 10.0.0.1 has not answered for 2 s; -timeout sets how long to wait\n", failed, 2 * time.Second},
		{[]string{"stats", "-timeout", "90s"}, said + "timewheel: the database at 10.0.0.1 has not answered for 1m30s; -timeout sets how long to wait\n", failed, 90 * time.Second},
		{[]string{"nodes", "-timeout", "0"}, said + "timewheel: interrupted\n", failed, 2 * time.Minute},
		{[]string{"migrate"}, said + "timewheel: interrupted\n", failed, 2 * time.Minute},
		{[]string{"ls", "-timeout", "-1s"}, "timewheel: invalid value \"-1s\" for flag -timeout: it is negative; `timewheel help ls` says more\n", usage, 0},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out, errOut bytes.Buffer
				p := &program{
					in: strings.NewReader(""), out: &out, err: &errOut, getenv: func(string) string { return "" },
					now: time.Now, dial: deaf,
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(2*time.Minute, cancel)
				began := time.Now()
				url := "postgres://ann:secret@10.0.0.1/shop?sslmode=disable&connect_timeout=1000"
				code := p.run(ctx, append(c.args, "-db", url))
				if code != c.code || errOut.String() != c.err || out.String() != "" {
					t.Errorf("exit code %d, and it writes %q and %q", code, out.String(), errOut.String())
				}
				if took := time.Since(began); took < c.took || took > c.took+time.Second {
					t.Errorf("it took %v, want %v", took, c.took)
				}
			})
		})
	}
}

// The timeout applies to the wait for an answer, not to the duration of the work, nor to abandoned tries.
func TestWatch_silence_endsWithAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server net.Conn
		w, err := newWatch("postgres://10.0.0.1/shop", func(context.Context, string, string) (net.Conn, error) {
			var ours net.Conn
			ours, server = net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return ours, nil
		})
		check(t, err)
		silent := func(when string, want time.Duration) {
			t.Helper()
			if got := w.silent(); got != want {
				t.Errorf("%s it is silent for %v, want %v", when, got, want)
			}
		}
		connect := func() net.Conn {
			conn, err := w.config.ConnConfig.DialFunc(t.Context(), "tcp", "10.0.0.1:5432")
			check(t, err)
			return conn
		}
		ask := func(conn net.Conn) {
			t.Helper()
			_, err := conn.Write([]byte("?"))
			check(t, err)
		}
		answer := func(conn net.Conn) {
			t.Helper()
			go func() { _, _ = server.Write([]byte("!!")) }()
			for range 2 {
				_, err := conn.Read(make([]byte, 1))
				check(t, err)
			}
		}
		conn := connect()
		time.Sleep(time.Minute)
		silent("when nothing was asked", 0)
		ask(conn)
		ask(conn)
		time.Sleep(5 * time.Second)
		silent("when it was asked", 5*time.Second)
		answer(conn)
		silent("when it has answered", 0)
		time.Sleep(time.Minute)
		ask(conn)
		time.Sleep(time.Second)
		check(t, conn.Close())
		silent("when it was given up", 0)
		time.Sleep(100 * time.Millisecond)
		conn = connect()
		ask(conn)
		time.Sleep(time.Second)
		silent("at the next try", 2100*time.Millisecond)
		check(t, conn.Close())
		time.Sleep(time.Minute)
		conn = connect()
		ask(conn)
		silent("when something else is asked later", 0)
		time.Sleep(time.Second)
		silent("a second after that", time.Second)
		check(t, conn.Close())
	})
}

// The command also gives up on a server that hangs after its first answer, although a search keeps querying it.
func TestTimeout_ofAServerThatHangsLater(t *testing.T) {
	r := inDatabase(t)
	for _, args := range [][]string{{"ls"}, {"stats"}, {"rm", "-all", "-yes"}, {"show", "k"}, {"export"}} {
		var connections atomic.Int64
		p := &program{
			in: strings.NewReader(""), out: io.Discard, getenv: func(string) string { return "" }, now: time.Now,
			dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if connections.Add(1) > 1 { // the first one is for checking the schema
					return deaf(ctx, network, addr)
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
		}
		var errOut bytes.Buffer
		p.err = &errOut
		code := p.run(t.Context(), append(append(args, r.place...), "-timeout", "500ms"))
		if code != failed || !strings.HasSuffix(errOut.String(), "has not answered for 500ms; -timeout sets how long to wait\n") {
			t.Errorf("%q: exit code %d, and it writes %q", args, code, errOut.String())
		}
	}
}

// A table that another session has locked is named, with the session, although the server answers other statements.
func TestTimeout_ofALockedTable(t *testing.T) {
	r := inDatabase(t)
	r.restore(fixture(t))
	conn, err := pgx.Connect(t.Context(), server(t)+"&application_name=by-hand")
	check(t, err)
	defer conn.Close(t.Context())
	table := pgx.Identifier{r.place[3], "task"}.Sanitize()
	_, err = conn.Exec(t.Context(), "BEGIN; LOCK TABLE "+table)
	check(t, err)
	want := fmt.Sprintf("the table %s is locked by process %d of the database server (by-hand: BEGIN; LOCK TABLE %[1]s), "+
		"and the command has waited for ", strings.ReplaceAll(table, `"task"`, "task"), conn.PgConn().PID())
	for _, args := range [][]string{{"stats"}, {"ls"}, {"show", "mail:1"}, {"rm", "mail:1"}} {
		got := r.do(args[0], append(args[1:], "-timeout", "1s")...)
		if got.code != failed || !strings.Contains(strings.ReplaceAll(got.err, `"task"`, "task"), want) || !strings.HasSuffix(got.err, "; -timeout sets how long\n") {
			t.Errorf("%q: %+v, want %q", args, got, want)
		}
	}
	_, err = conn.Exec(t.Context(), "ROLLBACK")
	check(t, err)
	r.must("stats")
}
