// SPDX-License-Identifier: MIT

package dashboard

import (
	"context"
	"sync"
	"time"
)

const (
	// patience is how long a reading waits for the answers to its questions.
	readPatience = time.Second

	// A question is given up after questionTime. Until then it is not asked again.
	questionTime = 10 * time.Second

	// An answer is used again for rest times as long as it took, so that asking takes at most 1 % of the time,
	// unless the question has a bound of its own.
	rest = 100
)

// A question is what a scheduler is asked that may take long, and what it has answered. It is asked in the
// background, so that nothing waits for an engine that does not answer.
type question[T any] struct {
	most time.Duration // for how long an answer is used again at most; 0 is no bound

	mu    sync.Mutex // protects below
	value T          // the last one that was no error
	at    time.Time  // when it came; zero if none did
	err   error      // of the last question
	until time.Time  // the value is used until then
	asked chan struct{}
}

// start asks the question, unless it is being asked or the last answer is to be used again. It returns a
// channel that is closed when there is an answer.
func (q *question[T]) start(ask func(context.Context) (T, error)) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	began := time.Now()
	if q.asked != nil && !isClosed(q.asked) || began.Before(q.until) {
		return q.asked
	}
	done := make(chan struct{})
	q.asked = done
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), questionTime)
		defer cancel()
		value, err := ask(ctx)
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.err = err; err == nil {
			q.value, q.at = value, time.Now()
			again := rest * q.at.Sub(began)
			if q.most > 0 {
				again = min(again, q.most)
			}
			q.until = q.at.Add(again)
		}
		close(done)
	}()
	return done
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// get returns the last answer, when it came, and the error of the last question, which is nil while that is
// being asked.
func (q *question[T]) get() (value T, at time.Time, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if isClosed(q.asked) {
		err = q.err
	}
	return q.value, q.at, err
}

// waitAll waits until all channels are closed, for a while.
func waitAll(all ...<-chan struct{}) {
	enough := time.NewTimer(readPatience)
	defer enough.Stop()
	for _, c := range all {
		select {
		case <-c:
		case <-enough.C:
			return
		}
	}
}
