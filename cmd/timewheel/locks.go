// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A lockWatch finds out whether the statements of the program wait for a lock. While they do, the server still answers
// other statements, and may end these to have them sent again, so it is not silent.
type lockWatch struct {
	w      *watch
	began  time.Time     // when the work began
	since  time.Time     // since when the statements have waited; zero if they do not
	after  time.Duration // how long the work takes before the server is asked
	said   bool          // the user knows
	by     string        // the lock, as last found
	found  chan string   // nil while nothing is being asked
	asked  time.Time
	missed int // answers in succession that did not find the lock
}

// lockEvery is how often the server is asked for the locks.
const lockEvery = time.Second

// A lockWait is the error for work that waits for a lock. by is empty if it does not.
type lockWait struct {
	by string
	d  time.Duration
}

func (l lockWait) text() string {
	d := l.d.Truncate(time.Second)
	if d == 0 {
		d = l.d.Truncate(100 * time.Millisecond)
	}
	return fmt.Sprintf("%s, and the command has waited for %s", l.by, spaced(d))
}

func (l lockWait) Error() string { return l.text() + "; -timeout sets how long" }

// newLockWatch returns a lockWatch for work that begins now and is given up after timeout.
func newLockWatch(w *watch, timeout time.Duration) *lockWatch {
	after := sayAfter
	if timeout > 0 {
		after = min(after, timeout/2) // so that the answer comes before the command gives up
	}
	return &lockWatch{w: w, began: time.Now(), after: after}
}

// look returns what the work waits for, as found last, and asks again if it is time. It does not wait for an answer.
func (l *lockWatch) look(ctx context.Context) lockWait {
	now := time.Now()
	select {
	case by := <-l.found:
		l.found = nil
		switch {
		case by != "":
			if l.by, l.missed = by, 0; l.since.IsZero() {
				l.since = l.asked
			}
		case l.missed < 3: // the statement may be about to be sent again
			l.missed++
		default:
			l.by, l.since, l.said = "", time.Time{}, false
		}
	default:
	}
	if l.found == nil && now.Sub(l.began) >= l.after && now.Sub(l.asked) >= lockEvery {
		if l.asked.IsZero() {
			l.since = l.began // it has probably waited since
		}
		l.asked, l.found = now, make(chan string, 1)
		go func(found chan<- string) { found <- l.w.lockedBy(ctx) }(l.found)
	}
	if l.by == "" {
		return lockWait{}
	}
	return lockWait{l.by, now.Sub(l.since)}
}

// lockedBy returns which lock a connection of the program waits for, and which session has it, or "" if that is unknown.
// Only the statements of users with the role of the program are visible to it.
func (w *watch) lockedBy(ctx context.Context) (text string) {
	ctx, cancel := context.WithTimeout(ctx, 2*lockEvery)
	defer cancel()
	config := w.config.ConnConfig.Copy()
	config.DialFunc = w.dial
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close(ctx) }()
	var what, who string
	var pid int
	err = conn.QueryRow(ctx, lockSQL, config.RuntimeParams["application_name"]).Scan(&what, &pid, &who)
	if err != nil {
		return ""
	}
	if who != "" {
		who = " (" + who + ")"
	}
	return fmt.Sprintf("%s is locked by process %d of the database server%s", what, pid, who)
}

const lockSQL = `
SELECT CASE l.locktype WHEN 'relation' THEN 'the table ' || l.relation::regclass ELSE 'a task' END, b.pid,
	concat_ws(': ', nullif(o.application_name, ''), nullif(left(regexp_replace(o.query, '\s+', ' ', 'g'), 80), ''))
FROM pg_stat_activity a
JOIN pg_locks l ON l.pid = a.pid AND NOT l.granted
CROSS JOIN LATERAL unnest(pg_blocking_pids(a.pid)) b (pid)
LEFT JOIN pg_stat_activity o ON o.pid = b.pid
WHERE a.application_name = $1 AND a.pid <> pg_backend_pid()
LIMIT 1`
