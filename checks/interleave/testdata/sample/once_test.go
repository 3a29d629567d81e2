// SPDX-License-Identifier: MIT

package sample

import (
	"runtime"
	"sync"
	"testing"
)

func TestOnce_twoAtATime_callOnce(t *testing.T) {
	runtime.GOMAXPROCS(1) // with several processors a plain run finds it occasionally
	for range 1000 {
		var o Once
		var both sync.WaitGroup
		calls := 0 // on one processor, and without a point between reading and writing
		for range 2 {
			both.Go(func() { o.Do(func() { calls++ }) })
		}
		if both.Wait(); calls != 1 {
			t.Fatalf("called %d times", calls)
		}
	}
}
