// SPDX-License-Identifier: MIT

package timewheel

import (
	"context"
	"fmt"
)

// RemoveWait removes the live task with the given key, as [TimeWheel.RemoveTask] does, and waits until no run of the
// key is in progress. It reports whether a run was in progress. It also waits for a task's last run, even though that
// run has already freed the key, and for runs of tasks that were replaced or removed earlier. It determines the runs to
// wait for once, after the removal, so it does not wait for a later run of a new task with the same key.
//
// If there is neither a live task nor a run in progress, the error wraps [ErrTaskKeyNotFound]. If ctx is done before
// the runs have ended, the error wraps the cause of ctx and running is true; the task is removed in any case. A job
// that calls RemoveWait with its own key waits for itself until ctx is done. The cost of RemoveWait grows with the
// number of runs in progress.
func (tw *TimeWheel) RemoveWait(ctx context.Context, key string) (running bool, err error) {
	err = tw.RemoveTask(key)
	if key == "" { // runs without a key belong to timers
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

// An ending lets callers wait for the end of a run.
type ending struct {
	came chan struct{} // closed when the run has ended
	ran  bool          // whether the run began rather than being withdrawn; valid once came is closed
}

// endings returns an ending for each of the key's runs that a worker has taken.
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
