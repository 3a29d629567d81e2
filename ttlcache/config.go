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

	// MaxWeight limits the sum of the weights of the values: a new value beyond the limit evicts the least recently used
	// values. A value that is heavier than MaxWeight is evicted at once, and no other value is. It must not be negative or
	// more than 2^61; 0 means no limit. A cache may have both limits.
	MaxWeight int64

	// Weigh returns the weight of a value, such as its size in bytes. It must be set if MaxWeight is. It is called once for
	// each value that is stored. A negative weight counts as 0. Weigh must not call the cache's methods.
	Weigh func(key K, value V) int64

	// ErrorTTL is how long the error of a load is remembered: GetOrLoad returns it, and does not call load again. It ends
	// earlier if the key is set or deleted. Errors do not count towards the limits. It must not be negative; 0 means that
	// errors are not remembered.
	ErrorTTL time.Duration

	// RefreshAfter is the age at which a value is old. GetOrLoad returns an old value at once, and calls load in the
	// background, once for all callers, to replace the value. If the load fails, the old value stays until its
	// deadline; the load is tried again at the next call, or when the error is forgotten (see ErrorTTL). A panic of this
	// load, or of OnEvict after it, is handled by the wheel, like that of a job. The context
	// of the load carries the values of the ctx of the caller that began it, and is done when the value is set or
	// deleted. The age counts from the moment when the value was set or touched. RefreshAfter must not be negative, and
	// not be combined with TouchOnGet; 0 means that GetOrLoad replaces no values.
	RefreshAfter time.Duration

	// OnEvict, if it is not nil, is called once for every value that leaves the cache. No lock is held, so it may call
	// the cache's methods. It runs on the goroutine that removes the value, which for [Expired] is usually one of the
	// wheel's workers, so several calls may run at the same time. If OnEvict panics or ends its goroutine, it is still
	// called for the other values, and then the first panic continues.
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
	case c.MaxWeight < 0:
		return fmt.Errorf("ttlcache: MaxWeight %d is negative", c.MaxWeight)
	case c.MaxWeight > mostWeight:
		return fmt.Errorf("ttlcache: MaxWeight %d is more than %d", c.MaxWeight, int64(mostWeight))
	case c.MaxWeight > 0 && c.Weigh == nil:
		return fmt.Errorf("ttlcache: MaxWeight is %d, but Weigh is nil", c.MaxWeight)
	case c.MaxWeight == 0 && c.Weigh != nil:
		return errors.New("ttlcache: Weigh is set, but MaxWeight is 0")
	case c.ErrorTTL < 0:
		return fmt.Errorf("ttlcache: ErrorTTL %v is negative", c.ErrorTTL)
	case c.RefreshAfter < 0:
		return fmt.Errorf("ttlcache: RefreshAfter %v is negative", c.RefreshAfter)
	case c.RefreshAfter > 0 && c.TouchOnGet:
		return fmt.Errorf("ttlcache: RefreshAfter is %v, but with TouchOnGet no value gets old", c.RefreshAfter)
	}
	return nil
}

// mostWeight is the largest MaxWeight. A weight above twice as much counts as that, which is too heavy for any cache. So
// the sum of the weights and of a new weight does not overflow.
const mostWeight = 1 << 61

// bounded reports whether values may be evicted.
func (c *Config[K, V]) bounded() bool { return c.MaxEntries > 0 || c.MaxWeight > 0 }

// A Reason is the reason why a value left the cache.
type Reason int

const (
	Expired  Reason = iota // its time to live had passed
	Replaced               // another value was set for its key
	Deleted                // it was removed with Delete, Purge or Compute
	Evicted                // it was the least recently used when a limit was reached, or too heavy
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
	Loads, LoadErrors uint64 // calls to load functions that have returned; calls that failed or panicked

	// Values that left the cache, by reason.
	Expired, Replaced, Deleted, Evicted, Closed uint64
}
