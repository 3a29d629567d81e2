// SPDX-License-Identifier: MIT

// Package need records whether an engine does what a node needs in order to run tasks. A node is away from its engine
// while one of its needs is not met, although the engine may answer other calls. For example, a database on which nothing
// can be written still answers queries.
package need

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A Need is a kind of call without which a node runs no tasks, or a client does not know the time.
type Need int

const (
	Renewals Need = iota
	Settings
	Claims
	Confirmations
	Commits
	Time
	needs
)

var names = [needs]string{
	"renewals of the lease", "readings of the settings", "claims", "confirmations of starts", "commits", "readings of the time",
}

// failedFor is how long a call that failed counts if no other call of its need is made.
const failedFor = 5 * time.Second

// A Record is the calls of all needs. Its times are in nanoseconds, by a monotonic clock of the caller.
type Record struct {
	mu sync.Mutex // protects of
	of [needs]calls
}

// calls are the calls of a need.
type calls struct {
	pending int   // those without an answer
	since   int64 // when the first one was made that no successful one has followed
	failure error // why the last of them failed; nil if none has
	failed  int64 // when it failed
}

// isUnmet reports whether a call has failed or has no answer, and no other one has succeeded since.
func (c *calls) isUnmet(now int64) bool {
	return c.pending > 0 || c.failure != nil && now-c.failed < int64(failedFor)
}

// Asked records that a call is made.
func (r *Record) Asked(what Need, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.of[what]
	if !c.isUnmet(now) {
		*c = calls{since: now}
	}
	c.pending++
}

// Answered records the result of a call. A call whose caller has given up says nothing.
func (r *Record) Answered(what Need, now int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.of[what]
	c.pending--
	switch {
	case err == nil:
		*c = calls{pending: c.pending, since: now}
	case !errors.Is(err, context.Canceled):
		c.failure, c.failed = err, now
	}
}

// Unmet returns which needs have not been met for as long as least says: for how long the first of them, and why that one.
// The error is nil if there is none.
func (r *Record) Unmet(now int64, least func(Need) time.Duration) (since time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var unmet []string
	for what := range needs {
		c := &r.of[what]
		d := time.Duration(now - c.since)
		if !c.isUnmet(now) || d < least(what) {
			continue
		}
		if unmet = append(unmet, names[what]); d <= since {
			continue
		}
		if since, err = d, c.failure; err == nil || errors.Is(err, context.DeadlineExceeded) {
			err = errNoAnswer
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(unmet, " and "), err)
	}
	return since, err
}

var errNoAnswer = errors.New("no answer")
