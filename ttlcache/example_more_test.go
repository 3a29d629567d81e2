// SPDX-License-Identifier: MIT

package ttlcache_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/ttlcache"
)

// counters returns a cache for the examples.
func counters(config ttlcache.Config[string, int]) (*ttlcache.Cache[string, int], func()) {
	tw := timewheel.NewTimeWheel(time.Millisecond, 1024)
	tw.Start()
	c, err := ttlcache.New(tw, config)
	if err != nil {
		panic(err)
	}
	return c, tw.Stop
}

// At most three attempts to log in are allowed in an hour, which begins with the first.
func ExampleCache_Compute_counter() {
	attempts, stop := counters(ttlcache.Config[string, int]{TTL: time.Hour})
	defer stop()

	for range 4 {
		n, _ := attempts.Compute("ada", func(n int, _ bool) (int, ttlcache.Op) { return n + 1, ttlcache.UpdateOp })
		fmt.Println("attempt", n, n <= 3)
	}
	// Output:
	// attempt 1 true
	// attempt 2 true
	// attempt 3 true
	// attempt 4 false
}

// Only the first caller handles a message.
func ExampleCache_Compute_ifAbsent() {
	seen, stop := counters(ttlcache.Config[string, int]{TTL: time.Hour})
	defer stop()

	first := func(message string) (is bool) {
		seen.Compute(message, func(_ int, ok bool) (int, ttlcache.Op) {
			if ok {
				return 0, ttlcache.KeepOp
			}
			is = true
			return 1, ttlcache.SetOp
		})
		return is
	}
	fmt.Println(first("m1"), first("m2"), first("m1"))
	// Output: true true false
}

// A code can be used once.
func ExampleCache_Compute_getAndDelete() {
	codes, stop := counters(ttlcache.Config[string, int]{TTL: 10 * time.Minute})
	defer stop()
	codes.Set("x7f", 42)

	redeem := func(code string) (user int, ok bool) {
		codes.Compute(code, func(old int, is bool) (int, ttlcache.Op) {
			user, ok = old, is
			return 0, ttlcache.DeleteOp
		})
		return user, ok
	}
	fmt.Println(redeem("x7f"))
	fmt.Println(redeem("x7f"))
	// Output:
	// 42 true
	// 0 false
}

func ExampleCache_ComputeTTL() {
	locks, stop := counters(ttlcache.Config[string, int]{TTL: time.Minute})
	defer stop()

	lock := func(name string, owner int, d time.Duration) bool {
		is, _ := locks.ComputeTTL(name, d, func(old int, ok bool) (int, ttlcache.Op) {
			if ok && old != owner {
				return 0, ttlcache.KeepOp
			}
			return owner, ttlcache.SetOp
		})
		return is == owner
	}
	fmt.Println(lock("door", 1, time.Hour), lock("door", 2, time.Hour), lock("door", 1, time.Hour))
	// Output: true false true
}

func ExampleCache_Expires() {
	sessions, stop := counters(ttlcache.Config[string, int]{TTL: time.Hour})
	defer stop()

	sessions.Set("s1", 1)
	end, ok := sessions.Expires("s1")
	fmt.Println(time.Until(end).Round(time.Minute), ok)
	_, ok = sessions.Expires("s2")
	fmt.Println(ok)
	// Output:
	// 1h0m0s true
	// false
}

// An administrator looks at a session, and its time to live stays as it is.
func ExampleCache_Peek() {
	sessions, stop := counters(ttlcache.Config[string, int]{TTL: time.Hour, TouchOnGet: true})
	defer stop()

	sessions.Set("s1", 1)
	fmt.Println(sessions.Peek("s1"))
	fmt.Println(sessions.Stats().Hits)
	// Output:
	// 1 true
	// 0
}

func ExampleCache_Purge() {
	prices, stop := counters(ttlcache.Config[string, int]{TTL: time.Hour})
	defer stop()

	prices.Set("tea", 499)
	prices.Set("jam", 299)
	prices.Purge() // there is a new list of prices
	fmt.Println(prices.Len())
	// Output: 0
}

// The answer says how long it may be kept.
func ExampleCache_GetOrLoadTTL() {
	addresses, stop := counters(ttlcache.Config[string, int]{TTL: time.Hour})
	defer stop()

	resolve := func(_ context.Context, host string) (address int, ttl time.Duration, err error) {
		return 127001, 5 * time.Minute, nil
	}
	fmt.Println(addresses.GetOrLoadTTL(context.Background(), "db", resolve))
	end, _ := addresses.Expires("db")
	fmt.Println(time.Until(end).Round(time.Minute))
	// Output:
	// 127001 <nil>
	// 5m0s
}

// A load that fails is not repeated for ten seconds.
func ExampleConfig_errorTTL() {
	prices, stop := counters(ttlcache.Config[string, int]{TTL: time.Hour, ErrorTTL: 10 * time.Second})
	defer stop()

	load := func(context.Context, string) (int, error) {
		fmt.Println("asking")
		return 0, errors.New("no such article")
	}
	for range 3 {
		_, err := prices.GetOrLoad(context.Background(), "cake", load)
		fmt.Println(err)
	}
	// Output:
	// asking
	// no such article
	// no such article
	// no such article
}

// No caller waits for a value that is there, however old.
func ExampleConfig_refreshAfter() {
	answered, loaded := make(chan bool), make(chan bool)
	prices, stop := counters(ttlcache.Config[string, int]{
		TTL: time.Hour, RefreshAfter: time.Millisecond,
		OnEvict: func(_ string, old int, reason ttlcache.Reason) {
			fmt.Println(old, "was", reason)
			close(loaded)
		},
	})
	defer stop()

	prices.Set("tea", 499)
	time.Sleep(2 * time.Millisecond)
	load := func(context.Context, string) (int, error) { <-answered; return 549, nil }
	fmt.Println(prices.GetOrLoad(context.Background(), "tea", load))
	close(answered)
	<-loaded
	fmt.Println(prices.Get("tea"))
	// Output:
	// 499 <nil>
	// 499 was replaced
	// 549 true
}

// A cache of at most 10 bytes.
func ExampleConfig_maxWeight() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 1024)
	tw.Start()
	defer tw.Stop()

	pages, err := ttlcache.New(tw, ttlcache.Config[string, string]{
		TTL: time.Hour, MaxWeight: 10,
		Weigh:   func(_, page string) int64 { return int64(len(page)) },
		OnEvict: func(name, _ string, reason ttlcache.Reason) { fmt.Println(name, "is", reason) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pages.Set("a", "1234")
	pages.Set("b", "1234")
	pages.Set("c", "123")
	fmt.Println(pages.Len())
	// Output:
	// a is evicted
	// 2
}
