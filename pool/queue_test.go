// SPDX-License-Identifier: MIT

package pool

import (
	"math/rand/v2"
	"testing"
)

// A numbered queue holds jobs that say their number, which are one more each.
type numbered struct {
	*testing.T
	queue
	in, out int
	said    int
}

func (q *numbered) add(n int) {
	for range n {
		number := q.in
		q.push(func() { q.said = number })
		q.in++
	}
}

// take pops n jobs, which must come in order, and leave nothing behind.
func (q *numbered) take(n int) {
	q.Helper()
	for range n {
		job, ok := q.pop()
		if !ok || job == nil {
			q.Fatalf("after %d of %d jobs the queue is empty", q.out, q.in)
		}
		if job(); q.said != q.out {
			q.Fatalf("job %d came in place of %d", q.said, q.out)
		}
		q.out++
	}
	if q.len() != q.in-q.out {
		q.Fatalf("the length is %d, want %d", q.len(), q.in-q.out)
	}
}

// verify fails the test if a job that was taken is kept from the collector.
func (q *numbered) verify() {
	q.Helper()
	held := 0
	for _, job := range q.jobs[:cap(q.jobs)] {
		if job != nil {
			held++
		}
	}
	if held != q.len() {
		q.Fatalf("%d jobs are held, and %d wait", held, q.len())
	}
}

func TestQueue_anyOrderOfOperations_isFirstInFirstOut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	q := numbered{T: t}
	for range 2000 {
		q.add(r.IntN(20))
		q.take(r.IntN(min(q.len(), 20) + 1))
		q.verify()
	}
	q.take(q.len())
	q.verify()
	if job, ok := q.pop(); ok || job != nil {
		t.Error("a job came out of an empty queue")
	}
}

func TestQueue_neverEmpty_doesNotGrow(t *testing.T) {
	for _, waiting := range []int{1, 2, 100} {
		q := numbered{T: t}
		q.add(waiting)
		for range 10_000 {
			q.add(3)
			q.take(3)
		}
		q.verify()
		if n := cap(q.jobs); n > 5*(waiting+3) {
			t.Errorf("for %d jobs at a time there is room for %d", waiting+3, n)
		}
	}
}

func TestQueue_space_isGivenBackAfterABurst(t *testing.T) {
	q := numbered{T: t}
	for range 2 {
		q.add(keep / 2)
		room := cap(q.jobs)
		q.take(keep / 2)
		q.verify()
		if n := cap(q.jobs); n != room {
			t.Errorf("an empty queue has room for %d jobs, of %d", n, room)
		}
		q.add(2 * keep)
		q.take(2 * keep)
		if n := cap(q.jobs); n > keep {
			t.Errorf("after a burst an empty queue has room for %d jobs", n)
		}
	}
}
