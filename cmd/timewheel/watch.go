// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed581295f1/timewheel/durable/postgres"
)

const (
	// sayAfter is how long a server may be silent before the program reports it.
	sayAfter = 3 * time.Second

	// giveUpAfter is the default of -timeout.
	giveUpAfter = 10 * time.Second

	// endGrace is how long the program waits for cancelled work to end.
	endGrace = time.Second
)

// A silence is the error for a server that has not answered within -timeout.
type silence struct {
	host string
	d    time.Duration
}

func (s silence) Error() string {
	return fmt.Sprintf("the database at %s has not answered for %s; -timeout sets how long to wait", s.host, spaced(s.d))
}

// spaced formats a duration for use in a sentence, such as "3 s".
func spaced(d time.Duration) string {
	if d < time.Minute && d%time.Second == 0 {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return span(d)
}

// A watch monitors the connections to a server, and records how long an answer has been outstanding. Any bytes count as
// an answer, so an answer that arrives in parts may take longer than -timeout.
type watch struct {
	config *pgxpool.Config
	host   string
	dial   func(ctx context.Context, network, addr string) (net.Conn, error) // makes connections that are not monitored

	mu      sync.Mutex // protects the fields below
	waiting int        // number of connections and connection attempts that are waiting for an answer
	since   time.Time  // when the first of these began to wait, or when the last answer arrived
	given   time.Time  // when a wait last ended without an answer
}

// newWatch returns a watch over connections to the server at the URL. dial creates the connections; nil means the
// default.
func newWatch(url string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*watch, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("invalid URL of the database: %w", err)
	}
	if !strings.Contains(url, "default_query_exec_mode") { // as in postgres.Open
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	w := &watch{config: config, host: config.ConnConfig.Host}
	if dial == nil {
		dial = config.ConnConfig.DialFunc
	}
	w.dial = dial
	if params := config.ConnConfig.RuntimeParams; params["application_name"] == "" {
		params["application_name"] = fmt.Sprintf("timewheel command %d", os.Getpid()) // as which it finds its locks
	}
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.wait()
		defer w.giveUp() // a connection is not an answer: the kernel accepts connections even for a stopped process
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: conn, w: w}, nil
	}
	return w, nil
}

// open opens the engine on the database.
func (w *watch) open(ctx context.Context, opts ...postgres.Option) (*postgres.Engine, error) {
	pool, err := pgxpool.NewWithConfig(ctx, w.config)
	if err != nil {
		return nil, err
	}
	defer pool.Close() // only its settings are used
	return postgres.OpenPool(ctx, pool, opts...)
}

func (w *watch) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == 0 && time.Since(w.given) > sayAfter/2 { // a shorter gap means a retry of the same call
		w.since = time.Now()
	}
	w.waiting++
}

func (w *watch) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	w.since, w.given = time.Now(), time.Time{}
}

func (w *watch) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	w.given = time.Now()
}

// silent returns how long an answer has been outstanding.
func (w *watch) silent() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == 0 {
		return 0
	}
	return time.Since(w.since)
}

// over runs work and reports when the server does not answer, or when the work waits for a lock. It cancels the work when
// either has taken timeout, or never if timeout is 0.
func (w *watch) over(ctx context.Context, p *program, timeout time.Duration, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- work(ctx) }()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	said := false
	locks := newLockWatch(w, timeout)
	giveUp := func(why error) error {
		cancel()
		select {
		case <-result:
		case <-time.After(endGrace):
		}
		return why
	}
	for {
		select {
		case err := <-result:
			return err
		case <-look.C:
		}
		l := locks.look(ctx)
		switch {
		case l.by == "":
		case timeout > 0 && l.d >= timeout:
			return giveUp(l)
		case !locks.said:
			locks.said = true
			p.complain("%s", l.text())
		}
		d := w.silent()
		if timeout > 0 && d >= timeout {
			if l.by != "" {
				return giveUp(l)
			}
			return giveUp(silence{w.host, timeout})
		}
		if d >= sayAfter && !said {
			p.complain("the database at %s has not answered for %s", w.host, spaced(sayAfter))
		}
		said = d >= sayAfter
	}
}

// A watchedConn is a connection to the server.
type watchedConn struct {
	net.Conn
	w *watch

	mu      sync.Mutex // protects the fields below
	waiting bool       // for an answer to the bytes written
}

func (c *watchedConn) Write(b []byte) (int, error) {
	c.change(true, c.w.wait)
	return c.Conn.Write(b)
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.change(false, c.w.answered)
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.change(false, c.w.giveUp)
	return c.Conn.Close()
}

// change sets whether the connection is waiting for an answer. If that changes, it calls note.
func (c *watchedConn) change(waiting bool, note func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting != waiting {
		c.waiting = waiting
		note()
	}
}
