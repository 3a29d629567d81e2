// SPDX-License-Identifier: MIT

package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/node"

	"github.com/seed581295f1/timewheel/internal/recent"
)

// A catchingUp counts the overdue tasks for [Scheduler.CatchUp] in the background. Between counts it subtracts the
// counted tasks that have started since the last count.
type catchingUp struct {
	count recent.Of[overdue]

	mu    sync.Mutex // protects the fields below
	under *overdue   // progress of the current count, or the last count if none is in progress
}

// overdueTimeout is the time limit for a count of overdue tasks, which reads them one by one.
const overdueTimeout = 10 * time.Minute

// guessShare is how many times as long as it took a count is used while there are other nodes and overdue tasks.
const guessShare = 20

var errOverdueTimeout = fmt.Errorf("durable: the overdue tasks were not counted within %v", overdueTimeout)

// An overdue is a count of overdue tasks.
type overdue struct {
	at    time.Time // when the count began
	until int64     // the count includes tasks due at or before this time
	kinds map[string]*overdueKind
}

type overdueKind struct {
	KindCatchUp
	here    bool   // tasks of the kind could run here when the count began
	started uint64 // overdueStarts.counted when the count began, and the starts since of tasks that the count has missed
	missed  uint64 // overdueStarts.missed when the count began
}

func (s *Scheduler) catchUp(ctx context.Context) (CatchUp, error) {
	if !s.reads.Enter() {
		return CatchUp{}, ErrStopped
	}
	defer s.reads.Leave()
	c, era := &s.behind, s.node.Era()
	for again := false; ; again = true {
		if err := node.Await(ctx, c.count.Ask(era, s.countOverdue)); err != nil {
			return CatchUp{}, err
		}
		last := c.count.Last(era)
		switch {
		case last.Err != nil:
			return CatchUp{}, last.Err
		case last.Old:
			return s.cut(), nil
		}
		left, spent := s.left(last.Value)
		age := recent.Since(last.Value.at)
		few := age >= recent.Stale/3 && s.node.CaughtUp()
		guess := age >= max(time.Second, guessShare*last.Took) && s.node.NodeCount() > 1
		if !spent && (left.Left+len(left.Others) == 0 || !few && !guess) || again {
			return left, nil
		}
		// Either the count is spent: others may have become overdue. Or the node has started fewer of
		// them than the average, and a new count is quick, because only other nodes still hold some. Or what the other
		// nodes have started is a guess that need not be old.
		c.count.Expire()
	}
}

// cut returns the progress of the first count, without subtracting any starts.
func (s *Scheduler) cut() CatchUp {
	c := &s.behind
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under == nil {
		return CatchUp{Cut: true}
	}
	is := CatchUp{At: c.under.at, Cut: true}
	runs := s.runsHere()
	for name, kind := range c.under.kinds {
		is.add(kind.KindCatchUp, runs(name))
	}
	is.sort()
	return is
}

// runsHere returns a function that reports whether tasks of a kind can run on this scheduler.
func (s *Scheduler) runsHere() func(kind string) bool {
	leaves, paused := s.node.Leaves(), s.kinds.Pauses()
	return func(kind string) bool { return !leaves && !paused.Has(kind) && s.kind(kind) != nil }
}

// left returns how many of the counted tasks remain. spent reports whether all of them have started, or other kinds than
// when they were counted can run here. A node counts only its own starts, and assumes that every node starts tasks at the
// same rate. Because this is an estimate, it is never 0 for a counted kind if there are several nodes.
func (s *Scheduler) left(of overdue) (is CatchUp, spent bool) {
	is.At = of.at
	nodes := s.node.NodeCount()
	runs := s.runsHere()
	counted, known, changed := 0, true, false
	spent = true
	for name, kind := range of.kinds {
		k, now := s.kind(name), kind.KindCatchUp
		if now.Left == 0 {
			continue
		}
		here := runs(name)
		changed = changed || here != kind.here
		if !here {
			is.add(now, false)
			continue
		}
		counted++
		now.Left -= nodes * int(k.overdue.counted.Load()-kind.started)
		spent = spent && now.Left <= 0
		if nodes > 1 {
			now.Left = max(now.Left, 1)
		}
		if now.Left <= 0 {
			continue
		}
		if perSecond, ok := k.overdue.rate.read(); ok && perSecond > 0 {
			left := float64(now.Left) / (perSecond * float64(nodes)) * float64(time.Second)
			now.Done = time.Unix(0, s.node.Now()).Add(time.Duration(left))
		}
		known = known && !now.Done.IsZero()
		if now.Done.After(is.Done) {
			is.Done = now.Done
		}
		is.add(now, true)
	}
	if !known {
		is.Done = time.Time{}
	}
	is.sort()
	return is, spent && counted > 0 || changed
}

