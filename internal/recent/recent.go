// SPDX-License-Identifier: MIT

// Package recent keeps the last answer to a question that may take long. It asks in the background, and not too often.
// It has the only rule for how long an answer is reused.
package recent

import (
	"context"
	"sync"
	"time"
)

const (
	// Stale is the age from which an answer no longer counts as current.
	Stale = 15 * time.Second

	// An answer that came within brief is not reused.
	brief = 5 * time.Millisecond

	// Other answers are reused for share times as long as they took, so that the question takes 1 % of the time, but
	// for no longer than Stale, unless the question would then take more than one part of the time in leastShare.
	share      = 100
	leastShare = 10
)

// Of is a question with an answer of type T. The zero value is a question that was never asked.
//
// An answer belongs to an era, which the caller counts. Answers of an earlier era are old, and pending ones are
// discarded. An outage ends an era: an answer from before says nothing about the present.
type Of[T any] struct {
	Always bool          // each Ask asks, however long the last answer took
	Limit  time.Duration // how long an answer may take; 0 means no limit

	mu     sync.Mutex // protects below
	last   Answer[T]
	era    uint64        // of last
	took   time.Duration // how long the last answer took; 0 if there was none
	until  time.Time     // last is used until then
	err    error         // of the last ended question
	under  uint64        // the era of the last question
	asked  chan struct{} // closed when the last question has ended; nil if none was asked
	cancel context.CancelFunc
}

// An Answer is an answer to a question.
type Answer[T any] struct {
	Value T
	At    time.Time // when it was asked for; zero if there is none
	Old   bool      // it belongs to an earlier era, or there is none
	Err   error     // of the last question, if it has ended
}

// Ask asks, unless an answer is pending or the last one is reused. It returns a channel that is closed when the
// question has ended. The context of ask is done at the limit, and when the answer is no longer wanted.
func (q *Of[T]) Ask(era uint64, ask func(context.Context) (T, error)) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asked != nil && q.under == era {
		if !isClosed(q.asked) || q.err == nil && !q.Always && time.Now().Before(q.until) {
			return q.asked
		}
	}
	if q.cancel != nil {
		q.cancel()
	}
	var ctx context.Context
	if ctx, q.cancel = context.WithCancel(context.Background()); q.Limit > 0 {
		ctx, q.cancel = context.WithTimeout(context.Background(), q.Limit)
	}
	done := make(chan struct{})
	q.asked, q.under = done, era
	go q.run(ctx, q.cancel, era, done, ask)
	return done
}

func (q *Of[T]) run(ctx context.Context, cancel context.CancelFunc, era uint64, done chan struct{},
	ask func(context.Context) (T, error),
) {
	defer close(done)
	defer cancel()
	began := time.Now()
	value, err := ask(ctx)
	took := time.Since(began)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asked != done {
		return // another question was asked, in a later era
	}
	if q.err = err; err != nil {
		return
	}
	q.last, q.era = Answer[T]{Value: value, At: began}, era
	q.until = began.Add(took + rest(q.cost(took)))
	q.took = max(took, 1)
}

// cost returns how long the next answer is expected to take: the shorter of the last two, so that one that hung does
// not count. Before the second, it is at most the cost for which an answer is reused for Stale.
func (q *Of[T]) cost(took time.Duration) time.Duration {
	if q.took == 0 {
		return min(took, Stale/share)
	}
	return min(took, q.took)
}

// rest returns how long an answer of that cost is reused.
func rest(cost time.Duration) time.Duration {
	if cost <= brief {
		return 0
	}
	return min(share*cost, max(Stale, leastShare*cost))
}

// Last returns the last answer, as seen from the era.
func (q *Of[T]) Last(era uint64) Answer[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.last
	a.Old = a.At.IsZero() || q.era != era
	if q.asked != nil && q.under == era && isClosed(q.asked) {
		a.Err = q.err
	}
	return a
}

// Expire makes the next Ask ask, however long the last answer took.
func (q *Of[T]) Expire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until = time.Time{}
}

// Stop ends the context of a question that is being asked.
func (q *Of[T]) Stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cancel != nil {
		q.cancel()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
