// SPDX-License-Identifier: MIT

package ttlcache

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
)

const tick = time.Millisecond

// A kit is a cache of ints by strings in a bubble, with its wheel and the calls of OnEvict.
type kit struct {
	*testing.T
	*Cache[string, int]
	tw *timewheel.TimeWheel

	mu   sync.Mutex // protects told
	told []string
}

// in runs f with a cache of the given configuration, whose wheel runs. At the end the cache must be consistent, and
// after Close nothing may be left in the wheel.
func in(t *testing.T, config Config[string, int], f func(k *kit)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kit{T: t, tw: timewheel.NewTimeWheel(tick, 64)}
		defer k.tw.Stop()
		k.tw.Start()
		if config.OnEvict == nil {
			config.OnEvict = k.tell
		}
		var err error
		if k.Cache, err = New(k.tw, config); err != nil {
			t.Fatal(err)
		}
		f(k)
		k.verify()
		k.Close()
		k.verify()
		if n := k.tw.Len() + k.Len(); n != 0 {
			t.Errorf("after Close %d timers and %d values are left", k.tw.Len(), k.Len())
		}
	})
}

func (k *kit) tell(key string, value int, reason Reason) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, fmt.Sprint(key, "=", value, " ", reason))
}

// wantTold fails the test unless these were the calls of OnEvict since the last wantTold.
func (k *kit) wantTold(want ...string) {
	k.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.Sort(k.told)
	slices.Sort(want)
	if !slices.Equal(k.told, want) {
		k.Errorf("OnEvict was told %q, want %q", k.told, want)
	}
	k.told = nil
}

func (k *kit) want(key string, value int) {
	k.Helper()
	if v, ok := k.Get(key); !ok || v != value {
		k.Errorf("Get(%q) returns %d, %v, want %d", key, v, ok, value)
	}
}

func (k *kit) wantNone(key string) {
	k.Helper()
	if v, ok := k.Get(key); ok || v != 0 {
		k.Errorf("Get(%q) returns %d, %v, want nothing", key, v, ok)
	}
}

// flights returns how many loads are in progress or have an error that is remembered.
func flights[K comparable, V any](c *Cache[K, V]) (n int) {
	for _, s := range c.shards {
		s.mu.Lock()
		n += len(s.flights)
		s.mu.Unlock()
	}
	return n
}

// verify fails the test if the cache is inconsistent: every item belongs to one bucket, every bucket to one timer.
func (k *kit) verify() {
	k.Helper()
	synctest.Wait()
	timers := 0
	for _, s := range k.shards {
		s.mu.Lock()
		linked := 0
		for id, b := range s.buckets {
			timers++
			if b.head == nil || b.bucketID != id {
				k.Errorf("bucket %v is empty, or not in its place", id)
				continue
			}
			for i := b.head; ; {
				linked++
				if i.bucket != b || i.next.prev != i || s.store.peek(i.key) != i || i.deadline < 1 {
					k.Errorf("the item of %q is out of order", i.key)
				}
				if i = i.next; i == b.head {
					break
				}
			}
		}
		if n := s.store.len(); n != linked {
			k.Errorf("%d items are in the store and %d in buckets", n, linked)
		}
		for _, f := range s.flights {
			if f.timer != nil {
				timers++
			}
		}
		if l, ok := s.store.(*lruStore[string, int]); ok {
			var sum int64
			l.each(func(i *item[string, int]) { sum += k.weight(i.key, i.value) })
			if l.weight != sum || l.weight > l.capacity || l.len() > l.size || len(l.weights) > l.len() {
				k.Errorf("%d items weigh %d by the account, and %d by themselves", l.len(), l.weight, sum)
			}
		}
		s.mu.Unlock()
	}
	if n := k.tw.Len(); n != timers && k.tw.IsRunning() {
		k.Errorf("%d buckets and errors have %d timers", timers, n)
	}
}

func TestGet_afterTheDeadline_findsNothingHoweverLateTheWheelIs(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second}, func(k *kit) {
		k.tw.Stop() // so late that it never comes
		k.Set("a", 1)
		k.SetTTL("b", 2, time.Nanosecond)
		k.want("a", 1)
		k.want("b", 2)
		testkit.Settle(1)
		k.wantNone("b")
		testkit.Settle(time.Second - 2)
		k.want("a", 1)
		testkit.Settle(1)
		k.wantNone("a")
		for range k.All() {
			t.Error("All yields what is over")
		}
		if k.Touch("a") || k.Delete("a") {
			t.Error("what is over was touched or deleted")
		}
		k.wantTold("a=1 expired")
	})
}

