// SPDX-License-Identifier: MIT

package kv

import (
	"bytes"
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/seed581295f1/timewheel/durable/engine"
	"github.com/seed581295f1/timewheel/durable/internal/valid"
)

func (e *alone) Claim(ctx context.Context, r engine.ClaimRequest) (got engine.Claims, err error) {
	m, at, err := e.lockAs(ctx, r.By)
	if err != nil {
		return got, err
	}
	leased := at.now < m.until
	seen := e.watch()
	seen.freed = make(map[span]int64)
	e.mu.Unlock()
	defer e.unwatch(seen)
	got.Now, got.Next = at.now, r.Group
	if !leased || r.Most <= 0 {
		return got, nil
	}
	got.Tasks, got.Next, err = e.claim(ctx, r, func(found []candidate) ([]engine.Stored, error) {
		return e.give(ctx, r, found, seen)
	})
	switch {
	case err != nil || r.Readable != math.MaxUint8:
	case r.Fair:
		e.raiseTurns(r, got.Tasks, seen)
	default:
		e.raise(r, got.Tasks, seen)
	}
	return got, err
}

// lows are due times by span. Without one, leastDue counts.
type lows map[span]int64

// mostLows is the number of spans with a due time. There may be many groups.
const mostLows = 1 << 14

func (l lows) of(s span) int64 {
	if due, ok := l[s]; ok {
		return due
	}
	return leastDue
}

func (l lows) raise(s span, due int64) {
	if len(l) >= mostLows {
		clear(l)
	}
	l[s] = max(l.of(s), due)
}

// leastOf returns a due time before which no task of the span is free. A claim begins there, and so does not read again
// the rows of the tasks that the node holds, or of removed tasks.
func (e *alone) leastOf(s span) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leasts.of(s)
}

