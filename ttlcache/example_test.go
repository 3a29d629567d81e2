// SPDX-License-Identifier: MIT

package ttlcache_test

import (
	"context"
	"fmt"
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
