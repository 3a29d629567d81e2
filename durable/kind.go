// SPDX-License-Identifier: MIT

package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Handler does the work of a run. When it returns nil the run is done for good; after an error, a panic or
// a runtime.Goexit it is tried again. ctx is done when the scheduler has been shut down and does not wait any
// longer.
type Handler func(ctx context.Context, run Run) error

// A Run is one run of a task, and the same on each attempt but for Attempt.
type Run struct {
	Token
	Kind    string
	Payload []byte    // not to be changed
	Due     time.Time // when the run was due, by the grid of its task
	Times   int       // runs that are left after this one, or Forever
	Attempt int       // 1 for the first
	Missed  uint64    // periods that passed without a run, since the task was added
}

// A Token names a run. No other run has the same, of this task or of another, in this process or a later one.
type Token struct {
	Key        string
	Generation uint64 // of the tasks that have had the key, the later has the greater (a clock set back aside)
	Run        uint64 // of the runs of the task, the later has the greater; not every number is used
}

// String returns the token in one word: the generation, the run and the key.
func (t Token) String() string { return fmt.Sprintf("%x.%d.%s", t.Generation, t.Run, t.Key) }

// Missed is what becomes of the runs of a repeating task that fell due while no process ran, or while an
// earlier run of it went on.
type Missed int

const (
	Once Missed = iota // one of them runs, the others are counted as missed
	Skip               // those from before the start, or before Handle, are counted as missed; else as Once
	All                // each of them runs, one after the other
)

// A KindOption changes how the runs of a kind are treated.
type KindOption func(*kind) error

// WithRetry sets how often a run is attempted before its task is parked, and how long the scheduler waits
// after a failure: first about least, then twice as long each time, up to most; each wait is between a half
// and the whole of that, at random. Unless it is given there are 10 attempts, and the waits go from a second to
// ten minutes. It is an error unless attempts and least are positive and most is not less than least.
func WithRetry(attempts int, least, most time.Duration) KindOption {
	return func(k *kind) error {
		if attempts <= 0 || least <= 0 || most < least {
			return fmt.Errorf("durable: retry of %d attempts, %v to %v apart", attempts, least, most)
		}
		k.attempts, k.least, k.most = uint64(attempts), least, most
		return nil
	}
}

// WithMissed sets what becomes of missed runs; [Once] unless it is given.
func WithMissed(m Missed) KindOption {
	return func(k *kind) error {
		if m < Once || m > All {
			return fmt.Errorf("durable: unknown policy %d for missed runs", m)
		}
		k.missed = m
		return nil
	}
}

// A kind is what is known about the tasks of one kind.
type kind struct {
	handler     Handler
	attempts    uint64
	least, most time.Duration
	missed      Missed

	longest atomic.Int64 // about the longest of the last hundred runs, in nanoseconds; 0 before the first
}

// quickRun is how long a run may take for its kind to be quick: what has to wait for its worker does not mind.
const quickRun = 50 * time.Millisecond

// quick reports whether the runs of the kind are known to be quick.
func (k *kind) quick() bool {
	longest := k.longest.Load()
	return longest > 0 && longest <= int64(quickRun)
}

// took notes how long a run has taken. Longer ones before it are forgotten bit by bit.
func (k *kind) took(d time.Duration) {
	for {
		old := k.longest.Load()
		if k.longest.CompareAndSwap(old, max(int64(d), old-old/32, 1)) {
			return
		}
	}
}

func newKind(h Handler, opts []KindOption) (*kind, error) {
	k := &kind{handler: h, attempts: 10, least: time.Second, most: 10 * time.Minute}
	if h == nil {
		return nil, errors.New("durable: handler is nil")
	}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("durable: nil option")
		}
		if err := o(k); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// wait returns how long to wait after so many failures.
func (k *kind) wait(failures uint64) time.Duration {
	d := k.most
	if shift := failures - 1; shift < 63 && k.least <= k.most>>shift {
		d = k.least << shift
	}
	return d - rand.N(d/2+1)
}

// kinds are those that are registered.
type kinds struct {
	mu sync.RWMutex // protects of
	of map[string]*kind
}

func (k *kinds) get(name string) *kind {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.of[name]
}

func (k *kinds) add(name string, added *kind) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of[name] != nil {
		return fmt.Errorf("durable: kind %q has a handler already", name)
	}
	if k.of == nil {
		k.of = make(map[string]*kind)
	}
	k.of[name] = added
	return nil
}