func TestExpiry_ofAnyTTL_leavesSoonAfterTheDeadline(t *testing.T) {
	for _, ttl := range []time.Duration{
		1, time.Microsecond, time.Millisecond, 7 * time.Millisecond, 333 * time.Millisecond, time.Second,
		time.Minute, 30 * time.Minute, 365 * 24 * time.Hour,
	} {
		in(t, Config[string, int]{TTL: ttl}, func(k *kit) {
			testkit.Settle(12345 * time.Microsecond)
			k.Set("a", 1)
			testkit.Settle(ttl)
			k.wantNone("a")
			testkit.Settle(max(ttl/128, 2*time.Millisecond) + tick)
			k.wantTold("a=1 expired")
			if n := k.Len(); n != 0 {
				t.Errorf("TTL %v: %d values are left", ttl, n)
			}
		})
	}
}

func TestSet_longestTTL_neverOverflows(t *testing.T) {
	in(t, Config[string, int]{TTL: math.MaxInt64, Jitter: 0.999}, func(k *kit) {
		testkit.Settle(time.Hour)
		for i := range 100 {
			k.Set(fmt.Sprint(i), i)
		}
		k.SetTTL("longest", 1, math.MaxInt64)
		testkit.Settle(24 * 365 * time.Hour / 10)
		k.want("longest", 1)
		if k.Len() != 101 {
			t.Errorf("%d values are left", k.Len())
		}
	})
}

func TestSet_again_movesTheOneDeadline(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second}, func(k *kit) {
		k.Set("a", 1)
		testkit.Settle(900 * time.Millisecond)
		k.Set("a", 2) // later
		k.wantTold("a=1 replaced")
		testkit.Settle(900 * time.Millisecond) // the first deadline passes
		k.want("a", 2)
		k.wantTold()
		k.SetTTL("a", 3, 10*time.Millisecond) // sooner
		k.wantTold("a=2 replaced")
		if n := k.tw.Len(); n != 1 {
			t.Errorf("one value has %d timers", n)
		}
		testkit.Settle(20 * time.Millisecond)
		k.wantTold("a=3 expired")
		k.Set("a", 4)
		testkit.Settle(500 * time.Millisecond) // the second deadline passes
		k.want("a", 4)
		k.wantTold()
	})
}

func TestSet_afterTheDeadline_beforeTheWheel_isNoReplacement(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Hour}, func(k *kit) {
		k.Set("a", 1)
		testkit.Settle(time.Hour)
		k.Set("a", 2)
		k.wantTold("a=1 expired")
		testkit.Settle(30 * time.Minute)
		k.want("a", 2)
	})
}

func TestSetTTL_thatIsNotPositive_leavesNoValue(t *testing.T) {
	for _, ttl := range []time.Duration{0, -1, math.MinInt64} {
		in(t, Config[string, int]{TTL: time.Second}, func(k *kit) {
			k.Set("a", 1)
			k.SetTTL("a", 2, ttl)
			k.SetTTL("b", 3, ttl)
			k.wantNone("a")
			k.wantNone("b")
			k.wantTold("a=1 deleted")
		})
	}
}

func TestJitter_spreadsTheDeadlinesOfABatch(t *testing.T) {
	const n = 2000
	left := make(map[string]time.Duration)
	var start time.Time
	var mu sync.Mutex
	in(t, Config[string, int]{
		TTL: time.Minute, Jitter: 0.25,
		OnEvict: func(key string, _ int, _ Reason) {
			mu.Lock()
			defer mu.Unlock()
			left[key] = time.Since(start)
		},
	}, func(k *kit) {
		start = time.Now()
		for i := range n {
			k.Set(fmt.Sprint(i), i)
		}
		testkit.Settle(45*time.Second - 1)
		if len(left) != 0 || k.Len() != n {
			t.Errorf("%d values left too early", len(left))
		}
		testkit.Settle(time.Hour)
		if len(left) != n {
			t.Fatalf("%d of %d values have left", len(left), n)
		}
		late := time.Duration(0)
		tenths := make(map[time.Duration]int)
		for _, d := range left {
			late = max(late, d)
			tenths[(d-45*time.Second)/(3*time.Second)]++
		}
		if late > 75*time.Second+75*time.Second/128+tick {
			t.Errorf("one left after %v", late)
		}
		for i := range time.Duration(10) {
			if c := tenths[i]; c < n/20 || c > n/5 {
				t.Errorf("in tenth %d of the span %d of %d left", i, c, n)
			}
		}
	})
}

