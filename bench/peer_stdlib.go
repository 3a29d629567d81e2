// SPDX-License-Identifier: MIT

package main

import (
	"time"

	cmap "github.com/orcaman/concurrent-map/v2"
)

// stdlibKeyedPeer is time.AfterFunc with a concurrent-map in front.
func stdlibKeyedPeer() definition {
	return definition{
		name:   baseline,
		module: "github.com/orcaman/concurrent-map/v2",
		about: "`time.AfterFunc` with a concurrent-map from key to `*time.Timer` in front; " +
			"a timer that fires takes out its own entry, and only that",
		keyed:      true,
		timers:     true,
		concurrent: true,
		maxLive:    10_000_000,
		open: func(s settings) (peer, error) {
			return &stdlibKeyed{index: cmap.New[*time.Timer](), fire: s.fire}, nil
		},
	}
}

// stdlibKeyed is the baseline. The lock of the map's shard orders all operations on one key. A goroutine that finds the
// entry under the lock may act on the timer. A job whose entry is gone does not run.
type stdlibKeyed struct {
	index cmap.ConcurrentMap[string, *time.Timer]
	fire  func(key string)
}

// add starts the timer inside the map's callback, so that a timer that fires at once waits for its own entry.
func (p *stdlibKeyed) add(_ int, key string, d time.Duration) error {
	var t *time.Timer
	added := true
	p.index.Upsert(key, nil, func(exist bool, old, _ *time.Timer) *time.Timer {
		if exist {
			added = false
			return old
		}
		t = time.AfterFunc(d, func() {
			if p.index.RemoveCb(key, func(_ string, v *time.Timer, ok bool) bool { return ok && v == t }) {
				p.fire(key)
			}
		})
		return t
	})
	if !added {
		return errDuplicate
	}
	return nil
}

func (p *stdlibKeyed) remove(_ int, key string) error {
	t, ok := p.index.Pop(key)
	if !ok {
		return errMissing
	}
	t.Stop()
	return nil
}

// reschedule resets under the shard's lock. If the timer has already fired, its job waits for that lock, removes the
// entry and runs. The timer that Reset has restarted is then stopped here, or finds no entry.
func (p *stdlibKeyed) reschedule(key string, d time.Duration) error {
	moved := false
	p.index.RemoveCb(key, func(_ string, t *time.Timer, ok bool) bool {
		if ok {
			if moved = t.Reset(d); !moved {
				t.Stop()
			}
		}
		return false
	})
	if !moved {
		return errMissing
	}
	return nil
}

func (p *stdlibKeyed) stop() {}

// stdlibPeer is time.AfterFunc alone.
func stdlibPeer() definition {
	return definition{
		name:       "stdlib",
		about:      "`time.AfterFunc`, without keys",
		timers:     true,
		concurrent: true,
		maxLive:    10_000_000,
		open:       func(s settings) (peer, error) { return newBare[*time.Timer](stdlibTimers{}, s), nil },
	}
}

// stdlibTimers makes the runtime's timers an engine.
type stdlibTimers struct{}

func (stdlibTimers) start(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }

func (stdlibTimers) cancel(t *time.Timer) { t.Stop() }

func (stdlibTimers) close() {}
