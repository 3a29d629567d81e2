// SPDX-License-Identifier: MIT

package node

import "time"

// An estimate predicts how long an answer takes from how long answers have taken, as TCP does (RFC 6298): a smoothed
// mean, and four times the mean deviation from it. After an answer that came too late, twice as long is allowed, until
// an answer is in time.
type estimate struct {
	answers         int
	mean, deviation time.Duration
	late            int // number of answers too late since the last one in time
}

// add adds an answer that took the given time.
func (e *estimate) add(took time.Duration) {
	e.late = 0
	if e.answers++; e.answers == 1 {
		e.mean, e.deviation = took, took/2
		return
	}
	e.deviation += ((e.mean - took).Abs() - e.deviation) / 4
	e.mean += (took - e.mean) / 8
}

// allow returns how long to wait for the next answer: at least least, and at most most.
func (e *estimate) allow(least, most time.Duration) time.Duration {
	limit := max(e.mean+4*e.deviation, least)
	for range e.late {
		limit = min(2*limit, most)
	}
	return min(limit, most)
}

// slowAnswer is the mean time of renewals from which the log says that the engine is slow. It says so again if the mean
// was less than half of that meanwhile.
const slowAnswer = 100 * time.Millisecond

// tookLocked records how long a renewal took.
func (n *Node) tookLocked(took time.Duration) {
	e := &n.renewing
	switch e.add(took); {
	case n.far:
		n.far = e.mean >= slowAnswer/2
	case e.answers > 3 && e.mean >= slowAnswer: // the first ones connect
		n.far = true
		n.report.note(func(n *notices) { n.slow = e.mean })
	}
}
