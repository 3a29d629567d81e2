// SPDX-License-Identifier: MIT

package ttlcache

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// Config configures a [Cache]. TTL must be set; every other field may be left at its zero value.
type Config[K comparable, V any] struct {
	// TTL is the time to live of values that are set without one of their own. It must be positive.
	TTL time.Duration

	// Jitter randomizes the time to live of every value, uniformly within ± this fraction of it. Values set at the same
	// instant then expire at different instants. Jitter must be at least 0 and less than 1.
	Jitter float64

	// TouchOnGet makes every hit of Get and GetOrLoad restart the value's time to live.
	TouchOnGet bool

	// MaxEntries limits the number of values: a new value beyond the limit evicts the least recently used value. It
	// must not be negative or more than 2^31 - 1; 0 means no limit. A cache with a limit has one lock; a cache without
	// a limit has several.
	MaxEntries int

	// OnEvict, if it is not nil, is called once for every value that leaves the cache. No lock is held, so it may call
	// the cache's methods. It runs on the goroutine that removes the value, which for [Expired] is usually one of the
	// wheel's workers, so several calls may run at the same time. If OnEvict panics or ends its goroutine, it is still
	// called for the other values.
	OnEvict func(key K, value V, reason Reason)
}

// check returns an error that names the invalid field and its value.
func (c Config[K, V]) check(tw *timewheel.TimeWheel) error {
	switch {
	case tw == nil:
		return errors.New("ttlcache: wheel is nil")
	case c.TTL <= 0:
		return fmt.Errorf("ttlcache: TTL %v is not positive", c.TTL)
	case !(c.Jitter >= 0 && c.Jitter < 1): // written this way to reject NaN
		return fmt.Errorf("ttlcache: Jitter %v is not at least 0 and less than 1", c.Jitter)
	case c.MaxEntries < 0:
		return fmt.Errorf("ttlcache: MaxEntries %d is negative", c.MaxEntries)
	case c.MaxEntries > math.MaxInt32:
		return fmt.Errorf("ttlcache: MaxEntries %d is more than %d", c.MaxEntries, math.MaxInt32)
	}
	return nil
}

// A Reason is the reason why a value left the cache.
type Reason int

const (
	Expired  Reason = iota // its time to live had passed
	Replaced               // another value was set for its key
	Deleted                // it was removed with Delete
	Evicted                // it was the least recently used when MaxEntries was reached
	Closed                 // the cache was closed
	reasons
)

// String returns the name of the reason, in lower case.
func (r Reason) String() string {
	if r < 0 || r >= reasons {
		return fmt.Sprintf("Reason(%d)", int(r))
	}
	return [...]string{"expired", "replaced", "deleted", "evicted", "closed"}[r]
}

// Stats contains the statistics of a cache since [New]. While no call is in progress, Hits + Misses is the number of
// lookups.
type Stats struct {
	Hits, Misses      uint64 // lookups that found a value, lookups that did not
	Loads, LoadErrors uint64 // calls to load functions, calls that failed or panicked

	// Values that left the cache, by reason.
	Expired, Replaced, Deleted, Evicted, Closed uint64
}
