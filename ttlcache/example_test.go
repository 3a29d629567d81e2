// SPDX-License-Identifier: MIT

package ttlcache_test

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/ttlcache"
)

func Example() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 1024)
	tw.Start()
	defer tw.Stop()

	left := make(chan string)
	sessions, err := ttlcache.New(tw, ttlcache.Config[string, string]{
		TTL:     30 * time.Minute,
		OnEvict: func(id, _ string, reason ttlcache.Reason) { left <- id + " " + reason.String() },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	sessions.Set("s1", "ada")
	sessions.SetTTL("s2", "grace", 50*time.Millisecond)
	fmt.Println(sessions.Get("s1"))

	fmt.Println(<-left)
	fmt.Println(sessions.Get("s2"))
	fmt.Println(sessions.Len())
	// Output:
	// ada true
	// s2 expired
	//  false
	// 1
}

func ExampleCache_GetOrLoad() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 1024)
	tw.Start()
	defer tw.Stop()

	prices, err := ttlcache.New(tw, ttlcache.Config[string, int]{TTL: time.Minute, Jitter: 0.1})
	if err != nil {
		fmt.Println(err)
		return
	}
	load := func(_ context.Context, article string) (int, error) {
		fmt.Println("asking for the price of", article) // once, however many ask at the same time
		return 499, nil
	}
	for range 3 {
		price, err := prices.GetOrLoad(context.Background(), "tea", load)
		fmt.Println(price, err)
	}
	// Output:
	// asking for the price of tea
	// 499 <nil>
	// 499 <nil>
	// 499 <nil>
}

// A cache of two values that says why each of them leaves it.
func ExampleConfig() {
	tw := timewheel.NewTimeWheel(time.Millisecond, 1024)
	tw.Start()
	defer tw.Stop()

	expired := make(chan bool)
	pictures, err := ttlcache.New(tw, ttlcache.Config[string, string]{
		TTL:        time.Hour,
		MaxEntries: 2,
		OnEvict: func(name, picture string, reason ttlcache.Reason) {
			switch reason {
			case ttlcache.Expired:
				fmt.Println(name, "is too old")
				close(expired)
			case ttlcache.Evicted:
				fmt.Println(name, "made room for another")
			case ttlcache.Replaced:
				fmt.Println(name, "has changed")
			case ttlcache.Deleted, ttlcache.Closed:
				fmt.Println(name, "is", reason)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pictures.Set("cat", "=^.^=")
	pictures.Set("cat", "=^-^=")
	pictures.Set("dog", "U.U")
	pictures.Set("owl", "{o,o}") // the cat was used least recently
	pictures.Delete("owl")
	pictures.SetTTL("fly", ".", time.Millisecond)
	<-expired
	pictures.Close()
	// Output:
	// cat has changed
	// cat made room for another
	// owl is deleted
	// fly is too old
	// dog is closed
}

func ExampleCache_Stats() {
	tw := timewheel.NewTimeWheel(time.Second, 1024)
	tw.Start()
	defer tw.Stop()

	prices, err := ttlcache.New(tw, ttlcache.Config[string, int]{TTL: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	prices.Set("tea", 499)
	prices.Set("jam", 299)
	_, _ = prices.Get("tea")
	_, _ = prices.Get("cake")
	fmt.Println("another hour:", prices.Touch("tea"), prices.Touch("cake"))
	fmt.Println("deleted:", prices.Delete("jam"), prices.Delete("cake"))
	fmt.Println("left:", maps.Collect(prices.All()))

	s := prices.Stats()
	fmt.Println(s.Hits, "hit,", s.Misses, "miss,", s.Deleted, "deleted")
	// Output:
	// another hour: true false
	// deleted: true false
	// left: map[tea:499]
	// 1 hit, 1 miss, 1 deleted
}
