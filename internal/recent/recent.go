// SPDX-License-Identifier: MIT

// Package recent caches the last answer to a question that may take long to answer. It asks in the background, and
// limits how often it asks. It contains the only rule for how long an answer is reused.
package recent

import (
	"context"
	"sync"
	"time"
)

const (
	// Stale is the age from which an answer no longer counts as current.
	Stale = 15 * time.Second

	// An answer that arrived within brief is not reused.
	brief = 5 * time.Millisecond

	// Any other answer is reused for share times as long as it took, so that asking takes 1 % of the time. It is reused
	// for at most Stale or, if that is longer, for leastShare times as long as it took.
	share      = 100
	leastShare = 10
)

// Of is a question with an answer of type T. The zero value is a question that has never been asked.
//
// An answer belongs to an era, which the caller numbers. Answers from an earlier era are old, and pending answers to
// questions of an earlier era are discarded. An outage ends an era, because an answer from before the outage says
// nothing about the present.
type Of[T any] struct {
	Always bool          // never reuse an answer, however long it took
	Limit  time.Duration // maximum time for an answer; 0 means no limit

	mu     sync.Mutex // protects the fields below
	last   Answer[T]
	era    uint64        // era of last
	took   time.Duration // how long the last answer took; 0 if there was no answer
	reuse  time.Duration // last is reused until it is that old
	err    error         // error of the last question that ended
	under  uint64        // era of the last question
	asked  chan struct{} // closed when the last question has ended; nil if no question was asked
	at     time.Time     // when it was asked
	cancel context.CancelFunc
}

// An Answer is the last answer to a question, if there is one.
type Answer[T any] struct {
	Value T
	At    time.Time // when the question was asked; zero if there is no answer
	Old   bool      // the answer is from another era, or there is no answer
	Err   error     // error of the last question, if that question has ended

	Took    time.Duration // how long the answer took
	Pending time.Duration // how long the last question has had no answer; 0 if it has ended
}

// Ask calls ask in the background, unless an answer is pending or the last answer can be reused. It returns a channel
// that is closed when the question has ended. The context passed to ask is done when the limit has passed or the answer
// is no longer wanted.
func (q *Of[T]) Ask(era uint64, ask func(context.Context) (T, error)) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asked != nil && q.under == era {
		if !isClosed(q.asked) || q.err == nil && !q.Always && Since(q.last.At) < q.reuse {
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
	q.asked, q.under, q.at = done, era, time.Now()
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
	q.reuse = took + rest(q.cost(took))
	q.took = max(took, 1)
}

// cost returns how long the next answer is expected to take: the shorter of the last two times, so that a single answer
// that hung does not count. After the first answer, it is at most the cost at which an answer is reused for Stale.
func (q *Of[T]) cost(took time.Duration) time.Duration {
	if q.took == 0 {
		return min(took, Stale/share)
	}
	return min(took, q.took)
}

// rest returns how long an answer of the given cost is reused.
func rest(cost time.Duration) time.Duration {
	if cost <= brief {
		return 0
	}
	return min(share*cost, max(Stale, leastShare*cost))
}

// Last returns the last answer, as seen from the given era.
func (q *Of[T]) Last(era uint64) Answer[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.last
	a.Old, a.Took = a.At.IsZero() || q.era != era, q.took
	switch {
	case q.asked == nil || q.under != era:
	case isClosed(q.asked):
		a.Err = q.err
	default:
		a.Pending = max(Since(q.at), 1)
	}
	return a
}

// Expire prevents the last answer from being reused, so that the next Ask asks again.
func (q *Of[T]) Expire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reuse = 0
}

// Stop cancels the context of the question that is being asked.
func (q *Of[T]) Stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cancel != nil {
		q.cancel()
	}
}

// Since returns how long ago t was, by the monotonic or the wall clock, whichever has advanced further. The monotonic
// clock stands still while the machine is suspended, so an answer from before is older than [time.Since] says.
func Since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