func TestTouch_startsTheTimeAnew(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second}, func(k *kit) {
		k.SetTTL("a", 1, 2*time.Second)
		for range 20 {
			testkit.Settle(1999 * time.Millisecond)
			if !k.Touch("a") {
				t.Fatal("a value that is there was not touched")
			}
			k.want("a", 1) // no touch
		}
		testkit.Settle(2 * time.Second)
		k.wantNone("a")
		if k.Touch("a") || k.Touch("b") {
			t.Error("what is not there was touched")
		}
	})
}

func TestTouchOnGet_keepsWhatIsUsed(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second, TouchOnGet: true}, func(k *kit) {
		k.Set("used", 1)
		k.Set("unused", 2)
		for range 20 {
			testkit.Settle(999 * time.Millisecond)
			k.want("used", 1)
		}
		k.wantTold("unused=2 expired")
		testkit.Settle(time.Second)
		k.wantNone("used")
	})
}

func TestMaxEntries_theLeastRecentlyUsedMakesRoom(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute, MaxEntries: 3}, func(k *kit) {
		k.Set("a", 1)
		k.Set("b", 2)
		k.Set("c", 3)
		k.want("a", 1)
		k.Set("b", 20)
		k.wantTold("b=2 replaced")
		k.Set("d", 4)
		k.wantTold("c=3 evicted")
		if !k.Touch("a") {
			t.Error("a is gone")
		}
		k.Set("e", 5)
		k.wantTold("b=20 evicted")
		keys := slices.Sorted(maps.Keys(maps.Collect(k.All())))
		if strings.Join(keys, "") != "ade" || k.Len() != 3 {
			t.Errorf("%q are left", keys)
		}
		k.verify()
	})
}

func TestMaxEntries_evictingWhatIsOver_countsAsExpired(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Hour, MaxEntries: 1}, func(k *kit) {
		k.Set("a", 1)
		testkit.Settle(time.Hour)
		k.Set("b", 2)
		k.wantTold("a=1 expired")
	})
}

func TestOnEvict_mayCallTheCache(t *testing.T) {
	var k *kit
	var calls atomic.Int64
	config := Config[string, int]{TTL: time.Second, MaxEntries: 2, OnEvict: func(key string, value int, _ Reason) {
		calls.Add(1)
		k.Get(key)
		k.Touch(key)
		k.Delete("other")
		k.Len()
		k.Stats()
		for range k.All() {
		}
		if calls.Load() < 20 {
			k.Set(key, value+1)
		}
	}}
	in(t, config, func(got *kit) {
		k = got
		k.Set("a", 1)
		k.Set("a", 2)
		k.Delete("a")
		k.Set("b", 1)
		k.Set("c", 1)
		k.Set("d", 1)
		testkit.Settle(time.Minute)
		if n := calls.Load(); n < 20 {
			t.Errorf("OnEvict was called %d times", n)
		}
	})
}

func TestClose_leavesNothing(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second}, func(k *kit) {
		for i := range 100 {
			k.SetTTL(fmt.Sprint(i), i, time.Duration(i+1)*time.Minute)
		}
		k.SetTTL("over", 1, 1)
		testkit.Settle(1)
		k.Close()
		k.Close()
		if k.Len() != 0 || k.tw.Len() != 0 {
			t.Errorf("%d values and %d timers are left", k.Len(), k.tw.Len())
		}
		if s := k.Stats(); s.Closed != 100 || s.Expired != 1 {
			t.Errorf("%+v", s)
		}
		k.Set("a", 1)
		k.wantNone("a")
		if k.Touch("a") || k.Delete("a") || k.Len() != 0 {
			t.Error("a closed cache keeps something")
		}
	})
}

