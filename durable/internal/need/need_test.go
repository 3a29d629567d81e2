// SPDX-License-Identifier: MIT

package need_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/internal/need"
)

// A need is met by a call of its own that succeeds, and by nothing else.
func TestRecord(t *testing.T) {
	var r need.Record
	now := int64(0)
	check := func(want string) {
		t.Helper()
		since, err := r.Unmet(now, func(need.Need) time.Duration { return time.Second })
		if got := fmt.Sprint(since, " ", err); got != want {
			t.Errorf("at %v: %s, want %s", time.Duration(now), got, want)
		}
	}
	pass := func(d time.Duration) { now += int64(d) }
	const met = "0s <nil>"
	check(met)
	r.Asked(need.Commits, now)
	pass(999 * time.Millisecond)
	check(met)
	pass(time.Millisecond)
	check("1s commits: no answer")
	r.Asked(need.Claims, now)
	r.Answered(need.Claims, now, nil)
	check("1s commits: no answer")
	r.Asked(need.Commits, now)
	r.Answered(need.Commits, now, errors.New("read-only"))
	pass(time.Second)
	check("2s commits: read-only")
	r.Answered(need.Commits, now, fmt.Errorf("engine: %w", context.DeadlineExceeded))
	check("2s commits: no answer")
	r.Asked(need.Renewals, now)
	pass(time.Second)
	check("3s renewals of the lease and commits: no answer")
	r.Answered(need.Renewals, now, fmt.Errorf("engine: %w", context.Canceled))
	check("3s commits: no answer")
	pass(5 * time.Second) // no other call is made
	check(met)
	r.Asked(need.Commits, now)
	pass(time.Second)
	check("1s commits: no answer")
	r.Asked(need.Commits, now)
	r.Answered(need.Commits, now, nil) // the other has no answer yet
	check(met)
	pass(time.Second)
	check("1s commits: no answer")
	r.Answered(need.Commits, now, nil)
	pass(time.Minute)
	check(met)
	for _, fails := range []need.Need{need.Commits, need.Claims} { // the first of them says why
		r.Asked(fails, now)
		r.Answered(fails, now, fmt.Errorf("error %d", fails))
		pass(time.Second)
	}
	check("2s claims and commits: error 4")
}
