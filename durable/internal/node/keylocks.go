// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"sync"
)

// keyLocks serializes a node's concurrent SetTask calls for the same key. Each call depends on the result of the
// previous one. If they ran at the same time, all but one would find that the task had changed, and would retry.
type keyLocks struct {
	mu    sync.Mutex // protects the fields below
	locks map[string]*keyLock
}

type keyLock struct {
	free chan struct{} // has a value while the lock is free
	n    int           // number of callers that hold the lock or wait for it
}

// lock locks the key. It returns an error if the context is done first.
func (k *keyLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.locks[key]
	if l == nil {
		l = &keyLock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		if k.locks == nil {
			k.locks = make(map[string]*keyLock)
		}
		k.locks[key] = l
	}
	l.n++
	k.mu.Unlock()
	select {
	case <-l.free:
		return func() { l.free <- struct{}{}; k.leave(key, l) }, nil
	case <-ctx.Done():
		k.leave(key, l)
		return nil, ctx.Err()
	}
}

func (k *keyLocks) leave(key string, l *keyLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.n--; l.n == 0 {
		delete(k.locks, key)
	}
}