func (c *CatchUp) add(kind KindCatchUp, runsHere bool) {
	if !runsHere {
		c.Others = append(c.Others, kind)
		return
	}
	c.Kinds = append(c.Kinds, kind)
	if c.Left += kind.Left; c.Oldest.IsZero() || kind.Oldest.Before(c.Oldest) {
		c.Oldest = kind.Oldest
	}
}

func (c *CatchUp) sort() {
	for _, kinds := range [][]KindCatchUp{c.Kinds, c.Others} {
		slices.SortFunc(kinds, func(a, b KindCatchUp) int { return cmp.Compare(a.Kind, b.Kind) })
	}
}

// countOverdue counts the overdue tasks by kind. It leaves out tasks that run, and tasks whose kind has a handler here that
// does not accept the payload.
func (s *Scheduler) countOverdue(ctx context.Context) (overdue, error) {
	is := overdue{at: time.Now(), until: s.node.OverdueUntil(), kinds: make(map[string]*overdueKind)}
	runs := s.runsHere()
	for _, name := range s.kinds.Names() {
		k := &s.kind(name).overdue
		k.until.Store(is.until)
		k.passed.Store(engine.None)
		is.kinds[name] = &overdueKind{
			KindCatchUp: KindCatchUp{Kind: name}, here: runs(name), started: k.counted.Load(), missed: k.missed.Load(),
		}
	}
	defer func() {
		for name, kind := range is.kinds {
			if k := s.kind(name); k != nil {
				kind.started += k.overdue.missed.Load() - kind.missed
			}
		}
	}()
	found := overdue{at: is.at, kinds: make(map[string]*overdueKind)}
	c := &s.behind
	c.mu.Lock()
	c.under = &found
	c.mu.Unlock()
	over := node.Stretch{After: engine.Position{Due: engine.None}, Until: is.until}
	_, err := s.look(ctx, &over, Query{}, s.node.Now(), 0, func(v node.View) bool {
		k, kind := s.kind(v.Rec.Kind), is.kinds[v.Rec.Kind]
		if kind == nil {
			kind = &overdueKind{KindCatchUp: KindCatchUp{Kind: v.Rec.Kind}}
			is.kinds[v.Rec.Kind] = kind
		}
		if k != nil {
			k.overdue.passed.Store(v.Rec.Due)
		}
		if v.Running || k != nil && !k.Policy.Takes(v.Rec) {
			return true
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if kind.Left++; kind.Left == 1 {
			kind.Oldest = time.Unix(0, v.Rec.Due)
			found.kinds[v.Rec.Kind] = kind
		}
		return true
	})
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		err = errOverdueTimeout
	}
	return is, err
}

// An overdueStarts counts the starts of a kind's overdue tasks.
type overdueStarts struct {
	rate    rate
	until   atomic.Int64  // counted includes only tasks due at or before this time
	counted atomic.Uint64 // number of starts of such tasks since New
	passed  atomic.Int64  // the due time up to which the last count has come
	missed  atomic.Uint64 // counted starts of tasks that a count will not find, because it had not come to them
}

// note counts the start of a task that was due at the given time.
func (o *overdueStarts) note(due int64, now time.Time) {
	o.rate.note(now)
	if due <= o.until.Load() {
		o.counted.Add(1)
		if due > o.passed.Load() {
			o.missed.Add(1)
		}
	}
}

// A rate counts the events in each of the last few seconds.
type rate struct {
	mu     sync.Mutex // protects the fields below
	since  int64      // second of the first event after the last idle period
	second int64      // current second, counted in counts[second%len(counts)]; the other elements count earlier seconds
	counts [11]int
}

func (r *rate) note(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moveLocked(now.Unix()); r.sumLocked() == 0 {
		r.since = r.second
	}
	r.counts[r.second%int64(len(r.counts))]++
}

// moveLocked advances the rate to the given second.
func (r *rate) moveLocked(now int64) {
	if now-r.second > int64(len(r.counts)) || now < r.second {
		r.second = now - int64(len(r.counts)) // all counts are too old, or the clock was set back
	}
	for r.second < now {
		r.second++
		r.counts[r.second%int64(len(r.counts))] = 0
	}
}

func (r *rate) sumLocked() (n int) {
	for _, count := range r.counts {
		n += count
	}
	return n
}

// read returns the average number of events per second over the last ten complete seconds. It reports false if events
// have not been counted for that long.
func (r *rate) read() (perSecond float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moveLocked(time.Now().Unix())
	n := r.sumLocked() - r.counts[r.second%int64(len(r.counts))]
	seconds := len(r.counts) - 1
	return float64(n) / float64(seconds), r.second-r.since >= int64(seconds)
}
