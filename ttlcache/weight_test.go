// SPDX-License-Identifier: MIT

package ttlcache

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// weighInts makes each value weigh itself.
func weighInts(_ string, value int) int64 { return int64(value) }

func TestMaxWeight_theLeastRecentlyUsedMakeRoom(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, MaxWeight: 10, Weigh: weighInts}, func(k *kit) {
		k.Set("a", 4)
		k.Set("b", 3)
		k.Set("c", 3)
		k.wantTold()
		k.want("a", 4)
		k.Set("d", 5) // b and c were used least recently
		k.wantTold("b=3 evicted", "c=3 evicted")
		k.Set("a", 1)
		k.Set("e", 4)
		k.wantTold("a=4 replaced")
		k.Compute("e", returns(5, UpdateOp))
		k.wantTold("e=4 replaced", "d=5 evicted")
		k.Delete("e")
		k.Set("f", 9)
		k.wantTold("e=5 deleted")
		testkit.Settle(2 * time.Minute)
		k.wantTold("a=1 expired", "f=9 expired")
		k.Set("g", 10)
		k.wantTold()
		k.Purge()
		k.Set("h", 10)
		k.wantTold("g=10 deleted")
	})
}

// A value that is too heavy leaves the others alone, and replaces the old value of its key.
func TestMaxWeight_valueThatIsTooHeavy_isEvictedAtOnce(t *testing.T) {
	for name, put := range map[string]func(k *kit, key string, value int){
		"Set":     func(k *kit, key string, value int) { k.Set(key, value) },
		"Compute": func(k *kit, key string, value int) { k.Compute(key, returns(value, SetOp)) },
		"update":  func(k *kit, key string, value int) { k.Compute(key, returns(value, UpdateOp)) },
		"GetOrLoad": func(k *kit, key string, value int) {
			k.Delete(key)
			_, _ = k.GetOrLoad(k.Context(), key, func(context.Context, string) (int, error) { return value, nil })
		},
	} {
		for _, heavy := range []int{11, math.MaxInt} { // the latter does not overflow the sum
			in(t, Config[string, int]{TTL: time.Minute, MaxWeight: 10, Weigh: weighInts}, func(k *kit) {
				k.Set("a", 4)
				k.Set("b", 6)
				put(k, "c", heavy)
				k.wantTold(fmt.Sprint("c=", heavy, " evicted"))
				put(k, "a", heavy)
				if s := k.Stats(); s.Evicted != 2 || s.Replaced+s.Deleted != 1 || k.Len() != 1 {
					t.Errorf("%s of %d: %+v, and %d are there", name, heavy, s, k.Len())
				}
				k.wantNone("a")
				k.want("b", 6)
				if v, ok := k.Compute("a", returns(heavy, UpdateOp)); v != 0 || ok {
					t.Errorf("Compute returns %d, %v", v, ok)
				}
			})
		}
	}
}

func TestMaxWeight_withMaxEntries_bothLimits(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, MaxEntries: 2, MaxWeight: 10, Weigh: weighInts}, func(k *kit) {
		k.Set("a", 1)
		k.Set("b", 1)
		k.Set("c", 1)
		k.wantTold("a=1 evicted")
		k.Set("d", 10)
		k.wantTold("b=1 evicted", "c=1 evicted")
		k.Set("e", -5) // counts as 0
		k.wantTold()
		k.want("d", 10)
		k.want("e", -5)
	})
}

// The account of the weights is right after any operations, also when the map of the store was replaced.
func TestMaxWeight_anyOperations(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, MaxWeight: 50_000, Weigh: weighInts, OnEvict: func(string, int, Reason) {}},
		func(k *kit) {
			r := rand.New(rand.NewPCG(1, 2))
			for round := range 20 {
				keys := 4000
				if round%2 == 1 {
					keys = 100
				}
				for range 4000 {
					key, value := fmt.Sprint(r.IntN(keys)), r.IntN(40)
					switch r.IntN(4) {
					case 0:
						k.Set(key, value)
					case 1:
						k.SetTTL(key, value, time.Duration(1+r.IntN(100))*time.Second)
					case 2:
						k.Compute(key, returns(value, Op(r.IntN(4))))
					case 3:
						k.Get(key)
					}
				}
				k.verify()
				if round%2 == 0 {
					testkit.Settle(time.Duration(50+round) * time.Second)
					k.verify()
				}
			}
		})
}
