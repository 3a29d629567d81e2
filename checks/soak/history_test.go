// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed581295f1/timewheel/timewheel"
)

func TestHistories_ofAllVerbs_areLinearizable(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 200
	}
	seeds := make(chan uint64)
	var workers sync.WaitGroup
	for _, layout := range []timewheel.Layout{timewheel.Hashed, timewheel.Hierarchical} {
		for range 2 {
			workers.Go(func() {
				for seed := range seeds {
					h, err := makeHistory(seed, layout)
					if err != nil {
						t.Error(err)
						continue
					}
					late, err := h.check(10 * time.Second)
					if err != nil {
						t.Errorf("seed %d, %v: %v", seed, layout, err)
					}
					if late {
						t.Logf("seed %d, %v: no order found in time", seed, layout)
					}
				}
			})
		}
	}
	for seed := range uint64(n) {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()
}

// Violations must be found, or the test above proves nothing.
func TestHistory_thatNoWheelMayHave_isFound(t *testing.T) {
	op := func(called, returned int64, c call, a answer) porcupine.Operation {
		c.key = "a"
		return porcupine.Operation{Input: c, Output: a, Call: called, Return: returned}
	}
	yes, no := answer{ok: true}, answer{}
	for name, ops := range map[string][]porcupine.Operation{
		"two adds win": {
			op(0, 10, call{verb: add, task: 1, times: 1}, yes), op(5, 15, call{verb: add, task: 2, times: 1}, yes),
		},
		"a run after the removal": {
			op(0, 1, call{verb: add, task: 1, times: 1}, yes), op(2, 3, call{verb: remove}, yes),
			op(0, 9, call{verb: run, task: 1}, no),
		},
		"two runs of one": {
			op(0, 1, call{verb: add, task: 1, times: 1}, yes),
			op(0, 8, call{verb: run, task: 1}, no), op(0, 9, call{verb: run, task: 1}, no),
		},
		"not there after the add": {
			op(0, 1, call{verb: add, task: 1, times: 2}, yes), op(2, 3, call{verb: exist}, no),
		},
		"there after the last run": {
			op(0, 1, call{verb: add, task: 1, times: 1}, yes), op(0, 5, call{verb: run, task: 1}, no),
			op(6, 7, call{verb: exist}, yes),
		},
		"the old one runs after it was replaced": {
			op(0, 1, call{verb: add, task: 1, times: 2}, yes), op(2, 3, call{verb: set, task: 2, times: 1}, yes),
			op(3, 4, call{verb: getTimes}, answer{n: 1}), op(0, 9, call{verb: run, task: 1}, no),
			op(5, 6, call{verb: remove}, yes), op(7, 8, call{verb: add, task: 3, times: 1}, no),
		},
		"a count that never was": {
			op(0, 1, call{verb: add, task: 1, times: 2}, yes), op(2, 3, call{verb: getTimes}, answer{n: 1}),
		},
		"a run while it is paused": {
			op(0, 1, call{verb: add, task: 1, times: 1}, yes), op(2, 3, call{verb: pause}, yes),
			op(4, 5, call{verb: getTimes}, answer{n: 1}), op(0, 9, call{verb: run, task: 1}, no),
			op(6, 7, call{verb: getTimes}, no),
		},
		"resumed after the removal": {
			op(0, 1, call{verb: add, task: 1, times: 1}, yes), op(2, 3, call{verb: removeWait}, yes),
			op(4, 5, call{verb: resume}, yes),
		},
		"moved after the removal": {
			op(0, 1, call{verb: add, task: 1, times: 1}, yes), op(2, 3, call{verb: remove}, yes),
			op(4, 5, call{verb: reschedule}, yes),
		},
	} {
		h := &history{ops: ops}
		if _, err := h.check(time.Second); !errors.Is(err, errNoOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
