// SPDX-License-Identifier: MIT

package ttlcache

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"
)

// errGoexit is the error returned to the callers of a load that ended its goroutine.
var errGoexit = errors.New("ttlcache: load called runtime.Goexit")

// loads tracks the load functions that are running.
type loads[K comparable, V any] struct {
	group singleflight.Group

	going        atomic.Int64 // number of flights
	done, failed atomic.Uint64

	mu      sync.Mutex // protects the fields below
	flights map[K]*flight[V]
	last    uint64 // the id that was assigned last
}

// A flight is a load and the callers that are waiting for it. It has its own id because the group accepts only strings,
// and two different keys may look the same as strings.
//
// The group ends the call as soon as load has returned. The flight retains the result until a caller stores it in the
// cache. The caller stores it on its own goroutine, not in the group, because storing may call OnEvict. A caller that
// arrives in between gets the result from the flight.
type flight[V any] struct {
	id      string
	callers int
	result  *loaded[V] // set when load has returned without an error
	over    bool       // do not store the result: it was stored, the key was set or deleted since, or no caller waits
	ctx     context.Context
	cancel  context.CancelFunc
}

// loaded is the outcome of a load that returned no error.
type loaded[V any] struct {
	value    V
	panicked bool
	reason   any // the value of the panic
}

// GetOrLoad returns the value of the key. If there is none, it calls load and stores the result with the TTL of the
// [Config].
//
// If several callers request the same key at the same time, load is called once. All of them get its value, its error
// or its panic. An error is not stored. The panic in each caller has the original value but not the original stack. If
// load ends its goroutine, GetOrLoad returns an error. A value that is set while load is running is newer and is kept.
// If the key is deleted while load is running, the loaded value is not stored.
//
// The context passed to load carries the values of the first caller's ctx. It is done once no caller is waiting. If
// load returns a result after that, the result is not stored. If a caller's own ctx is done, GetOrLoad returns at once
// with the cause.
func (c *Cache[K, V]) GetOrLoad(
	ctx context.Context, key K, load func(ctx context.Context, key K) (V, error),
) (V, error) {
	if value, ok := c.Get(key); ok {
		return value, nil
	}
	if unfindable(key) {
		return load(ctx, key)
	}
	f := c.loads.join(ctx, key)
	defer c.loads.leave(key, f)
	results := c.loads.group.DoChan(f.id, func() (any, error) { return c.load(f, key, load) })
	var none V
	select {
	case r := <-results:
		if r.Err != nil {
			return none, r.Err
		}
		l := r.Val.(loaded[V])
		if l.panicked {
			panic(l.reason)
		}
		c.keep(f, key, l.value)
		return l.value, nil
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// load calls the user's function, unless a value has been set or loaded since the caller looked.
func (c *Cache[K, V]) load(f *flight[V], key K, load func(context.Context, K) (V, error)) (loaded[V], error) {
	if value, ok := c.shardOf(key).find(key); ok {
		return loaded[V]{value: value}, nil
	}
	x := &c.loads
	x.mu.Lock()
	result := f.result
	x.mu.Unlock()
	if result != nil {
		return *result, nil
	}
	l, err := guarded(func() (V, error) { return load(f.ctx, key) })
	x.done.Add(1)
	if err != nil || l.panicked {
		x.failed.Add(1)
		return l, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	f.result = &l
	return l, nil
}

// keep stores the loaded value, unless another caller has stored it, or the key has been set or deleted since.
func (c *Cache[K, V]) keep(f *flight[V], key K, value V) {
	s, x := c.shardOf(key), &c.loads
	x.mu.Lock()
	var left []departure[K, V]
	if !f.over {
		left = s.setAnd(key, value, c.spread(c.config.TTL), false)
		x.endLocked(key, f)
	}
	x.mu.Unlock()
	s.tell(left)
}

// guarded calls f on a separate goroutine, because f may end its goroutine. Ending a singleflight goroutine would leave
// the other callers waiting forever.
func guarded[V any](f func() (V, error)) (l loaded[V], err error) {
	ended := make(chan struct{})
	err = errGoexit // until f has returned or panicked
	go func() {
		defer close(ended)
		returned := false
		defer func() {
			if reason := recover(); !returned && reason != nil {
				l, err = loaded[V]{panicked: true, reason: reason}, nil
			}
		}()
		value, failure := f()
		returned = true
		l, err = loaded[V]{value: value}, failure
	}()
	<-ended
	return l, err
}

// join adds a caller to the flight of the key, which it creates if necessary, and returns the flight.
func (x *loads[K, V]) join(ctx context.Context, key K) *flight[V] {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.flights[key]
	if f == nil {
		if x.flights == nil {
			x.flights = make(map[K]*flight[V])
		}
		x.last++
		f = &flight[V]{id: strconv.FormatUint(x.last, 36)}
		f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		x.flights[key] = f
		x.going.Add(1)
	}
	f.callers++
	return f
}

// leave removes a caller from the flight. When the last caller leaves, the flight ends.
func (x *loads[K, V]) leave(key K, f *flight[V]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f.callers--
	if f.callers == 0 {
		f.cancel()
		x.endLocked(key, f)
	}
}

// outdate prevents the value being loaded for the key from being stored. A caller that asks after that starts another
// load.
func (c *Cache[K, V]) outdate(key K) {
	x := &c.loads
	if x.going.Load() == 0 {
		return // the common case, without a lock
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if f := x.flights[key]; f != nil {
		x.endLocked(key, f)
	}
}

// endLocked closes the flight: no further caller can join it, and its result is not stored.
func (x *loads[K, V]) endLocked(key K, f *flight[V]) {
	f.over = true
	if x.flights[key] == f {
		delete(x.flights, key)
		x.going.Add(-1)
	}
}
