// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/limit"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// Drift returns the differences between the node's counters, the tasks that it holds and the tasks in its own engine. It is
// for tests. Nothing may happen while it runs.
func (n *Node) Drift() []string {
	d := drift{n: n}
	d.memory()
	if err := d.engine(); err != nil {
		d.wrong("%v", err)
	}
	return d.found
}

type drift struct {
	n     *Node
	found []string
}

func (d *drift) wrong(format string, args ...any) {
	d.found = append(d.found, fmt.Sprintf(format, args...))
}

// same records a wrong count.
func (d *drift) same(what string, counted, is int) {
	if counted != is {
		d.wrong("%s: %d are counted, and %d are there", what, counted, is)
	}
}

// memory checks the held tasks, the backlog and the limiters.
func (d *drift) memory() {
	n := d.n
	n.mu.Lock()
	defer n.mu.Unlock()
	var waiting []*limit.Task
	var limiters []*limit.Limiter
	tasks, size := 0, 0
	for key, l := range n.held {
		if !l.limited {
			tasks, size = tasks+1, size+l.Rec.Size()
		}
		if !l.Waits() {
			continue
		}
		waiting = append(waiting, &l.Task)
		if l.overdue && !n.backlog.Waits(&l.Task) {
			d.wrong("%s is overdue, and waits nowhere", key)
		}
	}
	d.same("held tasks", n.tasks, tasks)
	d.same("bytes of held tasks", n.bytes, size)
	for _, of := range n.kinds.AllLimited() {
		limiters = append(limiters, of.Limiter)
	}
	d.found = append(d.found, n.backlog.Check(waiting, limiters)...)
	d.same("ends that are not committed", len(n.unsent), 0)
}

// engine compares the tasks in the engine with the held ones. A task that is due, and that the node could run,
// must be held, unless the node leaves it to the engine because others wait.
func (d *drift) engine() error {
	n := d.n
	n.mu.Lock()
	defer n.mu.Unlock()
	due, full := n.Now()-int64(3*time.Second), len(n.full) > 0
	for _, of := range n.kinds.AllLimited() {
		full = full || of.Limiter.Waiting() > 0
	}
	tally, held := make(engine.Tally), make(map[string]bool)
	for s, err := range n.engine.Walk(context.Background(), engine.Range{
		After: engine.Position{Due: engine.None}, Until: task.Never,
	}) {
		if err != nil {
			return err
		}
		rec, err := task.Decode(s.Record)
		if err != nil {
			return err
		}
		tally.Add(s.Kind, s.Due, rec.Failing(), 1)
		l := n.held[s.Key]
		switch {
		case l != nil:
			held[s.Key] = true
			if l.Rec.Token != rec.Token || l.Rec.Due != rec.Due || l.claim.revision != s.Revision || s.Owner == 0 {
				d.wrong("%s is held as %+v at %d, and stored as %+v at %d of %d", s.Key, l.Rec, l.claim.revision, rec, s.Revision, s.Owner)
			}
		case s.Owner != 0:
			d.wrong("%s belongs to the node, which does not hold it", s.Key)
		case !full && s.Due < due && n.kinds.Of(rec) != nil && !n.kinds.Pauses().Has(rec.Kind) && n.backlog.Len() == 0:
			d.wrong("%s has been due since %d, and is free", s.Key, s.Due)
		}
	}
	for key, l := range n.held {
		// A claim may be answered after the removal of its task. Such a task is found out when it is to start.
		if !held[key] && l.Rec.Due < n.Now()-int64(time.Minute) {
			d.wrong("%s is held as %+v at %d in the state %d, and is not stored", key, l.Rec, l.claim.revision, l.state.Load())
		}
	}
	counted, whole := n.owned.Counted()
	want := tally.Kinds()
	for _, of := range [][]engine.KindCount{counted, want} {
		slices.SortFunc(of, func(a, b engine.KindCount) int { return strings.Compare(a.Kind, b.Kind) })
	}
	if whole && !slices.Equal(counted, want) {
		d.wrong("counted are %+v, and there are %+v", counted, want)
	}
	return nil
}

// InMemory returns how many tasks of the kind, or of all kinds if it is empty, the node holds, and roughly how many
// bytes they take. It is for tests.
func (n *Node) InMemory(kind string) (tasks, size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.held {
		if kind == "" || l.Rec.Kind == kind {
			tasks, size = tasks+1, size+l.Rec.Size()
		}
	}
	return tasks, size
}
