// SPDX-License-Identifier: MIT

package ttlcache

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

// Config says how a [Cache] behaves. TTL must be given; the zero value of every other field is good.
type Config[K comparable, V any] struct {
	// TTL is how long a value lives that is set without one of its own. It must be positive.
	TTL time.Duration

	// Jitter spreads the time to live of every value evenly over ± this fraction of it, so that values set at
	// one instant do not expire at one instant. It must be at least 0 and less than 1.
	Jitter float64

	// TouchOnGet has every hit of Get and GetOrLoad start the value's time to live anew.
	TouchOnGet bool

	// MaxEntries bounds the number of values: for a new one beyond it the least recently used makes room. It
	// must not be negative, nor more than 2^31 - 1; 0 means no bound. With a bound the cache has one lock,
	// without it several.
	MaxEntries int

	// OnEvict, if it is not nil, is told of every value that leaves the cache, once, with no lock held: it may
	// call the cache. It runs on the goroutine that made the value leave, which for [Expired] is mostly one of
	// the wheel's workers, and so on several at the same time. If it panics or ends its goroutine the other
	// values are told of all the same.
	OnEvict func(key K, value V, reason Reason)
}

// check returns an error that names the field that is wrong and its value.
func (c Config[K, V]) check(tw *timewheel.TimeWheel) error {
	switch {
	case tw == nil:
		return errors.New("ttlcache: wheel is nil")
	case c.TTL <= 0:
		return fmt.Errorf("ttlcache: TTL %v is not positive", c.TTL)
	case !(c.Jitter >= 0 && c.Jitter < 1): // so that NaN is wrong as well
		return fmt.Errorf("ttlcache: Jitter %v is not at least 0 and less than 1", c.Jitter)
	case c.MaxEntries < 0:
		return fmt.Errorf("ttlcache: MaxEntries %d is negative", c.MaxEntries)
	case c.MaxEntries > math.MaxInt32:
		return fmt.Errorf("ttlcache: MaxEntries %d is more than %d", c.MaxEntries, math.MaxInt32)
	}
	return nil
}

// A Reason is why a value left the cache.
type Reason int

const (
	Expired  Reason = iota // its time to live was over
	Replaced               // another was set for its key
	Deleted                // Delete
	Evicted                // it was the least recently used, and MaxEntries was reached
	Closed                 // Close
	reasons
)

// String returns the name of the reason, in lower case.
func (r Reason) String() string {
	if r < 0 || r >= reasons {
		return fmt.Sprintf("Reason(%d)", int(r))
	}
	return [...]string{"expired", "replaced", "deleted", "evicted", "closed"}[r]
}

// Stats are the accounts of a cache since New. At a quiet moment Hits + Misses is the number of look-ups.
type Stats struct {
	Hits, Misses      uint64 // look-ups that found a value, and that did not
	Loads, LoadErrors uint64 // calls of a load function, and those that failed or panicked

	// Values that left, by reason.
	Expired, Replaced, Deleted, Evicted, Closed uint64
}