func TestAll_mayBeLeft(t *testing.T) {
	for _, bound := range []int{0, 10} {
		in(t, Config[string, int]{TTL: time.Second, MaxEntries: bound}, func(k *kit) {
			for i := range 10 {
				k.Set(fmt.Sprint(i), i)
			}
			n := 0
			for key, v := range k.All() {
				if key != fmt.Sprint(v) {
					t.Errorf("%q has the value %d", key, v)
				}
				if n++; n == 5 {
					break
				}
				k.Delete(key) // no lock is held
			}
			if n != 5 || k.Len() != 6 {
				t.Errorf("%d were yielded, and %d are left", n, k.Len())
			}
		})
	}
}

func TestCaches_shareAWheel(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second}, func(k *kit) {
		sizes, err := New(k.tw, Config[[2]int, string]{TTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ran := false
		if err := k.tw.AddTask(&timewheel.Task{
			Key: "a", Interval: 1500 * time.Millisecond, Job: func(*timewheel.Task) { ran = true },
		}); err != nil {
			t.Fatal(err)
		}
		k.Set("a", 1)
		sizes.Set([2]int{1, 2}, "small")
		k.Close()
		testkit.Settle(1600 * time.Millisecond)
		if v, ok := sizes.Get([2]int{1, 2}); !ok || v != "small" || !ran {
			t.Error("to close a cache has touched another, or a task")
		}
		sizes.Close()
	})
}

func TestNew_wrongConfig_namesTheFieldAndItsValue(t *testing.T) {
	tw := timewheel.NewTimeWheel(time.Second, 8)
	defer tw.Stop()
	good := Config[string, int]{TTL: time.Second}
	with := func(change func(c *Config[string, int])) Config[string, int] {
		c := good
		change(&c)
		return c
	}
	for _, c := range []struct {
		tw     *timewheel.TimeWheel
		config Config[string, int]
		want   []string
	}{
		{nil, good, []string{"wheel", "nil"}},
		{tw, Config[string, int]{}, []string{"TTL", "0s"}},
		{tw, with(func(c *Config[string, int]) { c.TTL = -time.Second }), []string{"TTL", "-1s"}},
		{tw, with(func(c *Config[string, int]) { c.Jitter = -0.1 }), []string{"Jitter", "-0.1"}},
		{tw, with(func(c *Config[string, int]) { c.Jitter = 1 }), []string{"Jitter", "1"}},
		{tw, with(func(c *Config[string, int]) { c.Jitter = math.NaN() }), []string{"Jitter", "NaN"}},
		{tw, with(func(c *Config[string, int]) { c.MaxEntries = -1 }), []string{"MaxEntries", "-1"}},
		{tw, with(func(c *Config[string, int]) { c.MaxEntries = math.MaxInt }), []string{"MaxEntries", fmt.Sprint(math.MaxInt)}},
		{tw, with(func(c *Config[string, int]) { c.MaxWeight = -1 }), []string{"MaxWeight", "-1"}},
		{tw, with(func(c *Config[string, int]) { c.MaxWeight, c.Weigh = 1<<61+1, weighInts }), []string{"MaxWeight", fmt.Sprint(int64(1<<61 + 1))}},
		{tw, with(func(c *Config[string, int]) { c.MaxWeight = 9 }), []string{"MaxWeight", "9", "Weigh"}},
		{tw, with(func(c *Config[string, int]) { c.Weigh = weighInts }), []string{"MaxWeight", "0", "Weigh"}},
		{tw, with(func(c *Config[string, int]) { c.ErrorTTL = -time.Second }), []string{"ErrorTTL", "-1s"}},
		{tw, with(func(c *Config[string, int]) { c.RefreshAfter = -time.Second }), []string{"RefreshAfter", "-1s"}},
		{tw, with(func(c *Config[string, int]) { c.RefreshAfter, c.TouchOnGet = time.Second, true }), []string{"RefreshAfter", "1s", "TouchOnGet"}},
	} {
		cache, err := New(c.tw, c.config)
		if err == nil || cache != nil {
			t.Errorf("%+v is taken for good", c.config)
			continue
		}
		for _, part := range append(c.want, "ttlcache: ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error %q does not say %q", err, part)
			}
		}
	}
}

