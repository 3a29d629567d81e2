// SPDX-License-Identifier: MIT

package ttlcache

import (
	"context"
	"errors"
	"time"

	"github.com/seed581295f1/timewheel/timewheel"
)

var (
	// errGoexit is the error returned to the callers of a load that ended its goroutine.
	errGoexit = errors.New("ttlcache: load called runtime.Goexit")
	// errOwnKey is the error returned to a load that would wait for itself.
	errOwnKey = errors.New("ttlcache: a load requests the key that it loads")
)

// A flight is one call of a load function, and the callers that are waiting for it. The lock of the key's shard guards
// its fields, except that the outcome belongs to the load until landed is closed, and does not change after that.
//
// While the flight is in its shard, callers that find no value join it, and its value is stored when the load returns.
// Anything newer takes it out: a value that is set, a removal, or the departure of the last caller. A flight whose error
// is remembered stays in the shard after the load.
type flight[V any] struct {
	ctx        context.Context
	cancel     context.CancelFunc
	callers    int
	background bool // whether it continues without callers, because it replaces an old value
	landed     chan struct{}

	outcome outcome[V]
	left    func()           // calls OnEvict for the values that the loaded value has displaced; nil if there are none
	until   int64            // when the error is forgotten
	timer   *timewheel.Timer // forgets the error
}

// An outcome is what a load function returned, or how it ended.
type outcome[V any] struct {
	value    V
	ttl      time.Duration // of the value, or of the error
	weight   int64
	err      error
	panicked bool
	reason   any // the value of the panic
}

func (o *outcome[V]) failed() bool { return o.err != nil || o.panicked }

// A chain holds a flight, and the chain of the load that requested it. The context of a load carries its chain, so that
// the load does not wait for itself.
type chain struct {
	flight any
	parent *chain
}

type chainKey struct{}

// chainOf returns the chain of the load to which the context belongs, or nil.
func chainOf(ctx context.Context) *chain {
	c, _ := ctx.Value(chainKey{}).(*chain)
	return c
}

// GetOrLoad returns the value of the key. If there is none, it calls load and stores the result with the TTL of the
// [Config].
//
// If several callers request the same key at the same time, load is called once. All of them get its value, its error
// or its panic. The panic in each caller has the original value but not the original stack. If load ends its goroutine,
// GetOrLoad returns an error. An error is remembered for the ErrorTTL of the [Config]. A value that is set while load
// is running is newer and is kept. If the key is deleted while load is running, the loaded value is not stored.
//
// The context passed to load carries the values of the ctx of the caller that began this load. It is done once no
// caller is waiting. If load returns a result after that, the result is not stored. If a caller's own ctx is done,
// GetOrLoad returns at once with the cause, unless the cache has a value.
//
// With RefreshAfter of the [Config], GetOrLoad may also call load in the background, to replace an old value.
//
// A load may request other keys with the context that it was passed. If it requests its own key with it, directly or
// through other loads, it gets an error. Two loads that request each other's key at the same time wait until their
// contexts are done.
func (c *Cache[K, V]) GetOrLoad(
	ctx context.Context, key K, load func(ctx context.Context, key K) (V, error),
) (V, error) {
	value, found := c.Get(key)
	if found && !c.isOld(key) {
		return value, nil
	}
	return c.fetch(ctx, key, value, found, func(ctx context.Context, key K) (V, time.Duration, error) {
		value, err := load(ctx, key)
		if err != nil {
			return value, c.config.ErrorTTL, err
		}
		return value, c.config.TTL, nil
	})
}

// GetOrLoadTTL is like [Cache.GetOrLoad], but load also returns how long its value or its error is kept. If that is not
// positive, the callers that are waiting get the value or the error, and it is not kept.
func (c *Cache[K, V]) GetOrLoadTTL(
	ctx context.Context, key K, load func(ctx context.Context, key K) (V, time.Duration, error),
) (V, error) {
	value, found := c.Get(key)
	if found && !c.isOld(key) {
		return value, nil
	}
	return c.fetch(ctx, key, value, found, load)
}

// isOld reports whether the key's value, which a lookup has found, is to be loaded again.
func (c *Cache[K, V]) isOld(key K) bool {
	return c.config.RefreshAfter > 0 && c.shardOf(key).isOld(key)
}

