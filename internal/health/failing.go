// SPDX-License-Identifier: MIT

package health

import (
	"fmt"
	"time"
)

const (
	// fewFailures is how many attempts of a kind must have failed lately for them to be reported. After fewer failures
	// the next attempt will probably succeed.
	fewFailures = 3

	// overAfter is how long after its last failure a kind may count as recovered.
	overAfter = 10 * time.Second
)

func failing(now SchedulerReading, past []SchedulerReading) []Finding {
	var all []Finding
	for _, k := range now.Kinds {
		ended, failed, within, from := failures(now, past, k)
		if failed == 0 {
			continue
		}
		where := ""
		if len(now.Nodes) > 1 {
			where = " on this node"
		}
		text := fmt.Sprintf("Kind %s: %s of %s%s failed in the last %s",
			k.Kind, number(failed), count(ended, "attempt"), where, Span(within))
		if k.Failure != "" {
			text += ": " + cause(k.Failure)
		}
		all = append(all, Finding{Failing, from, text})
	}
	return few(all, "kinds fail")
}

// FailingKinds returns the kinds that a finding about the reading calls failing.
func FailingKinds(now SchedulerReading, past []SchedulerReading) (kinds []string) {
	for _, k := range now.Kinds {
		if _, failed, _, _ := failures(now, past, k); failed > 0 {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}

// failures is attemptsLately for a kind that has not recovered. A kind that is failing counts as failing until fewer than a
// quarter of the attempts in the last stillFor fail, so that a kind that fails half of the time does not seem to recover
// again and again.
func failures(now SchedulerReading, past []SchedulerReading, k KindReading) (ended, failed uint64, within time.Duration, from time.Time) {
	if ended, failed, within, from = attemptsLately(now, past, k); failed == 0 {
		ended, failed, within, from = stillFailing(now, past, k)
	}
	if failed == 0 || isOver(now, past, k) {
		return 0, 0, 0, from
	}
	return ended, failed, within, from
}

// stillFor is the time in which enough attempts must succeed for a failing kind to have recovered.
const stillFor = time.Minute

func stillFailing(now SchedulerReading, past []SchedulerReading, k KindReading) (ended, failed uint64, within time.Duration, from time.Time) {
	base := len(past) // the reading before it began to fail, if that is not too long ago
	for i := len(past) - 1; i > 0 && past[i].kind(k.Kind).Failing; i-- {
		if from = past[i].Time; now.Time.Sub(past[i-1].Time) <= stillFor {
			base = i - 1
		}
	}
	if base == len(past) {
		return 0, 0, 0, from
	}
	was := past[base].kind(k.Kind)
	failed = k.Failed - was.Failed
	if ended = k.Succeeded - was.Succeeded + failed; ended >= fewFailures && 4*failed < ended {
		return 0, 0, 0, from
	}
	return ended, failed, now.Time.Sub(past[base].Time), from
}

// attemptsLately returns how many attempts of a kind ended within a period, how many of them failed, and the length of
// the period. It also returns the time of the reading that shows the first of these failures. The period is the
// longest, up to Lately, in which most attempts failed and at least fewFailures did. So a kind that begins to fail is
// noticed after a few attempts, however many succeeded before. attemptsLately returns zeros if there is no such period.
func attemptsLately(now SchedulerReading, past []SchedulerReading, k KindReading,
) (ended, failed uint64, within time.Duration, from time.Time) {
	for len(past) > 0 && now.Time.Sub(past[0].Time) > Lately {
		past = past[1:]
	}
	for i := range past {
		base := past[i].kind(k.Kind)
		failed = k.Failed - base.Failed
		if ended = k.Succeeded - base.Succeeded + failed; failed < fewFailures {
			break
		}
		if 2*failed <= ended {
			continue
		}
		from = now.Time
		for j := len(past) - 1; j > i && past[j].kind(k.Kind).Failed > base.Failed; j-- {
			from = past[j].Time
		}
		if within = now.Time.Sub(past[i].Time); i == 0 {
			within = Lately
		}
		return ended, failed, within, from
	}
	return 0, 0, 0, from
}

// isOver reports whether a kind that has failed lately has recovered: either its tasks are gone, or its last failure
// was at least overAfter ago and enough attempts have succeeded since.
func isOver(now SchedulerReading, past []SchedulerReading, k KindReading) bool {
	last, succeeded := now.Time, uint64(0) // time of the reading that shows the last failure, and successes since
	for i := len(past) - 1; i >= 0; i-- {
		was := past[i].kind(k.Kind)
		if was.Failed < k.Failed {
			break
		}
		last, succeeded = past[i].Time, k.Succeeded-was.Succeeded
	}
	gone := k.Tasks == 0 && !now.Counted.IsZero() && !now.Counted.Before(last)
	return gone || succeeded >= fewFailures && now.Time.Sub(last) >= overAfter
}
