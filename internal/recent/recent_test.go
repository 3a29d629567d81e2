// SPDX-License-Identifier: MIT

package recent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// asker returns a function that asks in the given era, with an answer that takes the given time. It also returns a
// function that returns how often a question was asked.
func asker(q *Of[int]) (ask func(era uint64, took time.Duration) <-chan struct{}, asked func() int) {
	var n atomic.Int32
	return func(era uint64, took time.Duration) <-chan struct{} {
		return q.Ask(era, func(ctx context.Context) (int, error) {
			of := int(n.Add(1))
			time.Sleep(took)
			return of, ctx.Err()
		})
	}, func() int { return int(n.Load()) }
}

func TestOf_isAskedAsOftenAsTheRuleSays(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ took, every time.Duration }{
		{ms, ms}, {5 * ms, 5 * ms}, {10 * ms, 1010 * ms}, {100 * ms, 10100 * ms}, {150 * ms, 15150 * ms}, {time.Second, 16 * time.Second},
		{1500 * ms, 16500 * ms}, {2 * time.Second, 22 * time.Second}, {time.Minute, 11 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			var q Of[int]
			ask, asked := asker(&q)
			<-ask(0, c.took)
			<-ask(0, c.took)
			for asked() < 2 { // the first is repeated early: its cost is not yet known
				time.Sleep(ms)
				<-ask(0, c.took)
			}
			began := time.Now().Add(-c.took)
			for asked() < 3 {
				time.Sleep(ms)
				ask(0, c.took)
				synctest.Wait()
			}
			if got := time.Since(began); got < c.every || got > c.every+2*ms {
				t.Errorf("an answer that takes %v is asked for again after %v, want %v", c.took, got, c.every)
			}
			time.Sleep(c.took)
		})
	}
}

// A question whose answer took no time is asked again at once, even if the clock does not move.
func TestOf_ofNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Of[int]
		ask, asked := asker(&q)
		for i := range 3 {
			if <-ask(0, 0); asked() != i+1 {
				t.Errorf("it was asked %d times, want %d", asked(), i+1)
			}
		}
	})
}

// A single answer that takes long, because the other side hangs, is not reused for longer than other answers.
func TestOf_hangsOnce_isAskedSoon(t *testing.T) {
	for name, before := range map[string]time.Duration{"at first": 0, "later": 10 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var q Of[int]
			ask, asked := asker(&q)
			if before > 0 {
				<-ask(0, before)
				time.Sleep(time.Minute)
			}
			<-ask(0, 10*time.Second)
			n := asked()
			time.Sleep(Stale)
			if <-ask(0, before); asked() != n+1 {
				t.Errorf("%s: after %v it is not asked again", name, Stale)
			}
		})
	}
}

// An answer from an earlier era is discarded, and the question is asked at once.
func TestOf_laterEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Of[int]
		ask, asked := asker(&q)
		if a := q.Last(0); !a.Old || !a.At.IsZero() {
			t.Errorf("before the first answer there is %+v", a)
		}
		<-ask(0, time.Second)
		if a := q.Last(0); a.Old || a.Value != 1 || !a.At.Equal(time.Now().Add(-time.Second)) {
			t.Errorf("the first answer is %+v", a)
		}
		time.Sleep(time.Minute)
		ask(0, 10*time.Second) // the question hangs
		time.Sleep(9 * time.Second)
		if a := q.Last(1); !a.Old || a.Value != 1 || a.Err != nil {
			t.Errorf("after an outage the answer is %+v", a)
		}
		if <-ask(1, time.Millisecond); asked() != 3 || q.Last(1).Value != 3 || q.Last(1).Old {
			t.Errorf("it was asked %d times, and the answer is %+v", asked(), q.Last(1))
		}
		time.Sleep(time.Minute)
		if a := q.Last(1); a.Value != 3 || a.Err != nil {
			t.Errorf("after the late answer it is %+v", a)
		}
	})
}

func TestOf_errors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := Of[int]{Limit: time.Second}
		failed := errors.New("on purpose")
		<-q.Ask(0, func(context.Context) (int, error) { time.Sleep(time.Second / 2); return 7, nil })
		q.Expire()
		for range 3 { // an error is not reused
			<-q.Ask(0, func(context.Context) (int, error) { return 0, failed })
			if a := q.Last(0); a.Value != 7 || a.Err != failed || a.Old {
				t.Errorf("after an error it is %+v", a)
			}
		}
		began := time.Now()
		hang := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		asked := q.Ask(0, hang)
		if a := q.Last(0); a.Err != nil {
			t.Errorf("while it is asked there is %+v", a)
		}
		if <-asked; time.Since(began) != time.Second || !errors.Is(q.Last(0).Err, context.DeadlineExceeded) {
			t.Errorf("after %v it is %+v", time.Since(began), q.Last(0))
		}
		asked = q.Ask(0, hang)
		q.Stop()
		if <-asked; !errors.Is(q.Last(0).Err, context.Canceled) {
			t.Errorf("after Stop it is %+v", q.Last(0))
		}
	})
}
