// SPDX-License-Identifier: MIT

package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
)

// Of two members that renew at the same time one at least sees what the other says about itself. So two nodes that join
// at the same time do not both take a whole limit.
func TestRenew_atTheSameTime_oneSeesTheOther(t *testing.T) {
	e := open(t)
	var ids [2]engine.MemberID
	for i := range ids {
		var err error
		ids[i], _, err = e.Join(t.Context(), "node", time.Hour)
		check(t, err)
	}
	for round := range 100 {
		report := fmt.Sprintf("%03d", round)
		var sees [2]bool
		var both sync.WaitGroup
		for i, id := range ids {
			both.Go(func() {
				members, _, err := e.Renew(t.Context(), id, []byte(report))
				if err != nil {
					t.Error(err)
				}
				for _, m := range members {
					sees[i] = sees[i] || m.ID != id && string(m.Report) == report
				}
			})
		}
		both.Wait()
		if !sees[0] && !sees[1] {
			t.Fatalf("in round %d neither member sees the other's report", round)
		}
	}
}