// raise raises the due times before which the spans of a claim have no free task. The claim has got all that were free up
// to its last one or, if there was room for more, to its end, apart from any that became free meanwhile.
func (e *alone) raise(r engine.ClaimRequest, got []engine.Stored, seen *changed) {
	end := r.Until + 1
	if len(got) == r.Most {
		end = got[r.Most-1].Due
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, kind := range r.Kinds {
		for _, grouped := range []bool{false, true} {
			s := span{kind: kind, grouped: grouped}
			if r.After < e.leasts.of(s) { // otherwise the claim has left a gap
				e.leasts.raise(s, seen.before(s, end))
			}
		}
	}
}

// raiseTurns is raise for a fair claim. It has got the first free tasks of each of its groups.
func (e *alone) raiseTurns(r engine.ClaimRequest, got []engine.Stored, seen *changed) {
	last := make(map[string]int64)
	for _, s := range got {
		last[s.Group] = s.Due
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for group, due := range last {
		for _, kind := range r.Kinds {
			s := span{kind: kind, group: group}
			e.leasts.raise(s, seen.before(s, due))
		}
	}
}

// before returns the due time, or that of an earlier task of the span that became free.
func (c *changed) before(s span, due int64) int64 {
	if freed, ok := c.freed[s]; ok {
		return min(due, freed)
	}
	return due
}

// give claims the wanted tasks for the member that are still free and have not changed since they were read.
func (e *alone) give(ctx context.Context, r engine.ClaimRequest, found []candidate, seen *changed,
) (got []engine.Stored, err error) {
	tasks, err := e.tasksOf(ctx, found)
	if err != nil {
		return nil, err
	}
	_, _, err = e.lockAs(ctx, r.By)
	if err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	got = make([]engine.Stored, 0, len(tasks))
	for _, task := range tasks {
		s := e.states[task.Key]
		if seen.has(task.Key) || !s.free() || !wanted(r, task) {
			continue
		}
		next := &state{row: *task}
		if s != nil {
			next.Starts, next.Started, next.starts = s.Starts, s.Started, s.starts
		}
		next.Data, next.Owner, next.Revision = nil, r.By, e.next()
		e.states[task.Key] = next
		next.of(task)
		got = append(got, task.Stored)
	}
	return got, nil
}

// holds returns the state of the claimed task, or nil if the member does not hold the task at that revision.
func (e *alone) holds(by engine.MemberID, c engine.Claim) *state {
	if s := e.states[c.Key]; s != nil && s.Owner == by && s.Revision == c.Revision && !s.writing {
		return s
	}
	return nil
}

func (e *alone) Confirm(ctx context.Context, by engine.MemberID, claims []engine.Claim, within time.Duration,
) (held []bool, now int64, err error) {
	if err := e.count(ctx, by, claims); err != nil {
		return nil, 0, err
	}
	m, at, err := e.lockAs(ctx, by)
	if err != nil {
		return nil, 0, err
	}
	defer e.mu.Unlock()
	held = make([]bool, len(claims))
	for i, c := range claims {
		if s := e.holds(by, c); s != nil && at.now < m.until {
			s.start(c, at.now, within)
			held[i] = true
		}
	}
	return held, at.now, nil
}

// Start implements [engine.Starter]. A start that has to be written may share its Commit with others.
func (e *alone) Start(by engine.MemberID, c engine.Claim, within time.Duration) (held bool, now int64, ok bool) {
	m, at, err := e.lockAs(context.Background(), by)
	if err != nil {
		return false, 0, false
	}
	defer e.mu.Unlock()
	s := e.holds(by, c)
	if s == nil || at.now >= m.until {
		return false, at.now, true
	}
	if e.counted < countedStarts && e.counts(s, c) {
		return false, 0, false
	}
	s.start(c, at.now, within)
	return true, at.now, true
}

// start counts a confirmed start.
func (s *state) start(c engine.Claim, now int64, within time.Duration) {
	s.Starts, s.Started = c.Starts+1, now
	s.confirm(now, within)
}

func (e *alone) Release(ctx context.Context, by engine.MemberID, claims []engine.Claim) error {
	if _, _, err := e.lockAs(ctx, by); err != nil {
		return err
	}
	defer e.mu.Unlock()
	for _, c := range claims {
		if s := e.holds(by, c); s != nil && s.Starts == c.Starts {
			e.release(c.Key, s)
		}
	}
	return nil
}

// release frees the task.
func (e *alone) release(key string, s *state) {
	if s.writing { // the Commit in progress completes the release
		s.Owner = 0
		return
	}
	next := *s
	next.Owner, next.Revision = 0, e.next()
	e.states[key] = &next
	e.freed(&next.row)
}

// freed records that a task has become free, so that a claim finds it, and wakes the node if it waits for one that is due then.
func (e *alone) freed(r *row) {
	e.freedIn(span{kind: r.Kind, group: r.Group}, r.Due)
	if r.Group != "" {
		e.freedIn(span{kind: r.Kind, grouped: true}, r.Due)
	}
	if r.Due > e.wakeFor {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// freedIn lowers the due time before which the span has no free task.
func (e *alone) freedIn(s span, due int64) {
	if due < e.leasts.of(s) {
		e.leasts[s] = due
	}
	for c := range e.reads {
		if least, ok := c.freed[s]; c.freed != nil && (!ok || due < least) {
			c.freed[s] = due
		}
	}
}

// Wake implements [engine.Waker]. A task that a Commit in progress writes becomes free when that ends.
func (e *alone) Wake(ctx context.Context, kinds []string, after, until int64, wake chan<- struct{}) (due int64, err error) {
	if _, err := e.lock(ctx); err != nil {
		return engine.None, err
	}
	e.wake, e.wakeFor = wake, until
	e.mu.Unlock()
	r := engine.ClaimRequest{Kinds: kinds, Until: until, Readable: math.MaxUint8}
	found, err := e.earliest(ctx, r, engine.Position{Due: after}, 1)
	if err != nil || len(found) == 0 {
		return engine.None, err
	}
	return found[0].due, nil
}

// Join implements engine.Engine. The first member reserves revisions, because its claims have some before its first
// Commit.
func (e *alone) Join(ctx context.Context, name string, lease time.Duration) (engine.MemberID, int64, error) {
	if err := e.reserve(ctx); err != nil {
		return 0, 0, err
	}
	at, err := e.lock(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer e.mu.Unlock()
	e.last++
	e.members[e.last] = &mate{name: name, lease: lease, until: at.now + int64(lease)}
	return e.last, at.now, nil
}

func (e *alone) Renew(ctx context.Context, by engine.MemberID, report []byte,
) (members []engine.Membership, now int64, err error) {
	if err := valid.Report(report); err != nil {
		return nil, 0, err
	}
	at, err := e.lock(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer e.mu.Unlock()
	if by != 0 {
		m := e.members[by]
		if m == nil {
			return nil, 0, gone(by)
		}
		m.until = at.now + int64(m.lease)
		if bytes.Compare(report, m.report) > 0 {
			m.report = bytes.Clone(report)
		}
	}
	for id, m := range e.members {
		members = append(members, engine.Membership{ID: id, Name: m.name, Lease: m.lease,
			Left: time.Duration(m.until - at.now), Report: bytes.Clone(m.report)})
	}
	return members, at.now, nil
}

func (e *alone) Leave(ctx context.Context, id engine.MemberID) error {
	if _, err := e.lock(ctx); err != nil {
		return err
	}
	defer e.mu.Unlock()
	e.end(id)
	return nil
}

// end ends the member if it exists.
func (e *alone) end(id engine.MemberID) {
	delete(e.members, id)
	for key, s := range e.states {
		if s.Owner == id {
			e.release(key, s)
		}
		if was := s.before; was != nil && was.Owner == id { // the Commit in progress may be undone
			free := *was
			free.Owner, free.Revision = 0, e.next()
			s.before = &free
		}
	}
}

func (e *alone) Reap(ctx context.Context) (names []string, err error) {
	at, err := e.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	for id, m := range e.members {
		if at.now >= m.until && at.now-at.up > int64(m.lease) {
			e.end(id)
			names = append(names, m.name)
		}
	}
	return names, nil
}

// held walks over the tasks that the member holds, by key.
func (e *alone) held(ctx context.Context, by engine.MemberID) iter.Seq2[engine.Stored, error] {
	return func(yield func(engine.Stored, error) bool) {
		if _, _, err := e.lockAs(ctx, by); err != nil {
			yield(engine.Stored{}, err)
			return
		}
		rows := make([]string, 0, len(e.states))
		for key, s := range e.states {
			if s.Owner == by {
				rows = append(rows, taskRow+key)
			}
		}
		e.mu.Unlock()
		slices.Sort(rows)
		e.walk(ctx, func(yield func(engine.Entry, error) bool) {
			for _, row := range rows {
				if !yield(engine.Entry{Key: row}, nil) {
					return
				}
			}
		}, func(_ string, r *row) bool { return r.Owner == by })(yield)
	}
}