// fetch returns the value that a lookup has found, and begins a load in the background because the value is old. If none
// was found, it waits for a load.
func (c *Cache[K, V]) fetch(ctx context.Context, key K, value V, found bool,
	load func(ctx context.Context, key K) (V, time.Duration, error),
) (V, error) {
	s := c.shardOf(key)
	if found {
		if f := s.refresh(ctx, key); f != nil {
			go func() {
				s.fly(f, key, load)
				c.onWorker(func() {
					s.displace(f)
					if f.outcome.panicked {
						panic(f.outcome.reason)
					}
				})
			}()
		}
		return value, nil
	}
	if unfindable(key) {
		value, _, err := load(ctx, key)
		return value, err
	}
	if ctx.Err() != nil {
		return value, context.Cause(ctx)
	}
	f, first, value, err := s.join(ctx, key)
	if f == nil {
		return value, err
	}
	defer s.leave(f, key)
	if first {
		go s.fly(f, key, load)
	}
	select {
	case <-f.landed:
		if o := &f.outcome; o.panicked {
			panic(o.reason)
		} else if o.err == nil {
			return o.value, nil
		}
		return value, f.outcome.err
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// onWorker calls f. If f panics, one of the wheel's workers panics with that value instead, so that the panic is
// reported as that of a job.
func (c *Cache[K, V]) onWorker(f func()) {
	defer func() {
		if reason := recover(); reason != nil {
			c.tw.AfterFunc(0, func() { panic(reason) })
		}
	}()
	f()
}

// join adds a caller to the flight of the key, and reports whether the caller must begin the load. It returns no flight
// if there is a value or a remembered error.
func (s *shard[K, V]) join(ctx context.Context, key K) (f *flight[V], first bool, value V, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, _ := s.useAndTouchLocked(key); i != nil {
		return nil, false, i.value, nil // it was set since the caller looked
	}
	if f = s.flightLocked(key); f == nil {
		f = s.beginLocked(ctx, key)
		f.callers++
		return f, true, value, nil
	}
	if f.timer != nil {
		return nil, false, value, f.outcome.err
	}
	for c := chainOf(ctx); c != nil; c = c.parent {
		if c.flight == any(f) {
			return nil, false, value, errOwnKey
		}
	}
	f.callers++
	return f, false, value, nil
}

// refresh returns a new flight if the value of the key is old, and there is neither a flight nor a remembered error.
func (s *shard[K, V]) refresh(ctx context.Context, key K) *flight[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOldLocked(key) || s.flightLocked(key) != nil {
		return nil
	}
	f := s.beginLocked(ctx, key)
	f.background = true
	return f
}

// flightLocked returns the flight of the key, or nil. The flight is in progress, or its error is remembered.
func (s *shard[K, V]) flightLocked(key K) *flight[V] {
	f := s.flights[key]
	if f != nil && f.timer != nil && s.cache.now() >= f.until {
		s.outdateLocked(key)
		return nil
	}
	return f
}

// beginLocked returns a new flight without callers.
func (s *shard[K, V]) beginLocked(ctx context.Context, key K) *flight[V] {
	f := &flight[V]{landed: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.WithValue(
		context.WithoutCancel(ctx), chainKey{}, &chain{flight: f, parent: chainOf(ctx)}))
	if s.flights == nil {
		s.flights = make(map[K]*flight[V])
	}
	s.addLocked(f, key)
	return f
}

// addLocked puts a flight into the shard.
func (s *shard[K, V]) addLocked(f *flight[V], key K) {
	s.flights[key] = f
	s.mostFlights = max(s.mostFlights, len(s.flights))
}

// dropLocked takes a flight out of the shard.
func (s *shard[K, V]) dropLocked(key K) {
	delete(s.flights, key)
	s.flights, s.mostFlights = shrunk(s.flights, s.mostFlights)
}

// fly calls load. It runs on a goroutine of its own, because load may end its goroutine, and a caller may leave earlier.
func (s *shard[K, V]) fly(f *flight[V], key K, load func(context.Context, K) (V, time.Duration, error)) {
	o := outcome[V]{err: errGoexit} // until load has returned or panicked
	defer func() {
		if reason := recover(); reason != nil {
			o = outcome[V]{panicked: true, reason: reason}
		}
		s.land(f, key, o)
	}()
	value, ttl, err := load(f.ctx, key)
	if err != nil {
		o = outcome[V]{ttl: ttl, err: err}
		return
	}
	o = outcome[V]{value: value, ttl: ttl, weight: s.cache.weight(key, value)}
}

// land ends the flight. If it is still in the shard, its value is stored, or its error is remembered.
func (s *shard[K, V]) land(f *flight[V], key K, o outcome[V]) {
	f.cancel()
	defer close(f.landed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	if o.failed() {
		s.loadErrors++
	}
	f.outcome = o
	if s.flights[key] != f {
		return
	}
	s.dropLocked(key)
	switch {
	case s.closed || o.ttl <= 0: // also after a panic
	case o.err == nil:
		if left := s.setLocked(key, o.value, s.cache.spread(o.ttl), o.weight); len(left) > 0 {
			f.left = func() { s.tell(left) }
		}
	default:
		ttl := min(o.ttl, longest)
		f.until = s.cache.now() + int64(ttl)
		f.timer = s.cache.tw.AfterFunc(ttl, func() { s.forget(f, key) })
		f.ctx, f.cancel = nil, func() {} // so that the values of the context are not kept as long
		s.addLocked(f, key)
	}
}

// leave removes a caller from the flight. A flight that is no longer needed ends.
func (s *shard[K, V]) leave(f *flight[V], key K) {
	s.mu.Lock()
	f.callers--
	if f.callers == 0 {
		switch {
		case s.flights[key] != f:
			f.cancel()
		case !f.background && f.timer == nil:
			s.outdateLocked(key)
		}
	}
	s.mu.Unlock()
	s.displace(f)
}

// displace calls OnEvict for the values that the loaded value has displaced. This is done on the goroutine of a caller, as by Set.
func (s *shard[K, V]) displace(f *flight[V]) {
	s.mu.Lock()
	tell := f.left
	f.left = nil
	s.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// forget removes a flight whose error was remembered long enough.
func (s *shard[K, V]) forget(f *flight[V], key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights[key] == f {
		s.dropLocked(key)
	}
}

// outdateLocked takes the key's flight out of the shard: its value is not stored, its error is not remembered, and a
// caller that asks for the key after that begins another load.
func (s *shard[K, V]) outdateLocked(key K) {
	f := s.flights[key]
	if f == nil {
		return
	}
	s.dropLocked(key)
	if f.timer != nil {
		f.timer.Stop()
	}
	if f.callers == 0 {
		f.cancel()
	}
}
