// SPDX-License-Identifier: MIT

package durable

import (
	"slices"
	"strings"
	"sync"

	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// running holds a keeper's running tasks for look-ups. The keeper itself uses keeper.live. A task is in running from
// the beginning of its run until the end of the run is stored or the task is removed, replaced or moved.
type running struct {
	mu sync.Mutex // protects the fields below, and the field over of each live
	of map[string]*live
}

// add adds a live whose run is about to begin. It returns false if the run must not begin because the live was removed
// at the same moment.
func (r *running) add(l *live) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.over {
		return false
	}
	if r.of == nil {
		r.of = make(map[string]*live)
	}
	r.of[l.Rec.Key] = l
	return true
}

// remove removes l if its run has begun. l may be nil.
func (r *running) remove(l *live) {
	if l == nil || l.state.Load() != begun {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.over = true
	if r.of[l.Rec.Key] == l {
		delete(r.of, l.Rec.Key)
	}
}

// has reports whether the task is running.
func (r *running) has(rec *task.Record) bool { return r.view(rec).running }

// view returns a view of the task, with its run if one is in progress.
func (r *running) view(rec *task.Record) view {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.of[rec.Key]; l != nil && l.Rec.Token() == rec.Token() {
		return view{rec: rec, running: true, started: l.started()}
	}
	return view{rec: rec}
}

// list returns the running tasks, in any order.
func (r *running) list() []view {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]view, 0, len(r.of))
	for _, l := range r.of {
		all = append(all, view{rec: l.Rec, running: true, started: l.started()})
	}
	return all
}

// yieldFrom yields the tasks whose keys are not less than from, in key order.
func yieldFrom(all []view, from string, yield func(view, error) bool) {
	slices.SortFunc(all, func(a, b view) int { return strings.Compare(a.rec.Key, b.rec.Key) })
	for _, v := range all {
		if v.rec.Key >= from && !yield(v, nil) {
			return
		}
	}
}
