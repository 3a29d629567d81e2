// SPDX-License-Identifier: MIT

package durable

import (
	"sync/atomic"
	"time"
)

// A kindCounter counts for [KindInfo].
type kindCounter struct{ started, succeeded, failed, parked atomic.Uint64 }

// observed returns end with the counters of the kind and the observers after it. The attempt starts now.
func (c *config) observed(rec *record, run Run, of *kind, end func(failure string)) func(failure string) {
	started := time.Now()
	of.count.started.Add(1)
	return func(failure string) {
		end(failure)
		a := Attempt{
			Token: run.Token, Kind: run.Kind, Attempt: run.Attempt, Due: time.Unix(0, rec.due),
			Started: started, Ended: time.Now(), Failure: failure,
			Parked: failure != "" && uint64(run.Attempt) >= of.attempts,
		}
		switch {
		case failure == "":
			of.count.succeeded.Add(1)
		default:
			of.count.failed.Add(1)
		}
		if a.Parked {
			of.count.parked.Add(1)
		}
		for _, f := range c.observers {
			f(a)
		}
	}
}
