// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"fmt"
)

// RemoveWait removes the live task of the key, as [TimeWheel.RemoveTask] does, and returns when no run of the key is in
// progress. It reports whether one was. It also waits for a last run, which has freed the key, and for the runs of a
// task that was replaced or removed before. It looks for runs once, after the removal: it does not wait for a run of a
// later task that begins after that.
//
// If there is neither a live task nor a run in progress, the error wraps [ErrTaskKeyNotFound]. If ctx is done
// before the runs have ended, the error wraps its cause and running is true; the task is removed in any case.
// A job that calls RemoveWait with its own key waits for itself, until ctx is done. RemoveWait looks at every
// run in progress.
func (tw *TimeWheel) RemoveWait(ctx context.Context, key string) (running bool, err error) {
	err = tw.RemoveTask(key)
	if key == "" { // the runs without a key are those of timers
		return false, err
	}
	for _, end := range tw.dispatch.endings(key) {
		select {
		case <-end.came:
			running = running || end.ran
		case <-ctx.Done():
			return true, fmt.Errorf("timewheel: remove %q: still running: %w", key, context.Cause(ctx))
		}
	}
	if running {
		return true, nil
	}
	return false, err
}

// An ending is the end of a run that a caller waits for.
type ending struct {
	came chan struct{} // closed
	ran  bool          // the run has begun, and was not withdrawn before; to be read when it came
}

// endings returns the endings of the key's runs that workers have taken.
func (d *dispatcher) endings(key string) (all []*ending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.workers {
		if w.number == 0 || w.run.e.key != key {
			continue
		}
		if w.awaited == nil {
			w.awaited = &ending{came: make(chan struct{})}
		}
		all = append(all, w.awaited)
	}
	return all
}