func TestReason_string(t *testing.T) {
	for r, want := range map[Reason]string{
		Expired: "expired", Replaced: "replaced", Deleted: "deleted", Evicted: "evicted", Closed: "closed",
		-1: "Reason(-1)", reasons: "Reason(5)",
	} {
		if got := r.String(); got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
}

func TestStats_countEachLookUpAndEachValue(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second, MaxEntries: 2}, func(k *kit) {
		k.Set("a", 1)
		k.Set("a", 2)
		k.Set("b", 3)
		k.Set("c", 4)
		k.Get("b")
		k.Get("c")
		k.Get("a")
		k.Delete("b")
		testkit.Settle(2 * time.Second)
		k.Set("d", 5)
		k.Close()
		want := Stats{Hits: 2, Misses: 1, Expired: 1, Replaced: 1, Deleted: 1, Evicted: 1, Closed: 1}
		if got := k.Stats(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Random operations agree with the simplest possible cache, a map with deadlines.
func TestCache_anyOperations_isAsAMapWithDeadlines(t *testing.T) {
	type value struct {
		v        int
		ttl      time.Duration
		deadline time.Time
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		touches := seed%2 == 0
		in(t, Config[string, int]{TTL: time.Second, TouchOnGet: touches}, func(k *kit) {
			model, sets := make(map[string]*value), 0
			for step := range 600 {
				key, ttl := string(rune('a'+r.IntN(8))), time.Duration(1)<<r.IntN(36)
				m := model[key]
				if m != nil && !time.Now().Before(m.deadline) {
					m = nil
				}
				switch r.IntN(10) {
				case 0, 1:
					sets++
					k.SetTTL(key, step, ttl)
					model[key] = &value{step, ttl, time.Now().Add(ttl)}
				case 2:
					if ok := k.Touch(key); ok != (m != nil) {
						t.Fatalf("step %d: Touch returns %v", step, ok)
					} else if ok {
						m.deadline = time.Now().Add(m.ttl)
					}
				case 3:
					if ok := k.Delete(key); ok != (m != nil) {
						t.Fatalf("step %d: Delete returns %v", step, ok)
					}
					delete(model, key)
				case 4, 5:
					v, ok := k.Get(key)
					if ok != (m != nil) || ok && v != m.v {
						t.Fatalf("step %d: Get returns %d, %v, want %+v", step, v, ok, m)
					}
					if ok && touches {
						m.deadline = time.Now().Add(m.ttl)
					}
				case 6:
					testkit.Settle(time.Duration(r.Int64N(int64(ttl))))
				case 7:
					end, ok := k.Expires(key)
					if v, there := k.Peek(key); ok != (m != nil) || there != ok || ok && (v != m.v || !end.Equal(m.deadline)) {
						t.Fatalf("step %d: Peek returns %d, %v, Expires %v, %v, want %+v", step, v, there, end, ok, m)
					}
				case 8:
					op := Op(r.IntN(4))
					v, ok := k.ComputeTTL(key, ttl, func(old int, ok bool) (int, Op) {
						if ok != (m != nil) || ok && old != m.v {
							t.Fatalf("step %d: Compute passes %d, %v, want %+v", step, old, ok, m)
						}
						return step, op
					})
					switch {
					case op == DeleteOp:
						delete(model, key)
						m = nil
					case op == UpdateOp && m != nil:
						sets++
						m.v = step
					case op != KeepOp:
						sets++
						m = &value{step, ttl, time.Now().Add(ttl)}
						model[key] = m
					}
					if ok != (m != nil) || ok && v != m.v {
						t.Fatalf("step %d: op %d returns %d, %v, want %+v", step, op, v, ok, m)
					}
				case 9:
					if r.IntN(20) == 0 {
						k.Purge()
						clear(model)
					}
				}
				live := 0
				for _, m := range model {
					if time.Now().Before(m.deadline) {
						live++
					}
				}
				if got := len(maps.Collect(k.All())); got != live || k.Len() < live {
					t.Fatalf("step %d: All yields %d, Len is %d, want %d", step, got, k.Len(), live)
				}
			}
			k.verify()
			s := k.Stats()
			if gone := int(s.Expired + s.Replaced + s.Deleted); gone+k.Len() != sets || len(k.told) != gone {
				t.Fatalf("of %d values %d have left, OnEvict was told of %d, and %d are there", sets, gone, len(k.told), k.Len())
			}
		})
	}
}

func TestManyKeys_setOverwrittenAndExpired_leaveNoTimerAndNoMemory(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	for _, bound := range []int{0, 2 * n} {
		synctest.Test(t, func(t *testing.T) {
			tw := timewheel.NewTimeWheel(10*tick, 1024)
			defer tw.Stop()
			tw.Start()
			c, err := New(tw, Config[int, [4]int]{TTL: time.Minute, MaxEntries: bound})
			if err != nil {
				t.Fatal(err)
			}
			before := testkit.Heap()
			for round := range 2 {
				for i := range n {
					c.SetTTL(i, [4]int{round}, time.Minute+time.Duration(i%1000)*time.Millisecond)
				}
			}
			if c.Len() != n {
				t.Errorf("%d of %d keys are there", c.Len(), n)
			}
			if timers := tw.Len(); timers > 64*16 {
				t.Errorf("%d keys have %d timers", n, timers)
			}
			if grown := testkit.Heap() - before; grown < int64(n)*64 {
				t.Errorf("%d keys take %d bytes: that measures nothing", n, grown)
			}
			testkit.Settle(2 * time.Minute)
			if c.Len() != 0 || tw.Len() != 0 {
				t.Errorf("%d keys and %d timers are left", c.Len(), tw.Len())
			}
			if grown := testkit.Heap() - before; grown > 4<<20 {
				t.Errorf("%d bytes are left behind", grown)
			}
			runtime.KeepAlive(c)
		})
	}
}

func TestBigBucket_leavesInChunks(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Second, MaxEntries: 10 * chunk}, func(k *kit) {
		const n = 3*chunk + 1
		for i := range n {
			k.Set(fmt.Sprint(i), i)
		}
		if timers := k.tw.Len(); timers != 1 {
			t.Errorf("what is set at one instant has %d timers", timers)
		}
		testkit.Settle(2 * time.Second)
		if len(k.told) != n || k.Len() != 0 {
			t.Errorf("of %d values %d have left", n, len(k.told))
		}
	})
}

// All operations at once, for the race detector: every stored value leaves the cache once.
func TestCache_manyGoroutines_everyValueLeavesOnce(t *testing.T) {
	for _, bound := range []int{0, 50} {
		tw := timewheel.NewTimeWheel(tick, 64)
		tw.Start()
		var mu sync.Mutex
		left := make(map[int]int)
		c, err := New(tw, Config[int, int]{
			TTL: 3 * time.Millisecond, Jitter: 0.5, MaxEntries: bound, TouchOnGet: bound == 0,
			OnEvict: func(_, value int, _ Reason) {
				mu.Lock()
				defer mu.Unlock()
				left[value]++
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		const workers, each = 4, 20_000
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), 1))
				for i := range each {
					key := r.IntN(100)
					c.SetTTL(key, w*each+i, time.Duration(1+r.IntN(1<<22)))
					switch r.IntN(4) {
					case 0:
						c.Get(key)
					case 1:
						c.Touch(key)
					case 2:
						c.Delete(key)
					}
				}
			})
		}
		wg.Wait()
		c.Close()
		tw.Stop()
		if err := tw.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(left) != workers*each {
			t.Errorf("of %d values %d have left", workers*each, len(left))
		}
		for v, times := range left {
			if times != 1 {
				t.Fatalf("value %d has left %d times", v, times)
			}
		}
	}
}

