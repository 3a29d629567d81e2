// SPDX-License-Identifier: MIT

// This program is built with a cache, installed as by a user.
package main

import (
	"fmt"
	"log"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/ttlcache"
)

func main() {
	tw, err := timewheel.New(time.Millisecond, 64)
	if err != nil {
		log.Fatal(err)
	}
	tw.Start()
	defer tw.Stop()
	expired := make(chan string)
	cache, err := ttlcache.New(tw, ttlcache.Config[string, int]{
		TTL: 10 * time.Millisecond,
		OnEvict: func(key string, value int, reason ttlcache.Reason) {
			expired <- fmt.Sprint(key, " ", value, " ", reason)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	cache.Set("tea", 499)
	fmt.Println("a value of the cache:", <-expired)
}
