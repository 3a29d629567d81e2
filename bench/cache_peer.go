// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"time"

	jellydator "github.com/jellydator/ttlcache/v3"
	"github.com/maypok86/otter/v2"
	gocache "github.com/patrickmn/go-cache"
	"github.com/zeromicro/go-zero/core/collection"

	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/ttlcache"
)

// cacher is a cache behind the measured verbs. All values live for the TTL with which it was opened.
type cacher interface {
	set(key string, value int)
	get(key string) (value int, ok bool)
	close()
}

const (
	ourCache      = "timewheel/ttlcache"
	cacheBaseline = "jellydator"
	otterName     = "otter"
)

// cacheDefinition describes a cache and how to open it.
type cacheDefinition struct {
	name   string
	module string
	about  string
	open   func(ttl time.Duration) (cacher, error)
}

// cacheDefinitions lists the caches in the order of the tables. None bounds its size.
func cacheDefinitions() []cacheDefinition {
	return []cacheDefinition{
		{
			ourCache, "github.com/seed581295f1/timewheel",
			"`New(tw, Config{TTL})` on a wheel of 10 ms and 1,024 slots", openOurs,
		},
		{
			cacheBaseline, "github.com/jellydator/ttlcache/v3",
			"`New(WithTTL, WithDisableTouchOnHit)` and `go Start()`", openJellydator,
		},
		{
			"go-cache", "github.com/patrickmn/go-cache",
			"`New(ttl, time.Second)`: the janitor looks at all items every second", openGoCache,
		},
		{
			"go-zero", "github.com/zeromicro/go-zero",
			"`collection.NewCache(ttl)`, on its timing wheel of 1 s; it spreads the expiry by ± 5 %", openGoZero,
		},
		{
			otterName, "github.com/maypok86/otter/v2",
			"`ExpiryWriting(ttl)`, no maximum size; it cleans up as it is used, and once a second", openOtter,
		},
	}
}

type ourCacher struct {
	*ttlcache.Cache[string, int]
	tw *timewheel.TimeWheel
}

func openOurs(ttl time.Duration) (cacher, error) {
	tw, err := timewheel.New(usualTick, wheelSlots)
	if err != nil {
		return nil, err
	}
	tw.Start()
	c, err := ttlcache.New(tw, ttlcache.Config[string, int]{TTL: ttl})
	return ourCacher{c, tw}, err
}

func (c ourCacher) set(key string, value int)       { c.Set(key, value) }
func (c ourCacher) get(key string) (v int, ok bool) { return c.Get(key) }
func (c ourCacher) close() {
	c.Close()
	c.tw.Stop()
}

type jellydatorCacher struct{ *jellydator.Cache[string, int] }

func openJellydator(ttl time.Duration) (cacher, error) {
	c := jellydator.New(jellydator.WithTTL[string, int](ttl), jellydator.WithDisableTouchOnHit[string, int]())
	go c.Start()
	return jellydatorCacher{c}, nil
}

func (c jellydatorCacher) set(key string, value int) { c.Set(key, value, jellydator.DefaultTTL) }
func (c jellydatorCacher) get(key string) (int, bool) {
	item := c.Get(key)
	if item == nil {
		return 0, false
	}
	return item.Value(), true
}
func (c jellydatorCacher) close() { c.Stop() }

type goCacher struct{ *gocache.Cache }

func openGoCache(ttl time.Duration) (cacher, error) {
	return goCacher{gocache.New(ttl, time.Second)}, nil
}

func (c goCacher) set(key string, value int) { c.SetDefault(key, value) }
func (c goCacher) get(key string) (int, bool) {
	v, ok := c.Get(key)
	if !ok {
		return 0, false
	}
	return v.(int), true
}
func (c goCacher) close() {}

type goZeroCacher struct{ *collection.Cache }

func openGoZero(ttl time.Duration) (cacher, error) {
	c, err := collection.NewCache(ttl)
	return goZeroCacher{c}, err
}

func (c goZeroCacher) set(key string, value int) { c.Set(key, value) }
func (c goZeroCacher) get(key string) (int, bool) {
	v, ok := c.Get(key)
	if !ok {
		return 0, false
	}
	return v.(int), true
}
func (c goZeroCacher) close() {}

type otterCacher struct{ *otter.Cache[string, int] }

func openOtter(ttl time.Duration) (cacher, error) {
	c, err := otter.New(&otter.Options[string, int]{ExpiryCalculator: otter.ExpiryWriting[string, int](ttl)})
	return otterCacher{c}, err
}

func (c otterCacher) set(key string, value int)  { c.Set(key, value) }
func (c otterCacher) get(key string) (int, bool) { return c.GetIfPresent(key) }
func (c otterCacher) close()                     { c.StopAllGoroutines() }

// cacheByName returns the cache of that name.
func cacheByName(name string) (cacheDefinition, error) {
	for _, d := range cacheDefinitions() {
		if d.name == name {
			return d, nil
		}
	}
	return cacheDefinition{}, fmt.Errorf("unknown cache %q", name)
}
