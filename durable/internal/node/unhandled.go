// SPDX-License-Identifier: MIT

package node

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/task"
)

// A forgotten is what a node knows about due tasks for which no node has a handler. The goroutine that counts them owns
// it, apart from the channel.
type forgotten struct {
	recount chan struct{}   // signals that the handlers have changed
	named   map[string]bool // kinds that the log has named
}

const (
	// unhandledEvery is how often a node counts the due tasks without a handler. The first count leaves the program time
	// to register its handlers. On its own engine a node counts as often as that, unless counting takes more than
	// 1/countShare of the time. A count takes at most countFor from the first task on, and is then too low.
	unhandledFirst = 10 * time.Second
	unhandledEvery = time.Minute
	countFor       = time.Second
	countShare     = 20
)

// keepUnhandled counts the due tasks that no node handles, and reports each of their kinds once. It returns how long to
// wait before the next call.
func (n *Node) keepUnhandled() time.Duration {
	n.mu.Lock()
	counts := n.started && !n.leavesLocked()
	n.mu.Unlock()
	if !counts {
		return unhandledFirst
	}
	began := time.Now()
	found, ok := n.unhandled()
	if !ok {
		return unhandledEvery
	}
	all := 0
	for kind, tasks := range found {
		if all += tasks; n.named[kind] {
			delete(found, kind)
		}
		n.named[kind] = true
	}
	if n.alone { // otherwise the count would be a minute behind the other nodes
		n.count.unhandled.Store(int64(all))
	}
	if len(found) > 0 {
		n.report.note(func(n *notices) { n.unhandled = found })
	}
	if n.alone {
		return min(max(countShare*time.Since(began), unhandledFirst), unhandledEvery)
	}
	return unhandledEvery
}

// unhandled returns the number of overdue tasks by kind for which neither this node nor, by its report, another one has a
// handler. Tasks of paused kinds do not count. ok is false if the engine does not answer.
func (n *Node) unhandled() (found map[string]int, ok bool) {
	ctx, cancel := context.WithTimeout(n.life, claimTimeout)
	defer cancel()
	here := make(map[string]bool) // by class
	for _, name := range n.kinds.Names() {
		for _, class := range n.kinds.Get(name).Policy.Classes(name) {
			here[class] = true
		}
	}
	found = make(map[string]int)
	if n.alone {
		if kinds, whole := n.owned.Counted(); whole && !slices.ContainsFunc(kinds, func(k engine.KindCount) bool { return !here[k.Kind] }) {
			return found, true // without a look at the tasks
		}
	}
	members, _, err := n.engine.Renew(ctx, 0, nil)
	if err != nil {
		n.trouble(err)
		return nil, false
	}
	elsewhere, self := make(map[string]bool), n.current()
	for _, m := range members {
		switch r := reportOf(m); {
		case self == nil || m.ID == self.id:
		case r.More || len(m.Report) == 0: // it may handle other kinds
			return nil, true
		default:
			for _, kind := range r.Kinds {
				elsewhere[kind] = true
			}
		}
	}
	pauses := n.kinds.Pauses()
	ctx, begin, end := Within(ctx, countFor)
	defer end()
	due := engine.Range{Order: engine.ByDue, After: engine.Position{Due: engine.None}, Until: n.OverdueUntil()}
	for s, err := range n.engine.Walk(ctx, due) {
		if err != nil {
			if ctx.Err() == nil {
				n.trouble(err)
			}
			return found, ctx.Err() != nil
		}
		begin()
		kind, _, _ := strings.Cut(s.Kind, task.ClassMark)
		if s.Owner == 0 && !here[s.Kind] && !elsewhere[kind] && !pauses.Has(kind) {
			found[kind]++
		}
	}
	return found, true
}
