// SPDX-License-Identifier: MIT

package ttlcache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// A cache is emptied while a bucket ends, between two chunks of it: OnEvict is called once for each value, and later
// values stay.
func TestEmptied_whileABucketEnds(t *testing.T) {
	const n = 5 * chunk
	for name, empty := range map[string]func(k *kit){"Purge": func(k *kit) { k.Purge() }, "Close": func(k *kit) { k.Close() }} {
		var k *kit
		var mu sync.Mutex
		var emptied atomic.Bool
		told := make(map[string]int)
		config := Config[string, int]{TTL: time.Minute, MaxEntries: 2 * n, OnEvict: func(key string, value int, _ Reason) {
			mu.Lock()
			told[fmt.Sprint(key, " ", value)]++
			mu.Unlock()
			if !emptied.CompareAndSwap(false, true) {
				return
			}
			empty(k)
			for i := range n {
				k.SetTTL(fmt.Sprint(i), 2, time.Hour)
			}
		}}
		in(t, config, func(inside *kit) {
			k = inside
			for i := range n {
				k.Set(fmt.Sprint(i), 1)
			}
			testkit.Settle(30 * time.Second)
			for i := 0; i < n; i += 2 { // these move to another bucket when theirs ends
				k.Touch(fmt.Sprint(i))
			}
			testkit.Settle(2 * time.Minute)
			want := n
			if name == "Close" {
				want = 0
			}
			if k.Len() != want || len(told) != n {
				t.Errorf("%s: %d values are there, and %d were told", name, k.Len(), len(told))
			}
			if name == "Close" && k.tw.Len() != 0 {
				t.Errorf("after Close %d timers are left", k.tw.Len())
			}
		})
		for value, times := range told {
			if times != 1 {
				t.Fatalf("%s: %q was told %d times", name, value, times)
			}
		}
	}
}

// Remembered errors leave no memory behind, and keep no context.
func TestRememberedErrors_afterABurst(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, ErrorTTL: time.Second}, func(k *kit) {
		var calls atomic.Int64
		for i := range 64 * 2 * small {
			_, _ = k.GetOrLoad(k.Context(), fmt.Sprint(i), loader(&calls, 0, 0, errTrouble))
		}
		for _, s := range k.shards {
			for _, f := range s.flights {
				if f.ctx != nil {
					t.Fatal("an error keeps the context of its load")
				}
			}
		}
		testkit.Settle(2 * time.Second)
		for _, s := range k.shards {
			if s.mostFlights > small {
				t.Errorf("a shard has memory for %d flights", s.mostFlights)
			}
		}
		if _, err := k.GetOrLoad(context.Background(), "a", loader(&calls, 0, 0, errTrouble)); err != errTrouble {
			t.Errorf("after that: %v", err)
		}
	})
}
