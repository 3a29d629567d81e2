// SPDX-License-Identifier: MIT

package pool

// keep is how many places an empty queue holds on to. What is beyond was for a burst.
const keep = 1024

// A queue is first in, first out. The space of what was taken is used again once it is half of the whole, so
// that a queue which is never quite empty does not grow.
type queue struct {
	jobs []func()
	head int // jobs[:head] are taken
}

func (q *queue) len() int { return len(q.jobs) - q.head }

func (q *queue) push(job func()) {
	if len(q.jobs) == cap(q.jobs) && q.head > len(q.jobs)/2 {
		n := copy(q.jobs, q.jobs[q.head:])
		clear(q.jobs[n:])
		q.jobs, q.head = q.jobs[:n], 0
	}
	q.jobs = append(q.jobs, job)
}

func (q *queue) pop() (job func(), ok bool) {
	if q.head == len(q.jobs) {
		return nil, false
	}
	job, q.jobs[q.head] = q.jobs[q.head], nil
	q.head++
	if q.head == len(q.jobs) {
		q.jobs, q.head = q.jobs[:0], 0
		if cap(q.jobs) > keep {
			q.jobs = nil
		}
	}
	return job, true
}
