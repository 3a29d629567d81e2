// SPDX-License-Identifier: MIT

package ttlcache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed581295f1/timewheel/internal/testkit"
	"github.com/seed581295f1/timewheel/timewheel"
	"github.com/seed581295f1/timewheel/ttlcache"
)

// This is, word for word, the right-hand column of the section on go-zero's Cache in MIGRATING.md.
func TestMigrating_rightHandColumn_compilesAndRuns(t *testing.T) {
	testkit.Migrating(t, "..", "go-zero's Cache", 7)
	synctest.Test(t, migrate)
}

func migrate(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tw := timewheel.NewTimeWheel(time.Millisecond, 64)
	tw.Start()
	defer tw.Stop()
	ctx := t.Context()
	fetch := func(key string) (int, error) { return len(key), nil }

	cache, err := ttlcache.New(tw, ttlcache.Config[string, int]{TTL: time.Minute, Jitter: 0.05})
	must(err)
	defer cache.Close()
	bounded, err := ttlcache.New(tw, ttlcache.Config[string, int]{TTL: time.Minute, MaxEntries: 100})
	must(err)
	defer bounded.Close()
	for i := range 200 {
		bounded.Set(string(rune(i)), i)
	}
	if n := bounded.Len(); n != 100 {
		t.Errorf("the bounded cache has %d values", n)
	}

	cache.Set("k", 1)
	cache.SetTTL("k", 2, 500*time.Millisecond)
	value, ok := cache.Get("k")
	if !ok || value != 2 {
		t.Errorf("Get returns %d, %v", value, ok)
	}
	value, err = cache.GetOrLoad(ctx, "other", func(ctx context.Context, key string) (int, error) { return fetch(key) })
	must(err)
	deleted := cache.Delete("k")
	if value != 5 || !deleted || cache.Len() != 1 {
		t.Errorf("GetOrLoad returns %d, Delete %v", value, deleted)
	}
}