// A caller that drains the wheel may run the drained jobs too early, including the timers of the cache.
func TestDrainOfTheWheel_jobsRunTooEarly_harmNothing(t *testing.T) {
	in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
		for i := range 100 {
			k.SetTTL(fmt.Sprint(i), i, time.Duration(i+1)*time.Second)
		}
		if _, err := k.tw.Drain(func(task *timewheel.Task) { task.Job(task) }); err != nil {
			t.Fatal(err)
		}
		k.wantTold()
		k.verify()
		testkit.Settle(50 * time.Second)
		k.want("60", 60)
		testkit.Settle(time.Minute)
		if k.Len() != 0 || len(k.told) != 100 {
			t.Errorf("%d values are left, and OnEvict was told of %d", k.Len(), len(k.told))
		}
	})
}

func TestOnEvict_panicsOrEndsTheGoroutine_theOthersAreTold(t *testing.T) {
	for name, does := range map[string]func(){"panic": func() { panic("trouble") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			const n = 3*chunk - 1
			told := make(map[int]int)
			synctest.Test(t, func(t *testing.T) {
				tw := timewheel.NewTimeWheel(tick, 64, timewheel.WithLogger(testkit.Quiet()))
				defer tw.Stop()
				tw.Start()
				c, err := New(tw, Config[int, int]{TTL: time.Second, MaxEntries: 2 * n, OnEvict: func(key, _ int, _ Reason) {
					told[key]++
					if key%500 == 5 {
						does()
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				for i := range n {
					c.Set(i, i)
				}
				testkit.Settle(2 * time.Second)
				if c.Len() != 0 || tw.Len() != 0 || len(told) != n {
					t.Errorf("%d values and %d timers are left; OnEvict was told of %d", c.Len(), tw.Len(), len(told))
				}
				for i := range 10 {
					c.Set(i, i)
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					c.Close()
				}()
				<-ended
				if told[9] != 2 || c.Len() != 0 {
					t.Errorf("Close left %d values, and told of the last one %d times", c.Len(), told[9]-1)
				}
			})
		})
	}
}

func TestAll_whatIsOverMeanwhile_isNotYielded(t *testing.T) {
	for _, bound := range []int{0, 5} {
		in(t, Config[string, int]{TTL: 10 * time.Millisecond, MaxEntries: bound}, func(k *kit) {
			for i := range 5 {
				k.Set(fmt.Sprint(i), i)
			}
			n := 0
			for range k.All() {
				n++
				testkit.Settle(time.Second)
			}
			if n != 1 {
				t.Errorf("%d values were yielded, %d after their deadline", n, n-1)
			}
		})
	}
}

func TestMaxEntries_aMissIsNoUse(t *testing.T) {
	for name, miss := range map[string]func(k *kit) bool{
		"Get":   func(k *kit) bool { _, ok := k.Get("over"); return ok },
		"Touch": func(k *kit) bool { return k.Touch("over") },
	} {
		in(t, Config[string, int]{TTL: time.Hour, MaxEntries: 2}, func(k *kit) {
			k.SetTTL("over", 1, time.Hour)
			k.SetTTL("live", 2, 2*time.Hour)
			testkit.Settle(time.Hour)
			if miss(k) {
				t.Errorf("%s finds what is over", name)
			}
			k.Set("new", 3)
			k.want("live", 2)
		})
	}
}

func TestMaxEntries_memoryOfWhatLeft_isGivenBack(t *testing.T) {
	const n = 200_000
	synctest.Test(t, func(t *testing.T) {
		tw := timewheel.NewTimeWheel(tick, 64)
		defer tw.Stop()
		tw.Start()
		c, err := New(tw, Config[int, int]{TTL: time.Hour, MaxEntries: 2 * n})
		if err != nil {
			t.Fatal(err)
		}
		before := testkit.Heap()
		for i := range n {
			ttl := time.Second
			if i < 3 {
				ttl = time.Hour
			}
			c.SetTTL(i, i, ttl)
		}
		testkit.Settle(time.Minute)
		if grown := testkit.Heap() - before; grown > 1<<20 || c.Len() != 3 {
			t.Errorf("%d values take %d bytes", c.Len(), grown)
		}
		for i := range 2 * n {
			c.Set(n+i, i)
			if i == 0 {
				c.Get(0)
			}
		}
		if _, ok := c.Get(1); ok || c.Len() != 2*n {
			t.Error("the order of use was lost")
		}
		c.Close()
	})
}

func TestKeysThatAreNotEqualToThemselves_areNotKept(t *testing.T) {
	for _, bound := range []int{0, 1} {
		in(t, Config[string, int]{TTL: time.Minute}, func(k *kit) {
			told := 0
			c, err := New(k.tw, Config[float64, int]{
				TTL: time.Minute, MaxEntries: bound, OnEvict: func(float64, int, Reason) { told++ },
			})
			if err != nil {
				t.Fatal(err)
			}
			c.Set(math.NaN(), 1)
			for range 2 {
				v, err := c.GetOrLoad(k.Context(), math.NaN(), func(context.Context, float64) (int, error) { return 7, nil })
				if v != 7 || err != nil {
					t.Errorf("GetOrLoad returns %d, %v", v, err)
				}
			}
			if c.Touch(math.NaN()) || c.Delete(math.NaN()) || c.Len() != 0 || flights(c) != 0 {
				t.Errorf("%d values are there", c.Len())
			}
			c.Set(1, 1)
			c.Close()
			if told != 1 {
				t.Errorf("OnEvict was told %d times", told)
			}
		})
	}
}
