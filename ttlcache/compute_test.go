// SPDX-License-Identifier: MIT

package ttlcache

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
)

// returns is a function for Compute.
func returns(value int, op Op) func(int, bool) (int, Op) {
	return func(int, bool) (int, Op) { return value, op }
}

func TestCompute_eachOp_withAndWithoutAValue(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     Op
		ttl    time.Duration
		before bool // whether there is a value, set 20 s ago with a minute to live
		value  int
		left   time.Duration // 0: there is no value afterwards
		told   []string
	}{
		{"keep", KeepOp, time.Hour, true, 1, 40 * time.Second, nil},
		{"keep nothing", KeepOp, time.Hour, false, 0, 0, nil},
		{"set", SetOp, time.Hour, true, 7, time.Hour, []string{"a=1 replaced"}},
		{"set the first", SetOp, time.Hour, false, 7, time.Hour, nil},
		{"set for no time", SetOp, 0, true, 0, 0, []string{"a=1 deleted"}},
		{"set the first for no time", SetOp, -1, false, 0, 0, nil},
		{"update", UpdateOp, time.Hour, true, 7, 40 * time.Second, []string{"a=1 replaced"}},
		{"update nothing", UpdateOp, time.Hour, false, 7, time.Hour, nil},
		{"delete", DeleteOp, time.Hour, true, 0, 0, []string{"a=1 deleted"}},
		{"delete nothing", DeleteOp, time.Hour, false, 0, 0, nil},
	} {
		for _, bound := range []int{0, 10} {
			in(t, Config[string, int]{TTL: time.Minute, MaxEntries: bound}, func(k *kit) {
				if c.before {
					k.Set("a", 1)
				}
				testkit.Settle(20 * time.Second)
				calls := 0
				v, ok := k.ComputeTTL("a", c.ttl, func(old int, ok bool) (int, Op) {
					if calls++; ok != c.before || ok && old != 1 || !ok && old != 0 {
						t.Errorf("%s: f gets %d, %v", c.name, old, ok)
					}
					return 7, c.op
				})
				if calls != 1 || v != c.value || ok != (c.left > 0) {
					t.Errorf("%s: it returns %d, %v after %d calls", c.name, v, ok, calls)
				}
				if end, ok := k.Expires("a"); ok != (c.left > 0) || ok && time.Until(end) != c.left {
					t.Errorf("%s: it expires at %v, %v", c.name, end, ok)
				}
				if v, ok := k.Peek("a"); v != c.value || ok != (c.left > 0) {
					t.Errorf("%s: then there is %d, %v", c.name, v, ok)
				}
				k.wantTold(c.told...)
				if s := k.Stats(); s.Hits+s.Misses != 0 {
					t.Errorf("%s: it counts as a lookup: %+v", c.name, s)
				}
			})
		}
	}
}

func TestCompute_expiredValue_isNone(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second}, func(k *kit) {
		k.tw.Stop() // so late that it never comes
		k.Set("a", 1)
		testkit.Settle(time.Second)
		v, ok := k.Compute("a", func(old int, ok bool) (int, Op) {
			if old != 0 || ok {
				t.Errorf("f gets %d, %v", old, ok)
			}
			return 2, UpdateOp
		})
		if v != 2 || !ok {
			t.Errorf("it returns %d, %v", v, ok)
		}
		k.wantTold("a=1 expired")
		k.want("a", 2)
	})
}

func TestCompute_panic_changesNothing(t *testing.T) {
	weighs := func(_ string, value int) int64 {
		if value == 13 {
			panic(errTrouble)
		}
		return 1
	}
	in(t, Config[string, int]{TTL: time.Minute, MaxWeight: 5, Weigh: weighs}, func(k *kit) {
		var loads atomic.Int64
		k.Set("a", 1)
		for _, f := range []func(int, bool) (int, Op){
			func(int, bool) (int, Op) { panic(errTrouble) }, returns(13, SetOp), returns(13, UpdateOp),
		} {
			go func() { _, _ = k.GetOrLoad(k.Context(), "b", loader(&loads, time.Second, 2, nil)) }()
			testkit.Settle(time.Millisecond)
			for _, key := range []string{"a", "b"} {
				func() {
					defer func() {
						if recover() != errTrouble {
							t.Error("the panic does not reach the caller")
						}
					}()
					k.Compute(key, f)
				}()
			}
			testkit.Settle(time.Second)
			k.want("a", 1)
			k.want("b", 2)
			k.Delete("b")
		}
		k.wantTold("b=2 deleted", "b=2 deleted", "b=2 deleted")
	})
}

func TestCompute_whileTheKeyIsLoaded(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		for _, c := range []struct {
			op    Op
			value int // afterwards; 0: none
		}{{KeepOp, 7}, {SetOp, 1}, {UpdateOp, 1}, {DeleteOp, 0}} {
			var calls atomic.Int64
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if v, _ := k.GetOrLoad(k.Context(), "a", loader(&calls, time.Second, 7, nil)); v != 7 {
					t.Errorf("the caller gets %d", v)
				}
			}()
			testkit.Settle(time.Millisecond)
			k.Compute("a", returns(1, c.op))
			<-ended
			if v, ok := k.Get("a"); v != c.value || ok != (c.value != 0) {
				t.Errorf("after op %d there is %d, %v", c.op, v, ok)
			}
			k.Delete("a")
		}
	})
}

func TestCompute_countsAsAUse(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, MaxEntries: 2}, func(k *kit) {
		k.Set("a", 1)
		k.Set("b", 2)
		k.Compute("a", returns(0, KeepOp))
		k.Set("c", 3)
		k.wantTold("b=2 evicted")
	})
}

func TestCompute_closed_keepsNothing(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		k.Close()
		for _, op := range []Op{KeepOp, SetOp, UpdateOp, DeleteOp} {
			if v, ok := k.Compute("a", returns(1, op)); v != 0 || ok {
				t.Errorf("op %d returns %d, %v", op, v, ok)
			}
		}
	})
}

// The counters of many goroutines lose no step, and of many that set a value if there is none, one does.
func TestCompute_manyGoroutines_isAtomic(t *testing.T) {
	for _, bound := range []int{0, 10} {
		in(t, Config[string, int]{TTL: time.Hour, MaxEntries: bound}, func(k *kit) {
			const workers, each = 8, 1000
			var firsts atomic.Int64
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range each {
						k.Compute("n", func(n int, _ bool) (int, Op) { return n + 1, UpdateOp })
						k.Compute("first", func(_ int, ok bool) (int, Op) {
							if ok {
								return 0, KeepOp
							}
							firsts.Add(1)
							return 1, SetOp
						})
					}
				})
			}
			wg.Wait()
			k.want("n", workers*each)
			if firsts.Load() != 1 {
				t.Errorf("%d callers were the first", firsts.Load())
			}
		})
	}
}
